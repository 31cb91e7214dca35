"""Images, prompts and reports into the inputs of one forward pass.

Tokens come from `expansion.py`, pixels from the differentiable path of `pixels.py`. Image tokens are counted on the
way: no pass can run without an image. The words of a batch are kept on the model's device: an attack asks the same ones
tens of times with other pixels, and only those are then made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.expansion import Expander, PromptTokens, Size
from cxrlab.models.hf.places import ReportPlaces
from cxrlab.models.hf.prompting import form_of, report_ids

if TYPE_CHECKING:
    from torch import Tensor

Side = Literal["left", "right"]
Answers = tuple[tuple[int, ...], ...]

_REPORTS = 1024  # whose tokens are remembered
_BATCHES = 32  # whose words are remembered: an attack on closed answers asks a dozen questions in turn


@dataclass(frozen=True, eq=False)
class Encoded:
    """One batch for `model(**inputs)`.

    Args:
        inputs: Tensors by name, on the model's device.
        report_mask: [B, L] bool, True at the report's own tokens, end token included.
        image_mask: [B, L] bool, True where a feature of the image stands, in raster order.
        places: Where the reports stand, when that is known already and every row has one.
    """

    inputs: dict[str, Tensor]
    report_mask: Tensor
    image_mask: Tensor
    places: ReportPlaces | None = None

    @property
    def ids(self) -> Tensor:
        """Token ids [B, L]."""
        return self.inputs["input_ids"]


class Encoder:
    """Everything between a caller's images and words and one forward pass.

    Attributes:
        report: Text → tokens of a report, end token last.
        words: (sizes of the images, prompts, answers, side) → an `Encoded` without pixels; its tensors are shared by
            all who ask, so nobody may write into them.

    Args:
        processor: Of the checkpoint.
        path: The pixel path.
        image_token: Id of the token at which the model puts a feature of the image.
        context: Most tokens that the model reads.
        device: Where tensors go.
        dtype: Of the model's weights.
        vocabulary: Tokens that the model has an embedding for; None where that is not known.
    """

    def __init__(
        self,
        processor: Any,
        path: Any,
        image_token: int,
        context: int,
        device: Any,
        dtype: Any,
        vocabulary: int | None = None,
    ) -> None:
        import torch

        self.processor, self.path, self.context, self.vocabulary = processor, path, context, vocabulary
        self.device, self.dtype, self.image_token = device, dtype, image_token
        self.expander = Expander(processor, image_token)
        self.report = lru_cache(_REPORTS)(self._report)
        # What is made in inference mode could never serve a backward pass.
        self.words = lru_cache(_BATCHES)(torch.inference_mode(False)(self._words))

    def encode(
        self,
        images: Sequence[Tensor],
        prompts: Sequence[str],
        answers: Sequence[Sequence[int]] | None = None,
        *,
        side: Side = "right",
    ) -> Encoded:
        """One batch, padded on one side.

        Args:
            images: [1, H, W] or [3, H, W] each, see `images.as_images`; sizes may differ.
            prompts: One an image, plain words.
            answers: Token ids of one answer an image; none for generation.
            side: Where the padding stands: right for scoring, left for generation.
        """
        import torch

        if not images or len(images) != len(prompts):
            raise DataError(f"{len(images)} images came with {len(prompts)} prompts; every prompt needs its image.")
        told: Answers = tuple(map(tuple, answers)) if answers is not None else ((),) * len(images)
        if len(told) != len(images):
            raise DataError(f"{len(images)} images came with {len(told)} reports; give one report an image.")
        words = self.words(tuple(map(_size, images)), tuple(prompts), told, side)
        pixels = {name: self._cast(tensor) for name, tensor in self.path.inputs(list(images)).items()}
        if not pixels.get("pixel_values", torch.empty(0)).numel():
            raise DataError("the images gave no pixels for the model; a model is never asked without an image.")
        return replace(words, inputs={**words.inputs, **pixels})

    def _report(self, report: str) -> tuple[int, ...]:
        return tuple(report_ids(self.processor, report))

    def _words(self, sizes: tuple[Size, ...], prompts: tuple[str, ...], told: Answers, side: Side) -> Encoded:
        asked = [self.expander.prompt(prompt, size) for prompt, size in zip(prompts, sizes, strict=True)]
        if any(self.image_token in answer for answer in told):
            raise DataError("a report holds the token that stands for an image; take it out of the text.")
        self._check_length(asked, told)
        rows = [[*prompt.ids, *answer] for prompt, answer in zip(asked, told, strict=True)]
        self._check_known(rows)
        inputs = {
            "input_ids": _padded(rows, self._pad, side),
            "attention_mask": _padded([[1] * len(row) for row in rows], 0, side),
        }
        for name in asked[0].kinds:
            after = self._kind_of_report(name)
            kinds = [[*prompt.kinds[name], *[after] * len(answer)] for prompt, answer in zip(asked, told, strict=True)]
            inputs[name] = _padded(kinds, 0, side)
        report = [[0] * len(prompt.ids) + [1] * len(answer) for prompt, answer in zip(asked, told, strict=True)]
        report_mask = _padded(report, 0, side).bool()
        scored = side == "right" and all(told)
        places = ReportPlaces.of(inputs["input_ids"], report_mask).to(self.device) if scored else None
        inputs = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        return Encoded(inputs, report_mask.to(self.device), inputs["input_ids"] == self.image_token, places)

    @property
    def _pad(self) -> int:
        """Any token does: the attention mask hides it. Never that of the image, which is counted."""
        tokenizer = self.processor.tokenizer
        named = (tokenizer.pad_token_id, tokenizer.eos_token_id, form_of(self.processor).end)
        return next(int(token) for token in named if token is not None and token != self.image_token)

    def _kind_of_report(self, name: str) -> int:
        """PaliGemma reads prompt tokens (0) in both directions and a report (1) in one; elsewhere 0 is text."""
        return int(name == "token_type_ids" and type(self.processor).__name__ == "PaliGemmaProcessor")

    def _cast(self, tensor: Tensor) -> Tensor:
        """To the device; pixels into the precision of the weights."""
        return tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)

    def _check_known(self, rows: Sequence[Sequence[int]]) -> None:
        highest = max((token for row in rows for token in row if token != self.image_token), default=0)
        if self.vocabulary is not None and highest >= self.vocabulary:
            raise DataError(
                f"the tokenizer writes token {highest} and the model knows {self.vocabulary}; they do not belong "
                "together: tokens were added and the model's embeddings were not."
            )

    def _check_length(self, asked: Sequence[PromptTokens], told: Sequence[Sequence[int]]) -> None:
        longest, image = max(
            (len(prompt.ids) + len(answer), prompt.ids.count(self.image_token))
            for prompt, answer in zip(asked, told, strict=True)
        )
        if longest > self.context:
            raise ConfigError(
                f"image ({image} tokens), prompt and report come to {longest} tokens and the model reads {self.context}; "
                "nothing is cut off, since image tokens would go first. Shorten the prompt or the report."
            )


def _size(image: Tensor) -> tuple[int, int]:
    return int(image.shape[-2]), int(image.shape[-1])


def _padded(rows: Sequence[Sequence[int]], value: int, side: Side) -> Tensor:
    """[B, L] of whole numbers."""
    import torch

    longest = max(map(len, rows))
    out = torch.full((len(rows), longest), value, dtype=torch.long)
    for number, row in enumerate(rows):
        place = slice(longest - len(row), longest) if side == "left" else slice(0, len(row))
        out[number, place] = torch.tensor(row, dtype=torch.long)
    return out
