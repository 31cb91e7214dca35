"""A model run one token at a time, over the prompts that `generate` of transformers has prepared.

Every way of choosing words walks through `Steps`: what the model gives for the next token, then which rows
go on with which token, and which leave the batch because they have ended. Settings that a checkpoint brings along
for generation (a repetition penalty, a temperature) have no part in it: `Decoding` alone decides, so that two models
are compared on equal terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.scoring import forward

if TYPE_CHECKING:
    from torch import Tensor

CACHE = "past_key_values"
# What a model is told of each row beside the tokens, [..., R, L].
_OF_ROWS = ("attention_mask", "position_ids", "token_type_ids", "mm_token_type_ids")


@dataclass(frozen=True)
class Answer:
    """What was written for an image.

    Args:
        tokens: Ids of the tokens written, the end token included where it was written.
        log_probability: Sum of their natural-log probabilities under the model itself, ≤ 0.
        ended: Whether the model ended by itself; otherwise the answer was cut at its longest.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool


class Walk(Protocol):
    """A way of choosing words: from the first step to the answers of each image, best first."""

    def __call__(self, steps: Steps) -> list[list[Answer]]:
        """Walk to the end."""
        ...


class Steps:
    """The rows of a batch, each a prompt and what was written after it so far.

    Args:
        model: With the methods by which transformers generates.
        prompts: Token ids [R, L]; the rows of one image stand side by side.
        inputs: What else the model is given, and its cache.
        ends: Ids of tokens that end an answer, at least one.
        banned: Ids that are never written.
        longest: Most tokens of an answer.
    """

    def __init__(
        self,
        model: Any,
        prompts: Tensor,
        inputs: Mapping[str, Any],
        *,
        ends: Sequence[int],
        banned: Sequence[int],
        longest: int,
    ) -> None:
        self.rows = len(prompts)
        self.device = prompts.device
        self.longest = longest
        self.ends = torch.tensor(list(ends), dtype=torch.long, device=prompts.device)
        # A row that has ended goes on with a token that nobody reads.
        self.filler = int(ends[0])
        self._model = model
        self._ids = prompts
        self._inputs = dict(inputs)
        self._banned = torch.tensor(list(banned), dtype=torch.long, device=prompts.device)
        self._written = 0
        self._rows_may_leave: bool | None = None  # not known before the memory has been used

    def log_probabilities(self) -> Tensor:
        """Natural-log probability of every token to come next, [R, V] float32; -inf for what is never written.

        What is never written keeps its share: the rest is not scaled up, so that a report's probability is
        the same here as where a given report is scored.
        """
        first = self._written == 0
        cached = self._inputs.get("use_cache") and not first
        given = self._model.prepare_inputs_for_generation(
            self._ids, next_sequence_length=1 if cached else None, is_first_iteration=first, **self._inputs
        )
        if cached and self._rows_may_leave is None:
            self._rows_may_leave = _is_told_row_by_row(self._model, given, self.rows)
        outputs = forward(self._model, **given, return_dict=True)
        self._inputs = self._model._update_model_kwargs_for_generation(
            outputs, self._inputs, is_encoder_decoder=bool(self._model.config.is_encoder_decoder)
        )
        logits = outputs.logits[:, -1].to(device=self.device, dtype=torch.float32)
        found = torch.log_softmax(logits, dim=-1)
        if bool(torch.isnan(found).any()):
            raise DataError(
                f"the model's output for the next word is not a number, at word {self._written + 1}; its weights are "
                "damaged, or too large for its number format: check the file, or load it with dtype float32."
            )
        found[:, self._banned] = -torch.inf
        return found

    def is_end(self, tokens: Tensor) -> Tensor:
        """Whether each token ends an answer; same shape."""
        return torch.isin(tokens, self.ends)

    def go_on(self, tokens: Tensor, rows: Tensor | None = None) -> None:
        """Write one token [R] after each row; `rows` [R] says which row each new one continues, if not itself."""
        if rows is not None:
            self._ids = self._ids[rows]
            self._reorder(rows)
        self._ids = torch.cat([self._ids, tokens[:, None]], dim=1)
        self._written += 1

    @property
    def rows_may_leave(self) -> bool:
        """Whether `keep` is possible: from the second step on, and not where a model remembers its rows by itself."""
        return bool(self._rows_may_leave)

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows [R'] alone, each at most once; the others are computed no more."""
        if not self.rows_may_leave:
            raise ValueError(f"the rows of a {type(self._model).__name__} cannot leave its batch")
        self.rows = len(rows)
        self._ids = self._ids[rows]
        self._inputs[CACHE].reorder_cache(rows)
        for name in _OF_ROWS:
            if (told := self._inputs.get(name)) is not None:
                self._inputs[name] = told.index_select(-2, rows.to(told.device))

    def _reorder(self, rows: Tensor) -> None:
        cache: Any = self._inputs.get(CACHE)
        if hasattr(self._model, "_reorder_cache"):
            self._inputs[CACHE] = self._model._reorder_cache(cache, rows)
        elif hasattr(cache, "reorder_cache"):
            cache.reorder_cache(rows)
        elif cache is not None or self._inputs.get("use_cache"):
            raise ConfigError(
                f"{type(self._model).__name__} keeps a memory that beams cannot share; use strategy=greedy or sample."
            )


def _is_told_row_by_row(model: Any, given: Mapping[str, Any], rows: int) -> bool:
    """Whether all that a model goes by is told to it row by row, so that a row can be taken out without a trace.

    That needs a class of transformers itself, its growing memory, and positions that are told rather than counted by
    the model; anything else that is told of the batch, such as features for cross-attention, speaks against it.

    Args:
        model: The model.
        given: What it is given for one more token after the first.
        rows: R.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    cache = given.get(CACHE)
    plain = (DynamicLayer, DynamicSlidingWindowLayer)
    if type(cache) is not DynamicCache or not all(type(layer) in plain for layer in cache.layers):
        return False
    if not type(model).__module__.startswith("transformers.") or hasattr(model, "_reorder_cache"):
        return False
    told = {name: value for name, value in given.items() if not isinstance(value, bool | int | str | None)}
    of_rows = {name: value for name, value in told.items() if name in ("input_ids", *_OF_ROWS)}
    return (
        told.keys() == {CACHE, *of_rows}
        and "position_ids" in of_rows
        and all(isinstance(value, torch.Tensor) and value.shape[-2] == rows for value in of_rows.values())
    )


def walk(model: Any, inputs: Mapping[str, Any], choose: Walk, *, rows: int, **limits: Any) -> list[list[Answer]]:
    """Prepare a batch as transformers does and let `choose` write its answers.

    Args:
        model: A model with `generate`.
        inputs: Left-padded prompts and images, as for `model.generate`.
        choose: Takes the steps.
        rows: Rows an image: beams, or answers that are drawn side by side.
        limits: `ends`, `banned` and `longest` of `Steps`.
    """
    from transformers import GenerationConfig

    def decode(
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        **prepared: Any,
    ) -> list[list[Answer]]:
        return choose(Steps(model, input_ids, prepared, **limits))

    # `num_beams` makes transformers repeat prompts, images and caches, each family in its own way.
    settings = GenerationConfig(
        max_new_tokens=limits["longest"], num_beams=rows, num_return_sequences=1, do_sample=False, use_cache=True
    )
    found: list[list[Answer]] = model.generate(**inputs, generation_config=settings, custom_generate=decode)
    return found
