"""Turn images, prompts and reports into the inputs of one forward pass; every prompt must have its image tokens.

A prompt has one image or several, whose placeholders stand before its text in their order.

Tokens of a batch are cached on the model's device: an attack repeats the same prompts with other pixels.
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
from cxrlab.models.tokenization import token_ids, without_breaks

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Samples = Sequence[Tensor | Sequence[Tensor]]  # one image or several per prompt

Side = Literal["left", "right"]
Answers = tuple[tuple[int, ...], ...]

_REPORTS = 1024  # cached reports
_BATCHES = 32  # cached batches: an attack on closed questions repeats a dozen of them in turn


@dataclass(frozen=True, eq=False)
class Encoded:
    """One batch for `model(**inputs)`.

    Args:
        inputs: Tensors by name, on the model's device.
        report_mask: [B, L] bool, True at tokens of the report, end token included.
        image_mask: [B, L] bool, True at image tokens, in raster order.
        places: Positions of the reports, if every row has one.
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
    """Encodes images and texts of a checkpoint.

    Attributes:
        report: Text → tokens of a report, end token last.
        text_inputs: (sizes of the images, prompts, reports, side) → an `Encoded` without pixels; cached, so do not
            modify its tensors.
        blank_inputs: (sizes of the images) → inputs from images of these sizes without their content: `pixel_values` is
            1 in images and 0 in padding, uint8; cached too.

    Args:
        path: The pixel path.
        image_token: Id of the token that the model replaces by an image feature.
        context: Most tokens that the model reads.
        vocabulary: Number of embeddings of the model, if known.
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
        self.report = lru_cache(_REPORTS)(lambda report: tuple(report_ids(processor, report)))
        # Tensors made in inference mode could not serve a backward pass.
        self.text_inputs = lru_cache(_BATCHES)(torch.inference_mode(False)(self._text_inputs))
        self.blank_inputs = lru_cache(_BATCHES)(torch.inference_mode(False)(self._blank_inputs))

    def _blank_inputs(self, sizes: tuple[Sizes, ...]) -> dict[str, Tensor]:
        import torch

        inputs: dict[str, Tensor] = self.path.inputs([[torch.full((1, *size), 0.7) for size in own] for own in sizes])
        pixels = inputs["pixel_values"]
        shown = (pixels != 0).flatten(-3).any(dim=-1)[..., None, None, None] if pixels.ndim > 3 else pixels[:1, :1] != 0
        return {**inputs, "pixel_values": shown.to(torch.uint8).expand(pixels.shape)}

    def encode(
        self,
        images: Samples,
        prompts: Sequence[str],
        answers: Sequence[Sequence[int]] | None = None,
        *,
        side: Side = "right",
    ) -> Encoded:
        """One batch, padded on one side.

        Args:
            images: One image or several per prompt, [1, H, W] or [3, H, W] each, see `as_images`; sizes may differ.
            prompts: Plain text.
            answers: Token ids of one answer per prompt; none for generation.
            side: Side of the padding: right for scoring, left for generation.
        """
        encoded = self._encode_text(images, prompts, answers, side)
        return replace(encoded, inputs={**encoded.inputs, **self._encode_pixels(images)})

    def encode_each(
        self, images: Samples, texts: Sequence[tuple[Sequence[str], Sequence[Sequence[int]] | None]]
    ) -> list[Encoded]:
        """Several batches of texts about the same images, padded on the right; all have the same pixel inputs.

        Args:
            texts: Prompts and answers of each batch, as for `encode`.
        """
        encoded = [self._encode_text(images, prompts, answers, "right") for prompts, answers in texts]
        pixels = self._encode_pixels(images)
        return [replace(text, inputs={**text.inputs, **pixels}) for text in encoded]

    def _encode_text(
        self, images: Samples, prompts: Sequence[str], answers: Sequence[Sequence[int]] | None, side: Side
    ) -> Encoded:
        from cxrlab.models.hf.pixels import nested

        if not images or len(images) != len(prompts):
            raise DataError(f"{len(images)} images came with {len(prompts)} prompts; every prompt needs its image.")
        reports: Answers = tuple(map(tuple, answers)) if answers is not None else ((),) * len(images)
        if len(reports) != len(images):
            raise DataError(f"{len(images)} images came with {len(reports)} reports; give one report per image.")
        sizes = tuple(map(sizes_of, nested(images)))
        encoded: Encoded = self.text_inputs(sizes, tuple(prompts), reports, side)
        return encoded

    def _encode_pixels(self, images: Samples) -> dict[str, Tensor]:
        import torch

        pixels = {
            name: tensor.to(self.device, self.dtype if tensor.is_floating_point() else None)
            for name, tensor in self.path.inputs(images).items()
        }
        if not pixels.get("pixel_values", torch.empty(0)).numel():
            raise DataError("the images gave no pixels for the model; every prompt needs its image.")
        return pixels

    def _text_inputs(self, sizes: tuple[Sizes, ...], prompts: tuple[str, ...], reports: Answers, side: Side) -> Encoded:
        tokens = [self.expander.prompt(prompt, each) for prompt, each in zip(prompts, sizes, strict=True)]
        if any(self.image_token in report for report in reports):
            raise DataError("a report contains the model's image token; remove it from the text.")
        rows = [[*prompt.ids, *report] for prompt, report in zip(tokens, reports, strict=True)]
        longest, image = max(
            (len(row), prompt.ids.count(self.image_token)) for row, prompt in zip(rows, tokens, strict=True)
        )
        if longest > self.context:
            raise ConfigError(
                f"image ({image} tokens), prompt and report have {longest} tokens and the model reads {self.context}; "
                "nothing is truncated, since image tokens would go first. Shorten the prompt or the report."
            )
        highest = max((token for row in rows for token in row if token != self.image_token), default=0)
        if self.vocabulary is not None and highest >= self.vocabulary:
            raise DataError(
                f"the tokenizer gives token {highest} and the model has {self.vocabulary} embeddings; they do not "
                "belong together: tokens were added without embeddings."
            )
        # Any padding token will do, since the attention mask hides it, except the image token, which is counted.
        tokenizer = self.processor.tokenizer
        named = (tokenizer.pad_token_id, tokenizer.eos_token_id, prompt_format(self.processor).end)
        pad = next(int(token) for token in named if token is not None and token != self.image_token)
        inputs = {
            "input_ids": _padded(rows, pad, side),
            "attention_mask": _padded([[1] * len(row) for row in rows], 0, side),
        }
        for name in tokens[0].kinds:
            after = self.family.report_token_type if name == "token_type_ids" else 0
            kinds = [[*prompt.kinds[name], *[after] * len(row)] for prompt, row in zip(tokens, reports, strict=True)]
            inputs[name] = _padded(kinds, 0, side)
        of_report = [[0] * len(prompt.ids) + [1] * len(row) for prompt, row in zip(tokens, reports, strict=True)]
        report_mask = _padded(of_report, 0, side).bool()
        scored = side == "right" and all(reports)
        places = ReportPositions.of(inputs["input_ids"], report_mask).to(self.device) if scored else None
        image_mask = inputs["input_ids"] == self.image_token
        inputs |= self.family.token_inputs(inputs["input_ids"], image_mask, inputs["attention_mask"])
        inputs = {name: tensor.to(self.device) for name, tensor in inputs.items()}
        return Encoded(inputs, report_mask.to(self.device), image_mask.to(self.device), places)


_UNLIMITED = 1 << 30  # context of a model whose config does not give it


def make_encoder(model: Any, processor: Any) -> Encoder:
    """The encoder of an open model on its device and in its precision; raises if an image cannot be placed."""
    from cxrlab.models.hf.pixels import pixel_path

    config = model.config
    # The config first: Gemma 3's processor calls another token by that name.
    names = ("image_token_id", "image_token_index")
    known = [getattr(source, name, None) for source in (config, processor) for name in names]
    image_token = next((token for token in known if isinstance(token, int)), None)
    if image_token is None:
        raise ConfigError(f"a '{config.model_type}' does not declare its image token, so images cannot be checked.")
    context = getattr(config.get_text_config(), "max_position_embeddings", None) or _UNLIMITED
    path = pixel_path(config.model_type, processor)
    embeddings = model.get_input_embeddings()
    vocabulary = embeddings.weight.shape[0] + getattr(embeddings, "num_additional_embeddings", 0)
    encoder = Encoder(processor, path, image_token, context, model.device, model.dtype, vocabulary)
    encoder.expander.image_tokens((PROBE,))  # raises now for a processor that cannot place an image
    return encoder


def _padded(rows: Sequence[Sequence[int]], value: int, side: Side) -> Tensor:
    """Rows of integers as a tensor [B, L]."""
    import torch

    longest = max(map(len, rows))
    out = torch.full((len(rows), longest), value, dtype=torch.long)
    for number, row in enumerate(rows):
        place = slice(longest - len(row), longest) if side == "left" else slice(0, len(row))
        out[number, place] = torch.tensor(row, dtype=torch.long)
    return out


_PER_TOKEN = ("token_type_ids", "mm_token_type_ids")  # processor outputs with one number per token
_TEXT = ("input_ids", "attention_mask", "labels")  # its other outputs for text
_PROMPTS = 512  # cached prompts: an attack repeats the same one hundreds of times
_SIZES = 4096  # cached image sizes
PROBE = (64, 64)  # height and width of a test image
_BLANKS = 4  # cached blank images: a large one takes hundreds of megabytes in some families

Size = tuple[int, int]  # height and width of an image
Sizes = tuple[Size, ...]  # of the images of one prompt


def sizes_of(study: Sequence[Tensor]) -> Sizes:
    """Height and width of each image [C, H, W] of a prompt."""
    return tuple((int(image.shape[-2]), int(image.shape[-1])) for image in study)


@dataclass(frozen=True)
class PromptTokens:
    """A prompt with its images: token ids, and the processor's token types."""

    ids: tuple[int, ...]
    kinds: Mapping[str, tuple[int, ...]]


