"""Log-probabilities of given reports, from the logits of one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.prompting import report_ids
from cxrlab.models.local_files import first_line

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.models.hf.inputs import Encoded


@dataclass(frozen=True, eq=False)
class ReportLogProbs:
    """Log-probabilities of given reports, token by token."""

    values: Tensor  # [B, T] float32, natural log-probability of each report token, end token included; 0 where padded
    mask: Tensor  # [B, T] bool, True for tokens of the report
    ids: Tensor  # [B, T] token ids; 0 where padded

    @property
    def sums(self) -> Tensor:
        """[B], log-probability of each whole report."""
        return self.values.sum(dim=1)

    @property
    def means(self) -> Tensor:
        """[B], mean over the tokens of each report: the negative loss."""
        return self.sums / self.mask.sum(dim=1)


def report_log_probs(model: Any, encoded: Encoded) -> ReportLogProbs:
    """One forward pass over a right-padded batch with reports; differentiable to the pixels.

    Only the logits at report tokens are computed; prompt and image are most of the sequence.
    """
    places = report_places(encoded)
    return read_report(places, encoded.ids, last_logits(model, without_mask(model, encoded.inputs), places.count))


def report_places(encoded: Encoded) -> ReportPositions:
    """Where the reports of a batch are; a `DataError` if a row has none."""
    return encoded.places or ReportPositions.of(encoded.ids, encoded.report_mask)


def read_report(places: ReportPositions, ids: Tensor, logits: Tensor) -> ReportLogProbs:
    """Log-probabilities of reports from the logits of the last `places.count` positions."""
    import torch

    logits = logits[:, :-1].float()
    following = logits.gather(2, ids[:, 1 - places.count :, None])[..., 0] - torch.logsumexp(logits, dim=2)
    chosen = following.gather(1, places.order)
    values = torch.where(places.mask, chosen, torch.zeros((), device=chosen.device))
    if not bool(values.detach().isfinite().all()):
        raise DataError(
            "the model gives log-probabilities that are NaN or infinite; its weights are damaged, or the precision is "
            "too low for them: try --loading.dtype float32."
        )
    return ReportLogProbs(values, places.mask, places.ids)


def without_mask(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """A right-padded batch without its attention mask, if the model is causal so that no token attends to padding.

    The fastest attention kernels accept no mask.
    """
    if not reads_left_to_right(model):
        return inputs
    return {name: tensor for name, tensor in inputs.items() if name != "attention_mask"}


def reads_left_to_right(model: Any) -> bool:
    """Whether no token attends to a later one, image tokens included, and positions count from the left."""
    config = getattr(model, "config", None)
    if config is None or not find_family(config.model_type).is_causal:
        return False
    return bool(getattr(config.get_text_config(), "is_causal", True))


def last_logits(model: Any, inputs: dict[str, Tensor], count: int) -> Tensor:
    """Logits [B, count, V] of the last positions; others are not computed if the model allows it."""
    logits, _ = _kept_logits(model, inputs, count)
    return logits[:, -count:]


def logits_at(model: Any, inputs: dict[str, Tensor], columns: Tensor) -> Tensor:
    """Logits [B, C, V] at these positions of every row; others are not computed if the model allows it."""
    logits, kept = _kept_logits(model, inputs, columns)
    return logits if kept else logits.index_select(1, columns)


def _kept_logits(model: Any, inputs: dict[str, Tensor], kept: int | Tensor) -> tuple[Tensor, bool]:
    """Logits of one forward pass, and whether they are those of the wanted positions alone."""
    import inspect

    keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
    out = forward(model, **inputs, use_cache=False, **({"logits_to_keep": kept} if keeps else {}))
    return out.logits, keeps


def forward(model: Any, **given: Any) -> Any:
    """One forward pass; a mismatch of image tokens and image features becomes a one-sentence error."""
    try:
        return model(**given)
    except ValueError as error:
        if "image tokens do not match" not in str(error):
            raise
        raise DataError(
            f"processor and model do not belong together ({first_line(error)}); check patch_size and "
            "vision_feature_select_strategy in processor_config.json."
        ) from error


def next_logits(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Logits [B, V] of the token that follows each row of a right-padded batch."""
    mask = inputs["attention_mask"]
    return read_next(mask, last_logits(model, without_mask(model, inputs), count_next(mask)))


def count_next(mask: Tensor) -> int:
    """Number of last positions that hold the last token of every row; mask [B, L]."""
    return int(mask.shape[1] - mask.sum(dim=1).min()) + 1


def read_next(mask: Tensor, logits: Tensor) -> Tensor:
    """Logits [B, V] of the token that follows each row, from those of the last `count_next` positions."""
    import torch

    before = mask.shape[1] - logits.shape[1]
    return logits[torch.arange(len(mask), device=logits.device), mask.sum(dim=1) - 1 - before]


