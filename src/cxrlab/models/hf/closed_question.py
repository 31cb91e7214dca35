"""How likely a model says yes: the probability of its first answered token, between yes and no alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf.prompting import report_ids

if TYPE_CHECKING:
    from torch import Tensor

_WORDS = {"yes": ("yes", "Yes", "YES"), "no": ("no", "No", "NO")}


@dataclass(frozen=True)
class Verdicts:
    """Tokens that begin an answer of yes, and those that begin one of no; none is in both."""

    yes: tuple[int, ...]
    no: tuple[int, ...]


def verdict_tokens(processor: Any) -> Verdicts:
    """The tokens in the place of an answer's first one, in three spellings each.

    A spelling that the tokenizer keeps whole is preferred; where it keeps none whole, their first pieces count.
    """
    found = {name: _first_tokens(processor, words) for name, words in _WORDS.items()}
    both = found["yes"] & found["no"]
    yes, no = sorted(found["yes"] - both), sorted(found["no"] - both)
    if not yes or not no:
        raise ConfigError(
            "the tokenizer begins 'yes' and 'no' with the same token, so the answer to a closed question cannot be "
            "read off its first one; use another checkpoint for closed questions."
        )
    return Verdicts(tuple(yes), tuple(no))


def _first_tokens(processor: Any, words: tuple[str, ...]) -> set[int]:
    spelled = [report_ids(processor, word)[:-1] for word in words]
    whole = {ids[0] for ids in spelled if len(ids) == 1}
    return whole or {ids[0] for ids in spelled if ids}


def probability_of_yes(logits: Tensor, verdicts: Verdicts) -> Tensor:
    """[B] in [0, 1] from logits [B, V] of the answer's first token: p(yes) / (p(yes) + p(no)), sums over spellings."""
    import torch

    logits = logits.float()
    yes = torch.logsumexp(logits[:, list(verdicts.yes)], dim=1)
    no = torch.logsumexp(logits[:, list(verdicts.no)], dim=1)
    return torch.sigmoid(yes - no)
