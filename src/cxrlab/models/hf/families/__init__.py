"""Differences between Hugging Face model families. To add one, write `families/NAME.py`; no other file changes.

The new file holds a subclass of `Family`, whose docstring lists what a family declares. Copy the nearest one:

    llava.py        one image size, one token per patch (the simplest; start here)
    gemma3.py       one image size, patches pooled into fewer tokens
    paligemma.py    a text format of its own, no chat template
    qwen_vl.py      as many patches as the image is large
    llava_next.py   the whole image and tiles of it
    idefics.py      tiles with a mask over their padding
    internvl.py     tiles in the grid nearest to the image's shape
    idefics1.py     cross-attention to images, text made without the processor
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.models.hf.pixels import PixelPath

_REMEDY = "Use --maps gradient instead, which needs no grid."


class FeatureSource(Enum):
    """Where the features of a frozen vision encoder are recorded."""

    OUTPUT = "output of the vision encoder"
    PROJECTOR = "input of the projector inside the vision encoder, after its `blocks`"


class Family:
    """A family of image-text-to-text models; the base class itself stands for an undeclared family.

    An undeclared family still generates and scores reports: transformers loads the model, and its own image processor
    prepares the pixels (in 8 bits, without gradients, unless `pixels.Plain` reproduces the steps). A declaration adds
    what the checkpoint does not show:

    1. `model_types`: the family's names in config.json. Required.
    2. `pixel_paths`: how an image becomes the model's input, differentiably: class of the image processor (without its
       ending Pil or Fast) → `PixelPath`. Write a path only if the image processor does something else than resize,
       centre crop and normalise. Every path is compared with the image processor when a model is loaded. A path also
       names `unused_outputs` of the image processor that the model does not take.
    3. `has_grid` and `grid_shape`: where the image tokens lie on the image, for attention maps. A family that cuts
       images into tiles leaves `has_grid` off and gives the reason in `no_grid_reason`.
    4. `language_model`, `vision_encoder`, `projector`: names of the parts inside the model, for adapters and freezing.
    5. `is_causal`: no token, image tokens included, attends to a later one, and positions count from the left. Padding
       on the right then needs no attention mask, which the fastest kernels do not accept.
    6. `static_cache`: a token after the prompt depends on cache, attention mask and position alone, so that generation may
       use a cache of fixed size (`models/hf/static_cache.py`) and read a batch in parts.
    7. `several_images`: off for a family that takes one image per prompt.
    8. `processors`, `image_suffix`, `prompt_separator`, `report_token_type`: only for a family without a chat template
       whose text has another form than `<image>`, line break, prompt, space, report.
    9. `image_text` and `token_inputs`: only for a family with cross-attention to its images.
    10. `prepare_training`: only where transformers cannot train the family in mixed precision as it is.
    11. `feature_source`, `used_layers`: what the projector takes of a frozen vision encoder, which training then computes
       once per image. Without it the encoder runs at every step.

    `tests/helpers/tiny_families.py` builds a tiny checkpoint of each family; a row there runs all tests of families.

    Attributes:
        no_grid_reason: Why there is no grid, as the rest of a sentence about the family.
        processors: Class names of processors whose text format the next three attributes describe.
        image_suffix: Text after the image token.
        prompt_separator: Text between prompt and report.
        report_token_type: Token type of a report, if the processor gives token types.
        image_text: Text of an image, if the tokenizer alone turns it into tokens, without the processor.
        several_images: Whether a prompt may have several images.
        feature_source: What can be cached of a frozen vision encoder; None if the language model takes more of it.
        same_among_several: Whether an image is prepared alike alone and among several images of a prompt.
    """

    model_types: ClassVar[tuple[str, ...]] = ()
    pixel_paths: ClassVar[Mapping[str, type[PixelPath]]] = MappingProxyType({})
    has_grid: ClassVar[bool] = False
    no_grid_reason: ClassVar[str] = "does not declare which part of an image each image token stands for"
    language_model: ClassVar[str] = "model.language_model"
    vision_encoder: ClassVar[str] = "model.vision_tower"
    projector: ClassVar[str] = "model.multi_modal_projector"
    is_causal: ClassVar[bool] = False
    static_cache: ClassVar[bool] = False
    processors: ClassVar[tuple[str, ...]] = ()
    image_suffix: ClassVar[str] = "\n"
    prompt_separator: ClassVar[str] = " "
    report_token_type: ClassVar[int] = 0
    several_images: ClassVar[bool] = True
    image_text: ClassVar[str | None] = None
    feature_source: ClassVar[FeatureSource | None] = None
    same_among_several: ClassVar[bool] = True

    def used_layers(self, config: Any) -> tuple[int, ...] | None:
        """The layers of the vision encoder whose hidden states the projector takes; None for its output alone."""
        chosen = getattr(config, "vision_feature_layer", None)
        return chosen if chosen is None else (chosen,) if isinstance(chosen, int) else tuple(chosen)

    def token_inputs(self, ids: Tensor, is_image: Tensor, is_text: Tensor) -> dict[str, Tensor]:
        """Further model inputs that follow from the tokens; by default none.

        Args:
            ids: Token ids [B, L], padded on one side.
            is_image: [B, L], whether a token is the image token.
            is_text: [B, L], 0 at padding.
        """
        return {}

    def prepare_training(self, model: Any) -> None:
        """Changes to a model that its training needs; by default none."""

    def grid_shape(self, config: Any, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """Rows and columns of the image tokens; by default one per patch of the vision encoder.

        Args:
            config: Of the model.
            inputs: Model inputs of one image.

        Raises:
            ConfigError: If this image has several grids.
        """
        pixels, patch = inputs["pixel_values"], int(config.vision_config.patch_size)
        if pixels.shape[0] != 1:
            raise ConfigError(f"this image became {pixels.shape[0]} tiles, so there is no single grid. {_REMEDY}")
        return int(pixels.shape[-2]) // patch, int(pixels.shape[-1]) // patch

    def visible_part(self, image_processor: Any, height: int, width: int) -> tuple[float, float, float, float]:
        """Top, left, height and width of the part of an image that the model sees, in pixels of the image.

        By the resizing, padding and centre crop of the image processor; negative if it pads.
        """
        size = _sides(getattr(image_processor, "size", None))
        if getattr(image_processor, "do_pad", False):
            side = float(max(height, width))
            return (height - side) / 2, (width - side) / 2, side, side
        if not getattr(image_processor, "do_resize", True):
            scale_y = scale_x = 1.0
        elif "shortest_edge" in size:
            scale_y = scale_x = size["shortest_edge"] / min(height, width)
        else:
            scale_y, scale_x = size["height"] / height, size["width"] / width
        if not getattr(image_processor, "do_center_crop", False):
            return 0.0, 0.0, float(height), float(width)
        crop = _sides(image_processor.crop_size)
        seen_y, seen_x = crop["height"] / scale_y, crop["width"] / scale_x
        return (height - seen_y) / 2, (width - seen_x) / 2, seen_y, seen_x


def _sides(size: Any) -> dict[str, int]:
    """The sides that are set, from a mapping or an object."""
    names = ("height", "width", "shortest_edge")
    found = {name: size.get(name) if isinstance(size, Mapping) else getattr(size, name, None) for name in names}
    return {name: int(value) for name, value in found.items() if value}


@cache
def all_families() -> tuple[Family, ...]:
    """One instance per family in this folder."""
    modules = [import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return tuple(kind() for kind in dict.fromkeys(classes) if issubclass(kind, Family) and kind.model_types)


def find_family(model_type: str) -> Family:
    """The family of a `model_type` in config.json, or the base class."""
    return next((family for family in all_families() if model_type in family.model_types), Family())


def find_family_of_processor(processor: Any) -> Family:
    """The family that declares the text format of a processor, or the base class."""
    name = type(processor).__name__
    return next((family for family in all_families() if name in family.processors), Family())


def find_pixel_path(image_processor_class: str) -> type[PixelPath] | None:
    """The declared pixel path of an image processor's class name, given without its ending Pil or Fast."""
    paths = (family.pixel_paths.get(image_processor_class) for family in all_families())
    return next((path for path in paths if path is not None), None)


