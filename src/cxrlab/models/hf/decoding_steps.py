"""Steps of decoding: prompts are read once, then each row of a batch is continued token by token from a cache.

The cache grows with every token here; `static_cache.py` has one of fixed size. A decoding strategy sees no difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.scoring import forward

if TYPE_CHECKING:
    from torch import Tensor

# Finished rows leave a growing cache together once they are this share of it: removing some copies the cache of all
# others, about as much work as a tenth of a step.
_WORTHWHILE = 1 / 8
CACHE = "past_key_values"
# Model inputs with one row per sequence beside the tokens, [..., R, L].
OF_ROWS = ("attention_mask", "position_ids", "token_type_ids", "mm_token_type_ids")


@dataclass(frozen=True)
class Answer:
    """A generated answer.

    Args:
        tokens: Generated ids, a generated end token included.
        log_probability: Sum of their natural-log probabilities under the model itself, ≤ 0.
        ended: Whether the model ended the answer; otherwise it was cut at the longest length.
    """

    tokens: tuple[int, ...]
    log_probability: float
    ended: bool


@dataclass(frozen=True)
class Limits:
    """What holds for every answer of a batch.

    Args:
        ends: Ids of tokens that end an answer, at least one.
        banned: Ids that are never generated.
        longest: Most tokens of an answer.
    """

    ends: Sequence[int]
    banned: Sequence[int]
    longest: int


class Steps(ABC):
    """The forward passes of a batch after its prompts, one token per row and step.

    Args:
        rows: R; the rows of one image are adjacent.
        device: Of the tokens.
        limits: Of the answers.
    """

    def __init__(self, rows: int, device: Any, limits: Limits) -> None:
        self.rows, self.device, self.longest = rows, device, limits.longest
        self.ends = torch.tensor(list(limits.ends), dtype=torch.long, device=device)
        self.filler = int(limits.ends[0])  # token after the end of a finished row; never read
        self._banned = torch.tensor(list(limits.banned), dtype=torch.long, device=device)
        self._count = 0

    def log_probabilities(self) -> Tensor:
        """Natural-log probability of every next token, [R, V] float32; -inf for banned tokens.

        Banned tokens keep their share: the others are not scaled up, so that a report has the same probability as
        where a given report is scored.
        """
        found = torch.log_softmax(self._next_logits().to(device=self.device, dtype=torch.float32), dim=-1)
        if bool(torch.isnan(found).any()):
            raise DataError(
                f"the model's output for token {self._count + 1} is NaN; its weights are damaged, or too large for "
                "their number format: check the file, or give --loading.dtype float32."
            )
        found[:, self._banned] = -torch.inf
        return found

    def is_end(self, tokens: Tensor) -> Tensor:
        """Whether each token ends an answer; same shape."""
        return torch.isin(tokens, self.ends)

    @abstractmethod
    def _next_logits(self) -> Tensor:
        """Logits of every next token, [R, V]."""

    @abstractmethod
    def append(self, tokens: Tensor, rows: Tensor | None = None) -> None:
        """Append one token [R] to each row; `rows` [R] gives the row that each new one continues, if not itself."""

    @abstractmethod
    def fewer_rows(self, unfinished: int) -> int | None:
        """Number of rows with which to continue if so many are unfinished; None to continue with all."""

    @abstractmethod
    def keep_rows(self, rows: Tensor) -> None:
        """Continue with these rows [R'] only, each at most once; R' as `fewer_rows` gives it."""


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts that the model has read, one row each.

    Args:
        model: As transformers hands it over, which may be a part of the whole.
        ids: Token ids [B, L], padded on the left.
        inputs: The model's other inputs for the next token, its cache included.
        logits: Of the next token, [B, V].
    """

    model: Any
    ids: Tensor
    inputs: dict[str, Any]
    logits: Tensor

    @classmethod
    def read(cls, model: Any, ids: Tensor, inputs: Mapping[str, Any]) -> Prompts:
        """Read prompts in one forward pass."""
        logits, after = _pass(model, ids, inputs, first=True)
        return cls(model, ids, after, logits)

    @property
    def cache(self) -> Any:
        """The keys and values of all layers."""
        return self.inputs.get(CACHE)

    def have_independent_rows(self) -> bool:
        """Whether a row can be copied without the inputs that are not per row; see `_has_independent_rows`."""
        if find_family(self.model.config.model_type).static_cache:
            return True
        return _has_independent_rows(self.model, torch.cat([self.ids, self.ids[:, -1:]], dim=1), self.inputs)

    def repeated(self, times: int) -> Prompts:
        """Every prompt so many times in a row; the cache of these is used up. Only with independent rows."""
        if times == 1:
            return self
        index = torch.arange(len(self.ids), device=self.ids.device).repeat_interleave(times)
        self.cache.reorder_cache(index)
        rows = {name: tensor.index_select(-2, index) for name, tensor in self.of_rows().items()}
        return Prompts(self.model, self.ids[index], {**self._of_the_batch(), **rows}, self.logits[index])

    @property
    def mask(self) -> Tensor:
        """[B, L + 1], 1 where a token is no padding, the next one included."""
        mask = self.inputs.get("attention_mask")  # transformers drops a mask of ones
        found: Tensor = self.ids.new_ones((len(self.ids), self.ids.shape[1] + 1)) if mask is None else mask
        return found

    def of_rows(self) -> dict[str, Tensor]:
        """The inputs with one row per prompt."""
        return {name: tensor for name in OF_ROWS if (tensor := self.inputs.get(name)) is not None}

    def _of_the_batch(self) -> dict[str, Any]:
        """The cache and plain settings; what else the prompts needed, such as sizes of images, is in the cache now."""
        return {
            name: value for name, value in self.inputs.items() if name == CACHE or isinstance(value, bool | int | str)
        }

    @classmethod
    def joined(cls, parts: Sequence[Prompts]) -> Prompts:
        """Several batches as one; the cache of the first is changed. Only with independent rows."""
        whole = parts[0]
        if len(parts) == 1:
            return whole
        longest = max(part.ids.shape[1] for part in parts)
        gaps = [longest - part.ids.shape[1] for part in parts]
        pad = torch.nn.functional.pad
        inputs = whole._of_the_batch()
        for name in OF_ROWS:
            is_mask = name == "attention_mask"
            given = [
                part.mask if is_mask else part.of_rows()[name] for part in parts if is_mask or name in part.of_rows()
            ]
            if given:
                inputs[name] = torch.cat([pad(one, (gap, 0)) for one, gap in zip(given, gaps, strict=True)], dim=-2)
        for number, layer in enumerate(whole.cache.layers):
            layers = [part.cache.layers[number] for part in parts]
            longest_kept = max(one.keys.shape[-2] for one in layers)
            for kind in ("keys", "values"):
                states = [getattr(one, kind) for one in layers]
                padded = [pad(one, (0, 0, longest_kept - one.shape[-2], 0)) for one in states]
                setattr(layer, kind, torch.cat(padded))
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length = longest
        ids = torch.cat([pad(part.ids, (gap, 0)) for part, gap in zip(parts, gaps, strict=True)])
        return cls(whole.model, ids, inputs, torch.cat([part.logits for part in parts]))


def _pass(model: Any, ids: Tensor, inputs: Mapping[str, Any], *, first: bool) -> tuple[Tensor, dict[str, Any]]:
    """Logits [B, V] of the next token, and the inputs of the pass after that."""
    cached = inputs.get("use_cache") and not first
    given = model.prepare_inputs_for_generation(
        ids, next_sequence_length=1 if cached else None, is_first_iteration=first, **inputs
    )
    outputs = forward(model, **given, return_dict=True)
    after = model._update_model_kwargs_for_generation(
        outputs, dict(inputs), is_encoder_decoder=bool(model.config.is_encoder_decoder)
    )
    return outputs.logits[:, -1], after


def _has_independent_rows(model: Any, ids: Tensor, inputs: Mapping[str, Any]) -> bool:
    """Whether all state of a model is per row, so that a row can be removed without an effect on the others.

    That requires a class of transformers, its growing cache, and explicit positions. Any other input of the batch, such
    as features for cross-attention, rules it out.

    Args:
        ids: Token ids [R, L], at least one after the prompts.
        inputs: The model's other inputs.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    if not inputs.get("use_cache"):
        return False
    given = model.prepare_inputs_for_generation(ids, next_sequence_length=1, **inputs)
    cache = given.get(CACHE)
    plain = (DynamicLayer, DynamicSlidingWindowLayer)
    if type(cache) is not DynamicCache or not all(type(layer) in plain for layer in cache.layers):
        return False
    if not type(model).__module__.startswith("transformers.") or hasattr(model, "_reorder_cache"):
        return False
    others = {name: value for name, value in given.items() if not isinstance(value, bool | int | str | None)}
    of_rows = {name: value for name, value in others.items() if name in ("input_ids", *OF_ROWS)}
    return (
        others.keys() == {CACHE, *of_rows}
        and "position_ids" in of_rows
        and all(isinstance(value, torch.Tensor) and value.shape[-2] == len(ids) for value in of_rows.values())
    )


class GrowingSteps(Steps):
    """Steps whose cache grows by one token per row and step.

    Args:
        prompts: One row for each row of the batch.
    """

    def __init__(self, prompts: Prompts, limits: Limits) -> None:
        super().__init__(len(prompts.ids), prompts.ids.device, limits)
        self._model, self._ids, self._inputs = prompts.model, prompts.ids, dict(prompts.inputs)
        self._first: Tensor | None = prompts.logits
        self._rows_droppable: bool | None = None

    def _next_logits(self) -> Tensor:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        logits, self._inputs = _pass(self._model, self._ids, self._inputs, first=False)
        return logits

    def append(self, tokens: Tensor, rows: Tensor | None = None) -> None:
        """See `Steps`; beams need a cache whose rows can be reordered."""
        if rows is not None:
            self._ids = self._ids[rows]
            cache: Any = self._inputs.get(CACHE)
            if hasattr(self._model, "_reorder_cache"):
                self._inputs[CACHE] = self._model._reorder_cache(cache, rows)
            elif hasattr(cache, "reorder_cache"):
                cache.reorder_cache(rows)
            elif cache is not None or self._inputs.get("use_cache"):
                raise ConfigError(
                    f"{type(self._model).__name__} has a cache that beams cannot share; use strategy=greedy or sample."
                )
        self._ids = torch.cat([self._ids, tokens[:, None]], dim=1)
        self._count += 1

    def fewer_rows(self, unfinished: int) -> int | None:
        """The unfinished ones alone, once others are worth removing; only if the model has no other state of rows."""
        if unfinished > self.rows * (1 - _WORTHWHILE):
            return None
        if self._rows_droppable is None:
            self._rows_droppable = _has_independent_rows(self._model, self._ids, self._inputs)
        return unfinished if self._rows_droppable else None

    def keep_rows(self, rows: Tensor) -> None:
        """See `Steps`."""
        self.rows = len(rows)
        self._ids = self._ids[rows]
        self._inputs[CACHE].reorder_cache(rows)
        for name in OF_ROWS:
            if (tensor := self._inputs.get(name)) is not None:
                self._inputs[name] = tensor.index_select(-2, rows.to(tensor.device))
