"""How likely a model says yes: the probability of the word yes against that of the word no, nothing else counting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf.prompting import report_ids
from cxrlab.models.hf.scoring import next_logits, report_log_probs

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.models.hf.encoding import Encoder

    Spellings = tuple[tuple[int, ...], ...]

_YES, _NO = ("yes", "Yes", "YES"), ("no", "No", "NO")


@dataclass(frozen=True)
class Verdicts:
    """Tokens of each spelling of yes and of no, as they stand in the place of an answer; none is in both."""

    yes: Spellings
    no: Spellings

    @property
    def spellings(self) -> Spellings:
        """Those of yes, then those of no."""
        return self.yes + self.no

    @property
    def whole(self) -> bool:
        """Whether every spelling is a single token, so that one pass tells them all."""
        return all(len(tokens) == 1 for tokens in self.spellings)


def verdicts_of(processor: Any) -> Verdicts:
    """The spellings that the tokenizer keeps whole; of a word that it never keeps whole, all three in pieces.

    A first piece alone would not do: in many a small vocabulary ' yes' begins with a bare space.
    """
    found = Verdicts(_spelled(processor, _YES), _spelled(processor, _NO))
    if set(found.yes) & set(found.no) or not all(found.spellings):
        raise ConfigError(
            "the tokenizer writes 'yes' and 'no' with the same tokens, so that the answers to a closed question cannot "
            "be told apart; use another checkpoint for closed questions."
        )
    return found


def _spelled(processor: Any, words: tuple[str, ...]) -> Spellings:
    spelled = sorted({tuple(report_ids(processor, word)[:-1]) for word in words})
    return tuple(tokens for tokens in spelled if len(tokens) == 1) or tuple(spelled)


def verdict_scores(
    model: Any, encoder: Encoder, images: Sequence[Tensor], prompts: Sequence[str], verdicts: Verdicts
) -> Tensor:
    """[B, spellings] float32, natural log-probability of each, up to a constant of the image; differentiable.

    One pass where every spelling is one token, else one a spelling.
    """
    import torch

    if verdicts.whole:
        logits = next_logits(model, encoder.encode(images, prompts).inputs)
        return logits[:, [tokens[0] for tokens in verdicts.spellings]].float()
    passes = [encoder.encode(images, prompts, [tokens] * len(images)) for tokens in verdicts.spellings]
    return torch.stack([report_log_probs(model, encoded).sums for encoded in passes], dim=1)


def yes_margins(scores: Tensor, verdicts: Verdicts) -> Tensor:
    """[B] from scores [B, spellings]: log p(yes) - log p(no), each summed over its spellings; above 0 means yes."""
    import torch

    yes, no = scores[:, : len(verdicts.yes)], scores[:, len(verdicts.yes) :]
    return torch.logsumexp(yes, dim=1) - torch.logsumexp(no, dim=1)
