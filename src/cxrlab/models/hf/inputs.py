"""Images, prompts and reports into the inputs of one forward pass.

Tokens come from `expansion.py`, pixels from the differentiable path of `pixels.py`. Image tokens are counted on the
way: no pass can run without an image. The words of a batch are kept on the model's device: an attack asks the same ones
tens of times with other pixels, and only those are then made anew.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.models.hf.families import find_family_of_processor
from cxrlab.models.hf.prompting import prompt_format, prompt_text, report_ids
from cxrlab.models.hf.scoring import ReportPositions
from cxrlab.models.local_files import first_line
from cxrlab.models.tokenization import without_breaks

if TYPE_CHECKING:
    import torch
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
    places: ReportPositions | None = None

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
        self.family = find_family_of_processor(processor)
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
            after = self.family.report_token_type if name == "token_type_ids" else 0
            kinds = [[*prompt.kinds[name], *[after] * len(answer)] for prompt, answer in zip(asked, told, strict=True)]
            inputs[name] = _padded(kinds, 0, side)
        report = [[0] * len(prompt.ids) + [1] * len(answer) for prompt, answer in zip(asked, told, strict=True)]
        report_mask = _padded(report, 0, side).bool()
        scored = side == "right" and all(told)
        places = ReportPositions.of(inputs["input_ids"], report_mask).to(self.device) if scored else None
        inputs = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        return Encoded(inputs, report_mask.to(self.device), inputs["input_ids"] == self.image_token, places)

    @property
    def _pad(self) -> int:
        """Any token does: the attention mask hides it. Never that of the image, which is counted."""
        tokenizer = self.processor.tokenizer
        named = (tokenizer.pad_token_id, tokenizer.eos_token_id, prompt_format(self.processor).end)
        return next(int(token) for token in named if token is not None and token != self.image_token)

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


# Of a processor's output: one number a token, to be padded beside the ids.
_PER_TOKEN = ("token_type_ids", "mm_token_type_ids")
# What else is known: the ids themselves, and what is made anew for a batch.
_TEXT = ("input_ids", "attention_mask", "labels")
_PROMPTS = 512  # whose tokens are remembered: an attack asks the same one hundreds of times
_SIZES = 4096  # of images whose number of tokens is remembered
_BLANKS = 4  # blank images that are kept: one of a large image takes hundreds of megabytes in some families

Size = tuple[int, int]  # height and width of an image


@dataclass(frozen=True)
class PromptTokens:
    """A prompt with its image: ids, and what else the processor gives for each token."""

    ids: tuple[int, ...]
    kinds: Mapping[str, tuple[int, ...]]


class Expander:
    """Prompts into tokens, with as many image tokens as an image of its size has features.

    Attributes:
        prompt: (words, size of the image) → `PromptTokens`; a `DataError` where they came out without the image.
        image_tokens: Size of an image → its image tokens.

    Args:
        processor: Of the checkpoint.
        image_token: Id of the token at which the model puts a feature of the image.
    """

    def __init__(self, processor: Any, image_token: int) -> None:
        self.processor, self.image_token = processor, image_token
        # Kept by Python's own cache, which threads may share.
        self.prompt = lru_cache(_PROMPTS)(self._prompt)
        self.image_tokens = lru_cache(_SIZES)(self._image_tokens)
        self._blank = lru_cache(_BLANKS)(partial(_BlankImage, processor.image_processor))

    def _prompt(self, prompt: str, size: Size) -> PromptTokens:
        """Tokens of a prompt in front of which stands an image of this height and width."""
        found = self._expand(prompt, size)
        count = found.ids.count(self.image_token)
        if count == 0 or count != self.image_tokens(size):
            raise DataError(
                f"a prompt came out with {count} image tokens where an image of {size[0]} × {size[1]} pixels has "
                f"{self.image_tokens(size)}; the model would not see the image as it is. Take special tokens out of it."
            )
        return found

    def _image_tokens(self, size: Size) -> int:
        """Image tokens of an image of this height and width, when nothing is asked beside it."""
        return self._expand("Findings", size).ids.count(self.image_token)

    def _expand(self, prompt: str, size: Size) -> PromptTokens:
        text = prompt_text(self.processor, prompt)
        blank = self._blank(size)
        deputy = copy.copy(self.processor)
        deputy.image_processor = blank
        begin = self.processor.tokenizer.bos_token
        # A chat template writes the begin token itself; the tokenizer would write a second one.
        plain = {} if not begin or not text.startswith(begin) else {"add_special_tokens": False}
        try:
            deputy.tokenizer, text = without_breaks(self.processor.tokenizer, text)
            out = deputy(text=[text], images=[blank.image], **plain)
        except CxrlabError:
            raise
        except Exception as error:  # each family complains in its own way; what it says may hold a patient's words
            raise DataError(
                f"{type(self.processor).__name__} cannot put an image into a prompt ({type(error).__name__}); "
                "see that its settings belong to this checkpoint."
            ) from error
        unknown = sorted(set(out) - {*_PER_TOKEN, *_TEXT, *blank.gives})
        if unknown:
            raise ConfigError(
                f"{type(self.processor).__name__} gives {', '.join(unknown)} beside tokens and pixels, which is not "
                "handled here; name a checkpoint of another family."
            )
        ids = tuple(int(token) for token in out["input_ids"][0])
        kinds = {name: tuple(int(kind) for kind in out[name][0]) for name in _PER_TOKEN if name in out}
        return PromptTokens(ids, kinds)


class _BlankImage:
    """Stands in for an image processor: gives what the true one gave for a blank image of this size."""

    def __init__(self, image_processor: Any, size: Size) -> None:
        from PIL import Image

        self.true, self.image = image_processor, Image.new("RGB", (size[1], size[0]))
        self._given: dict[str, Any] | None = None

    def __call__(self, images: Any, **settings: Any) -> Any:
        from transformers import BatchFeature

        if self._given is None:
            try:
                self._given = dict(self.true(images, **settings))
            except ValueError as error:  # families have their own limits, such as how thin an image may be
                width, height = self.image.size
                raise DataError(
                    f"this model takes no image of {height} × {width} pixels ({first_line(error)}); crop it, "
                    "or mend the settings of its image processor."
                ) from error
        return BatchFeature(dict(self._given))  # a fresh one: some processors take keys out of it

    @property
    def gives(self) -> frozenset[str]:
        """Names of what the true one gave."""
        return frozenset(self._given or ())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.true, name)


_SLACK = 1e-4  # a resampled or perturbed image may leave [0, 1] by rounding


def as_images(images: Any, device: torch.device) -> list[Tensor]:
    """One tensor an image, [1, H, W] or [3, H, W] float32 in [0, 1] on the device; gradients flow through.

    Args:
        images: Tensor [B, H, W] or [B, 3, H, W], array [B, H, W] or [B, H, W, 3], or a sequence of arrays [H, W] or
            [H, W, 3] and tensors [H, W] or [3, H, W].
        device: Where they go.

    Raises:
        DataError: When there is no image, or one that is not a picture in [0, 1].
    """
    import numpy as np
    import torch

    stacked = isinstance(images, (torch.Tensor, np.ndarray))
    if isinstance(images, str) or not (stacked or isinstance(images, Sequence)):
        raise DataError(f"images must be a sequence of arrays or a tensor [B, H, W], not {_named(images)}.")
    if stacked and images.ndim not in (3, 4):
        raise DataError(f"images in one piece must be [B, H, W], with colours [B, 3, H, W], not {list(images.shape)}.")
    one_piece = isinstance(images, torch.Tensor) and images.is_floating_point()
    if one_piece:
        images = images.to(device=device, dtype=torch.float32)
    radiographs = [_image(image, number, device) for number, image in enumerate(images)]
    if radiographs:
        _check_range([images.flatten(1)] if one_piece else [radiograph.reshape(1, -1) for radiograph in radiographs])
    return radiographs


def _image(image: Any, number: int, device: torch.device) -> Tensor:
    import numpy as np
    import torch

    if isinstance(image, torch.Tensor):
        radiograph = image
    elif isinstance(image, np.ndarray):
        if image.dtype.kind not in "fiubc":
            raise DataError(f"image {number} holds {image.dtype}, not numbers; scale it to float32 in [0, 1] first.")
        # A copy: an array may be read-only, turned around, or of another byte order.
        radiograph = torch.from_numpy(np.array(image, np.float32 if image.dtype.kind == "f" else None))
        radiograph = radiograph.permute(2, 0, 1) if radiograph.ndim == 3 else radiograph
    else:
        raise DataError(
            f"image {number} is {_named(image)}, not an array or tensor; no model is asked without an image."
        )
    if not radiograph.is_floating_point():
        raise DataError(f"image {number} holds {radiograph.dtype}; scale it to float32 in [0, 1] first.")
    radiograph = radiograph[None] if radiograph.ndim == 2 else radiograph
    if radiograph.ndim != 3 or radiograph.shape[0] not in (1, 3) or 0 in radiograph.shape:
        raise DataError(
            f"image {number} has the shape {list(image.shape)}; an array is [H, W] or [H, W, 3], "
            "a tensor [H, W] or [3, H, W]."
        )
    return radiograph.to(device=device, dtype=torch.float32)


def _check_range(rows: list[Tensor]) -> None:
    """One look at all images, so that a GPU is asked once.

    Args:
        rows: [images, pixels], all of them in one piece or in several.
    """
    import torch

    with torch.no_grad():
        ends = torch.cat([torch.stack([part.amin(dim=1), part.amax(dim=1)], dim=1) for part in rows]).cpu()
    for number, (low, high) in enumerate(ends.tolist()):
        if not (low >= -_SLACK and high <= 1 + _SLACK):  # not a number fails both
            raise DataError(f"image {number} holds values from {low:g} to {high:g}; pixels must be in [0, 1].")


def _named(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
