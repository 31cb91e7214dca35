"""Log-probabilities of given reports, from the logits of one forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import DataError
from cxrlab.models.hf.places import ReportPlaces
from cxrlab.models.local_files import first_line

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.models.hf.encoding import Encoded

# Families in which every token looks back alone, those of the image included, and counts its place from the left.
_LOOK_BACK = frozenset({"llava", "llava_next", "llava_onevision", "idefics2", "idefics3"})


@dataclass(frozen=True, eq=False)
class ReportLogProbs:
    """What a model thinks of given reports, token by token.

    Args:
        values: [B, T] float32, natural log-probability of each report token, end token included; 0 where padded.
        mask: [B, T] bool, True for tokens of the report.
        ids: [B, T] token ids; 0 where padded.
    """

    values: Tensor
    mask: Tensor
    ids: Tensor

    @property
    def sums(self) -> Tensor:
        """[B], log-probability of each whole report."""
        return self.values.sum(dim=1)

    @property
    def means(self) -> Tensor:
        """[B], mean over the tokens of each report; minus the loss."""
        return self.sums / self.mask.sum(dim=1)


def report_log_probs(model: Any, encoded: Encoded) -> ReportLogProbs:
    """One forward pass over a right-padded batch with reports; differentiable to the pixels.

    The logits of prompt and image, most of the sequence, are never made: the head runs where a report is written.
    """
    import torch

    places = encoded.places or ReportPlaces.of(encoded.ids, encoded.report_mask)
    logits = last_logits(model, _without_mask(model, encoded.inputs), places.count)[:, :-1]
    chosen = _token_log_probs(logits, encoded.ids[:, 1 - places.count :]).gather(1, places.order)
    values = torch.where(places.mask, chosen, torch.zeros((), device=chosen.device))
    _refuse_undefined(values)
    return ReportLogProbs(values, places.mask, places.ids)


def _without_mask(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of a right-padded batch without the mask that hides padding, where no token could see it anyway.

    Attention is then causal and nothing else, which the fastest kernels of a GPU need: they take no mask.
    """
    config = getattr(model, "config", None)
    if (
        config is None
        or config.model_type not in _LOOK_BACK
        or not getattr(config.get_text_config(), "is_causal", True)
    ):
        return inputs
    return {name: tensor for name, tensor in inputs.items() if name != "attention_mask"}


def last_logits(model: Any, inputs: dict[str, Tensor], count: int) -> Tensor:
    """Logits [B, count, V] of the last positions; other positions are not computed where the model allows it."""
    import inspect

    keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
    out = forward(model, **inputs, use_cache=False, **({"logits_to_keep": count} if keeps else {}))
    logits: Tensor = out.logits[:, -count:]
    return logits


def forward(model: Any, **given: Any) -> Any:
    """One pass; a processor that counts other image tokens than the model has features is told in one sentence."""
    try:
        return model(**given)
    except ValueError as error:
        if "image tokens do not match" not in str(error):
            raise
        raise DataError(
            f"processor and model do not belong together ({first_line(error)}); see patch_size and "
            "vision_feature_select_strategy in processor_config.json."
        ) from error


def next_logits(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Logits [B, V] of the token that follows each row of a right-padded batch."""
    import torch

    lengths = inputs["attention_mask"].sum(dim=1)
    longest = inputs["attention_mask"].shape[1]
    count = longest - int(lengths.min()) + 1
    logits = last_logits(model, _without_mask(model, inputs), count)
    return logits[torch.arange(len(lengths), device=logits.device), lengths - 1 - (longest - count)]


def _token_log_probs(logits: Tensor, ids: Tensor) -> Tensor:
    """Natural log-probability [B, T] float32 of each id under logits [B, T, V]."""
    import torch

    logits = logits.float()
    return logits.gather(2, ids[..., None])[..., 0] - torch.logsumexp(logits, dim=2)


def _refuse_undefined(values: Tensor) -> None:
    if not bool(values.detach().isfinite().all()):
        raise DataError(
            "the model gives log-probabilities that are not numbers; its weights are damaged, or the precision is too "
            "low for them: try --loading.dtype float32."
        )