@dataclass(frozen=True, eq=False)
class ReportPositions:
    """Where the reports of a batch [B, L] are; T is the longest report."""

    count: int  # last positions whose logits are needed: the one that predicts the first report token, and all after it
    order: Tensor  # [B, T], position of each report token among the last `count` - 1; arbitrary where padded
    mask: Tensor  # [B, T] bool, True for tokens of the report
    ids: Tensor  # [B, T], token ids; 0 where padded

    @classmethod
    def of(cls, ids: Tensor, report_mask: Tensor) -> ReportPositions:
        """From token ids [B, L] and a mask of report tokens [B, L]."""
        import torch

        counts = report_mask.sum(dim=1)
        if not bool((counts > 0).all()):
            raise DataError("a report without a token has no log-probability; give every image a report.")
        # Logits at position p predict token p + 1.
        first = int(report_mask.int().argmax(dim=1).min()) - 1
        predicted = report_mask[:, first + 1 :]
        # Each report to the left edge.
        order = torch.argsort(predicted.int(), dim=1, descending=True, stable=True)[:, : int(counts.max())]
        mask = predicted.gather(1, order)
        return cls(
            report_mask.shape[1] - first, order, mask, torch.where(mask, ids[:, first + 1 :].gather(1, order), 0)
        )

    def to(self, device: Any) -> ReportPositions:
        """A copy on another device."""
        return ReportPositions(self.count, self.order.to(device), self.mask.to(device), self.ids.to(device))


if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.models.hf.inputs import Encoder

    Spellings = tuple[tuple[int, ...], ...]

_YES, _NO = ("yes", "Yes", "YES"), ("no", "No", "NO")


@dataclass(frozen=True)
class YesNoTokens:
    """Tokens of each spelling of yes and of no, in the position of an answer."""

    yes: Spellings
    no: Spellings

    @property
    def spellings(self) -> Spellings:
        """Those of yes, then those of no."""
        return self.yes + self.no

    @property
    def whole(self) -> bool:
        """Whether every spelling is a single token, so that one pass scores them all."""
        return all(len(tokens) == 1 for tokens in self.spellings)


def yes_no_tokens(processor: Any) -> YesNoTokens:
    """The spellings that are one token; if a word has none, all three of its spellings in several tokens.

    The first token would not do: in small vocabularies ' yes' begins with a bare space.
    """
    found = YesNoTokens(_spelled(processor, _YES), _spelled(processor, _NO))
    if set(found.yes) & set(found.no) or not all(found.spellings):
        raise ConfigError(
            "the tokenizer gives 'yes' and 'no' the same tokens, so closed questions cannot be scored; use another "
            "checkpoint for them."
        )
    return found


def _spelled(processor: Any, words: tuple[str, ...]) -> Spellings:
    spelled = sorted({tuple(report_ids(processor, word)[:-1]) for word in words})
    return tuple(tokens for tokens in spelled if len(tokens) == 1) or tuple(spelled)


def yes_no_log_probs(
    model: Any,
    encoder: Encoder,
    images: Sequence[Tensor],
    questions: Sequence[Sequence[str]],
    verdicts: YesNoTokens,
    *,
    total: bool = False,
) -> Tensor:
    """[B, questions, spellings] float32, natural log-probability of each, up to a constant per image and question.

    With `total` one more column has, on the same scale, the log-probability of all answers together.

    Differentiable, with the activations of one question at a time. One pass per question if every spelling is one
    token, else one per question and spelling; the images are read once.

    Args:
        questions: For each question its prompts, one per image.
    """
    import torch

    from cxrlab.models.hf.image_prefix import score_each

    if verdicts.whole:
        texts = encoder.encode_each(images, [(prompts, None) for prompts in questions])
        counts = [count_next(text.inputs["attention_mask"]) for text in texts]
        chosen = [tokens[0] for tokens in verdicts.spellings]

        def read(text: Encoded, logits: Tensor) -> Tensor:
            following = read_next(text.inputs["attention_mask"], logits)
            spelled = following[:, chosen].float()
            return torch.cat([spelled, following.float().logsumexp(1, keepdim=True)], dim=1) if total else spelled

        return torch.stack(score_each(model, texts, counts, read), dim=1)
    texts = encoder.encode_each(
        images, [(prompts, [tokens] * len(images)) for prompts in questions for tokens in verdicts.spellings]
    )
    sums = [one.sums for one in score_reports(model, texts)]
    spelled = torch.stack(sums, dim=1).reshape(len(images), len(questions), -1)
    return torch.cat([spelled, torch.zeros_like(spelled[..., :1])], dim=2) if total else spelled


def score_reports(model: Any, texts: Sequence[Encoded]) -> list[ReportLogProbs]:
    """As `report_log_probs` for several batches of reports about the same images, which are read once."""
    from cxrlab.models.hf.image_prefix import score_each

    counts = [report_places(text).count for text in texts]
    return score_each(model, texts, counts, lambda text, logits: read_report(report_places(text), text.ids, logits))


def yes_margins(scores: Tensor, verdicts: YesNoTokens) -> Tensor:
    """From scores [..., spellings]: log p(yes) - log p(no), each summed over its spellings."""
    import torch

    yes, no = scores[..., : len(verdicts.yes)], scores[..., len(verdicts.yes) :]
    return torch.logsumexp(yes, dim=-1) - torch.logsumexp(no, dim=-1)