class Expander:
    """Tokenizes prompts, with one image token per image feature.

    Attributes:
        prompt: (text, sizes of the images) → `PromptTokens`; `DataError` if the number of image tokens is wrong.
        image_tokens: Sizes of images → their number of image tokens.
        added_tokens: Sizes of images → their tokens beyond those of test images, marks of rows and columns included.
    """

    def __init__(self, processor: Any, image_token: int) -> None:
        self.processor, self.image_token = processor, image_token
        self.prompt = lru_cache(_PROMPTS)(self._prompt)
        self.image_tokens = lru_cache(_SIZES)(self._image_tokens)
        self.added_tokens = lru_cache(_SIZES)(self._added_tokens)
        self._blank = lru_cache(_BLANKS)(partial(_BlankImages, processor.image_processor))

    def _prompt(self, prompt: str, sizes: Sizes) -> PromptTokens:
        """Tokens of a prompt after images of these heights and widths."""
        found = self._expand(prompt, sizes)
        count = found.ids.count(self.image_token)
        if count == 0 or count != self.image_tokens(sizes):
            named = " and ".join(f"{height} × {width}" for height, width in sizes)
            raise DataError(
                f"a prompt has {count} image tokens, but an image of {named} pixels has {self.image_tokens(sizes)}. "
                "Remove special tokens from the prompt."
            )
        return found

    def length(self, prompt: str, sizes: Sizes) -> int:
        """Number of tokens of a prompt after images of these sizes; the images' own tokens are found once per sizes."""
        return len(self.prompt(prompt, (PROBE,) * len(sizes)).ids) + self.added_tokens(sizes)

    def _added_tokens(self, sizes: Sizes) -> int:
        probes = (PROBE,) * len(sizes)
        return len(self._expand("Findings", sizes).ids) - len(self._expand("Findings", probes).ids)

    def _image_tokens(self, sizes: Sizes) -> int:
        """Number of image tokens of images of these heights and widths."""
        return self._expand("Findings", sizes).ids.count(self.image_token)

    def _expand(self, prompt: str, sizes: Sizes) -> PromptTokens:
        text = prompt_text(self.processor, prompt, images=len(sizes))
        if find_family_of_processor(self.processor).image_text is not None:
            return self._tokens_alone(text)
        blank = self._blank(sizes)
        processor = copy.copy(self.processor)
        processor.image_processor = blank
        begin = self.processor.tokenizer.bos_token
        # If the chat template has written the begin token, the tokenizer must not add a second one.
        plain = {} if not begin or not text.startswith(begin) else {"add_special_tokens": False}
        try:
            processor.tokenizer, text = without_breaks(self.processor.tokenizer, text)
            out = processor(text=[text], images=blank.images if len(sizes) == 1 else [blank.images], **plain)
        except CxrlabError:
            raise
        except Exception as error:  # families raise different errors, whose messages may quote a patient's report
            raise DataError(
                f"{type(self.processor).__name__} cannot put an image into a prompt ({type(error).__name__}); "
                "check that its settings belong to this checkpoint."
            ) from error
        unknown = sorted(set(out) - {*_PER_TOKEN, *_TEXT, *blank.gives})
        if unknown:
            raise ConfigError(
                f"{type(self.processor).__name__} gives the unsupported output {', '.join(unknown)}; use a checkpoint "
                "of another family."
            )
        ids = tuple(int(token) for token in out["input_ids"][0])
        kinds = {name: tuple(int(kind) for kind in out[name][0]) for name in _PER_TOKEN if name in out}
        return PromptTokens(ids, kinds)

    def _tokens_alone(self, text: str) -> PromptTokens:
        """Tokens of a text that has the tokens of its image already."""
        begin = self.processor.tokenizer.bos_token or ""
        whole = begin + text.removeprefix(begin)
        (ids,) = token_ids(self.processor.tokenizer, [whole], add_special_tokens=False)
        return PromptTokens(tuple(ids), {})


