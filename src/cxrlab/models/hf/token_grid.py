"""Which part of an image each image token stands for.

A model that cuts the whole image (or one crop of it) into one raster of patches has a grid; a model that
sees several tiles, or that mixes patches into a few summary tokens, has none, and no attention map of it
could be laid over the image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError

Array = NDArray[np.float32]

_QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
_PLAIN = ("llava", "vipllava", "paligemma", "gemma3")
_TILES = ("llava_next", "llava_onevision", "idefics3", "smolvlm", "internvl")
_REMEDY = "Ask for maps=gradient instead, which need no grid."


@dataclass(frozen=True)
class Grid:
    """Image tokens as cells of a raster over a part of the image, row by row.

    Args:
        rows: Cells from top to bottom.
        columns: Cells from left to right.
        top: Upper edge of the raster in pixels of the image; negative where the model pads above the image.
        left: Left edge, likewise.
        height: Of the raster, in pixels of the image.
        width: Likewise.
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
        """The row of cells of each pixel row [height], the column of each pixel column [width]; -1 outside."""
        return (
            _cells(height, self.top, self.height, self.rows),
            _cells(width, self.left, self.width, self.columns),
        )

    def paint(self, values: Array, height: int, width: int) -> Array:
        """A map [rows, columns] over an image [height, width], bilinear between the middles of cells, 0 outside."""
        if values.shape != (self.rows, self.columns):
            raise ValueError(f"a map of {values.shape} does not fit a grid of {self.rows} x {self.columns}")
        down = _weights(height, self.top, self.height, self.rows)
        across = _weights(width, self.left, self.width, self.columns)
        painted: Array = (down @ values.astype(np.float64) @ across.T).astype(np.float32)
        return painted


def has_grid(family: str) -> bool:
    """Whether models of this family may see an image as one raster; a setting or an image may still prevent it."""
    return family in _QWEN or family in _PLAIN


def token_grid(
    config: Any, image_processor: Any, inputs: Mapping[str, Any], tokens: int, height: int, width: int
) -> tuple[Grid, int]:
    """The grid of one image, and how many image tokens stand before it (a class token that was kept).

    Args:
        config: Of the model, with `model_type` and `vision_config`.
        image_processor: Of the model; its settings say what is cropped or padded.
        inputs: What the model was given for this image, `pixel_values` among it.
        tokens: Image tokens of the image.
        height: Of the image, in pixels.
        width: Likewise.

    Raises:
        ConfigError: Where the tokens are not one raster.
    """
    family = str(config.model_type)
    if family in _QWEN:
        merge = int(config.vision_config.spatial_merge_size)
        frames, rows, columns = (int(side) for side in inputs["image_grid_thw"][0])
        if frames != 1:
            raise ConfigError(f"this image became {frames} frames, so that its tokens are not one grid. {_REMEDY}")
        return _fitting(Grid(rows // merge, columns // merge, 0.0, 0.0, height, width), tokens, 0)
    if not has_grid(family):
        why = (
            "cuts an image into several tiles"
            if family in _TILES
            else "does not tell which part of an image each image token stands for"
        )
        raise ConfigError(f"a model of the family '{family}' {why}, so that there is no single grid. {_REMEDY}")
    pixels = inputs["pixel_values"]
    if pixels.shape[0] != 1:
        raise ConfigError(f"this image became {pixels.shape[0]} tiles, so that there is no single grid. {_REMEDY}")
    if family == "gemma3":  # patches are pooled into a square of fixed size
        rows = columns = round(float(config.mm_tokens_per_image) ** 0.5)
    else:
        patch = int(config.vision_config.patch_size)
        rows, columns = int(pixels.shape[-2]) // patch, int(pixels.shape[-1]) // patch
    kept = 1 if getattr(config, "vision_feature_select_strategy", "default") == "full" else 0
    return _fitting(Grid(rows, columns, *_seen(image_processor, height, width)), tokens, kept)


def _fitting(grid: Grid, tokens: int, before: int) -> tuple[Grid, int]:
    if grid.rows * grid.columns + before != tokens:
        raise ConfigError(
            f"the image has {tokens} image tokens, which are no raster of {grid.rows} x {grid.columns}. {_REMEDY}"
        )
    return grid, before


def _seen(processor: Any, height: int, width: int) -> tuple[float, float, float, float]:
    """Top, left, height and width of what the model sees, in pixels of the image."""
    size = _sides(getattr(processor, "size", None))
    if getattr(processor, "do_pad", False):
        side = float(max(height, width))
        return (height - side) / 2, (width - side) / 2, side, side
    if not getattr(processor, "do_resize", True):
        scale_y = scale_x = 1.0
    elif "shortest_edge" in size:
        scale_y = scale_x = size["shortest_edge"] / min(height, width)
    else:
        scale_y, scale_x = size["height"] / height, size["width"] / width
    if not getattr(processor, "do_center_crop", False):
        return 0.0, 0.0, float(height), float(width)
    crop = _sides(processor.crop_size)
    seen_y, seen_x = crop["height"] / scale_y, crop["width"] / scale_x
    return (height - seen_y) / 2, (width - seen_x) / 2, seen_y, seen_x


def _sides(size: Any) -> dict[str, int]:
    """The sides that are set; processors keep them in a mapping or in an object with empty entries."""
    names = ("height", "width", "shortest_edge")
    found = {name: size.get(name) if isinstance(size, Mapping) else getattr(size, name, None) for name in names}
    return {name: int(value) for name, value in found.items() if value}


def _cells(pixels: int, start: float, length: float, cells: int) -> NDArray[np.intp]:
    at = (np.arange(pixels) + 0.5 - start) / length * cells
    return np.where((at >= 0) & (at < cells), np.floor(at), -1).astype(np.intp)


def _weights(pixels: int, start: float, length: float, cells: int) -> NDArray[np.float64]:
    """[pixels, cells]: how much of each cell's value a pixel takes; rows of pixels outside are 0."""
    at = (np.arange(pixels) + 0.5 - start) / length * cells
    inside = (at >= 0) & (at < cells)
    at = np.clip(at - 0.5, 0.0, cells - 1.0)
    low = np.floor(at).astype(np.intp)
    high = np.minimum(low + 1, cells - 1)
    weights = np.zeros((pixels, cells))
    rows = np.arange(pixels)
    weights[rows, low] += 1.0 - (at - low)
    weights[rows, high] += at - low
    weights[~inside] = 0.0
    return weights