@dataclass(frozen=True)
class Grid:
    """Image tokens as cells of a grid, row by row.

    Args:
        top: Upper edge of the grid in pixels of the image, as are the next three; negative if the model pads there.
    """

    rows: int
    columns: int
    top: float
    left: float
    height: float
    width: float

    @property
    def half_cell(self) -> float:
        """Half the longer side of a cell, in pixels of the image."""
        return max(self.height / self.rows, self.width / self.columns) / 2

    def cells(self, height: int, width: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The grid row of each pixel row [height], and the grid column of each pixel column [width]; -1 outside."""
        found = []
        for pixels, start, length, cells in self._axes(height, width):
            at = (np.arange(pixels) + 0.5 - start) / length * cells
            found.append(np.where((at >= 0) & (at < cells), np.floor(at), -1).astype(np.intp))
        return found[0], found[1]

    def paint(self, values: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
        """A map [rows, columns] over an image [height, width], bilinear between cell centres, 0 outside."""
        if values.shape != (self.rows, self.columns):
            raise ValueError(f"a map of {values.shape} does not fit a grid of {self.rows} x {self.columns}")
        matrices = []
        for pixels, start, length, cells in self._axes(height, width):
            at = (np.arange(pixels) + 0.5 - start) / length * cells
            inside = (at >= 0) & (at < cells)
            at = np.clip(at - 0.5, 0.0, cells - 1.0)
            low = np.floor(at).astype(np.intp)
            weights = np.zeros((pixels, cells))
            weights[np.arange(pixels), low] += 1.0 - (at - low)
            weights[np.arange(pixels), np.minimum(low + 1, cells - 1)] += at - low
            weights[~inside] = 0.0
            matrices.append(weights)
        down, across = matrices
        painted: NDArray[np.float32] = (down @ values.astype(np.float64) @ across.T).astype(np.float32)
        return painted

    def _axes(self, height: int, width: int) -> tuple[tuple[int, float, float, int], tuple[int, float, float, int]]:
        """Pixels of the image, start, length and cells of the grid: vertically, then horizontally."""
        return (height, self.top, self.height, self.rows), (width, self.left, self.width, self.columns)


def token_grid(
    config: Any, image_processor: Any, inputs: Mapping[str, Any], tokens: int, height: int, width: int
) -> tuple[Grid, int]:
    """The grid of one image, and the number of image tokens before it (a class token).

    Args:
        config: Of the model.
        inputs: Model inputs of this image.
        tokens: Number of image tokens.
        height: Of the image in pixels, like the width.

    Raises:
        ConfigError: If the tokens are no single grid.
    """
    model_type = str(config.model_type)
    family = find_family(model_type)
    if not family.has_grid:
        raise ConfigError(
            f"a model of the family '{model_type}' {family.no_grid_reason}, so there is no single grid. {_REMEDY}"
        )
    rows, columns = family.grid_shape(config, inputs)
    class_tokens = 1 if getattr(config, "vision_feature_select_strategy", "default") == "full" else 0
    if rows * columns + class_tokens != tokens:
        raise ConfigError(f"the image has {tokens} image tokens, which do not fill {rows} x {columns} cells. {_REMEDY}")
    return Grid(rows, columns, *family.visible_part(image_processor, height, width)), class_tokens