class _BlankImages:
    """Replaces an image processor by its cached output for the blank images of one prompt."""

    def __init__(self, image_processor: Any, sizes: Sizes) -> None:
        from PIL import Image

        self.true, self.images = image_processor, [Image.new("RGB", (width, height)) for height, width in sizes]
        self._given: dict[str, Any] | None = None

    def __call__(self, images: Any, **settings: Any) -> Any:
        from transformers import BatchFeature

        if self._given is None:
            try:
                self._given = dict(self.true(images, **settings))
            except ValueError as error:  # families have limits, such as on the aspect ratio
                named = " and ".join(f"{image.height} × {image.width}" for image in self.images)
                raise DataError(
                    f"this model accepts no image of {named} pixels ({first_line(error)}); crop it, "
                    "or change the settings of its image processor."
                ) from error
        return BatchFeature(dict(self._given))  # a copy: some processors remove keys from it

    @property
    def gives(self) -> frozenset[str]:
        """Names of the image processor's outputs."""
        return frozenset(self._given or ())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.true, name)


_SLACK = 1e-4  # a resampled or perturbed image may leave [0, 1] by a rounding error


def as_images(images: Any, device: torch.device) -> list[Tensor]:
    """Images as tensors [1, H, W] or [3, H, W] float32 in [0, 1] on the device; differentiable.

    Args:
        images: Tensor [B, H, W] or [B, 3, H, W], array [B, H, W] or [B, H, W, 3], or a sequence of arrays [H, W] or
            [H, W, 3] and tensors [H, W] or [3, H, W].

    Raises:
        DataError: For anything that is not an image in [0, 1].
    """
    import numpy as np
    import torch

    stacked = isinstance(images, (torch.Tensor, np.ndarray))
    if isinstance(images, str) or not (stacked or isinstance(images, Sequence)):
        raise DataError(f"images must be a sequence of arrays or a tensor [B, H, W], not {_named(images)}.")
    if stacked and images.ndim not in (3, 4):
        raise DataError(f"images have the shape {list(images.shape)}; give [B, H, W] or, with colours, [B, 3, H, W].")
    one_piece = isinstance(images, torch.Tensor) and images.is_floating_point()
    if one_piece:
        images = images.to(device=device, dtype=torch.float32)
    radiographs: list[Tensor] = []
    for number, image in enumerate(images):
        if isinstance(image, torch.Tensor):
            tensor = image
        elif isinstance(image, np.ndarray):
            if image.dtype.kind not in "fiubc":
                raise DataError(
                    f"image {number} holds {image.dtype}, not numbers; scale it to float32 in [0, 1] first."
                )
            # A copy: an array may be read-only, have negative strides or another byte order.
            tensor = torch.from_numpy(np.array(image, np.float32 if image.dtype.kind == "f" else None))
            tensor = tensor.permute(2, 0, 1) if tensor.ndim == 3 else tensor
        else:
            raise DataError(f"image {number} is {_named(image)}, not an array or tensor; every prompt needs its image.")
        if not tensor.is_floating_point():
            raise DataError(f"image {number} holds {tensor.dtype}; scale it to float32 in [0, 1] first.")
        tensor = tensor[None] if tensor.ndim == 2 else tensor
        if tensor.ndim != 3 or tensor.shape[0] not in (1, 3) or 0 in tensor.shape:
            raise DataError(
                f"image {number} has the shape {list(image.shape)}; an array is [H, W] or [H, W, 3], "
                "a tensor [H, W] or [3, H, W]."
            )
        radiographs.append(tensor.to(device=device, dtype=torch.float32))
    if radiographs:
        rows = [images.flatten(1)] if one_piece else [image.reshape(1, -1) for image in radiographs]
        with torch.no_grad():  # one transfer from the GPU for all images
            ends = torch.cat([torch.stack([part.amin(dim=1), part.amax(dim=1)], dim=1) for part in rows]).cpu()
        for number, (low, high) in enumerate(ends.tolist()):
            if not (low >= -_SLACK and high <= 1 + _SLACK):  # NaN fails both
                raise DataError(f"image {number} holds values from {low:g} to {high:g}; pixels must be in [0, 1].")
    return radiographs


def _named(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
