"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: one list of patches, as many as the image is large."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.families import Family, FeatureSource
from cxrlab.models.hf.pixels import PixelPath, measure

if TYPE_CHECKING:
    from torch import Tensor

_THINNEST = 200  # largest aspect ratio that the family accepts


class FlatPatches(PixelPath):
    """Every image resized to whole blocks of patches, then split into patches, block by block."""

    def __init__(self, image_processor: Any) -> None:
        super().__init__(image_processor)
        self.patch = int(image_processor.patch_size)
        self.merge = int(image_processor.merge_size)
        self.frames = int(image_processor.temporal_patch_size)
        self.fewest = measure(image_processor.size, "shortest_edge")
        self.most = measure(image_processor.size, "longest_edge")
        self.do_resize = bool(image_processor.do_resize)

    def arrange(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """`pixel_values` [patches of all images, 3·frames·patch·patch] and `image_grid_thw` [N, 3]."""
        import torch

        patches, grids = [], []
        for image in images:
            if self.do_resize:
                image = self.resize(image, self.target(*image.shape[-2:]))
            patches.append(self.flatten(self.scaling(image)))
            grids.append((1, image.shape[-2] // self.patch, image.shape[-1] // self.patch))
        return {
            "pixel_values": torch.cat(patches),
            "image_grid_thw": torch.tensor(grids, dtype=torch.long, device=images[0].device),
        }

    def target(self, height: int, width: int) -> tuple[int, int]:
        """The nearest size in whole blocks within the limits on the number of pixels."""
        if max(height, width) > _THINNEST * min(height, width):
            raise DataError(f"an image of {height} x {width} pixels is too thin for this model; crop it.")
        block = self.patch * self.merge
        near = round(height / block) * block, round(width / block) * block
        if near[0] * near[1] > self.most:
            scale = math.sqrt(height * width / self.most)
            rows, columns = (max(1, math.floor(side / scale / block)) for side in (height, width))
        elif near[0] * near[1] < self.fewest:
            scale = math.sqrt(self.fewest / (height * width))
            rows, columns = (math.ceil(side * scale / block) for side in (height, width))
        else:
            return near
        return rows * block, columns * block

    def flatten(self, image: Tensor) -> Tensor:
        """[3, H, W] → [patches, 3·frames·patch·patch]: blocks row by row, the patches of a block row by row.

        A still image is its own next frame.
        """
        rows, columns = image.shape[-2] // self.patch, image.shape[-1] // self.patch
        blocks = image.reshape(
            3, rows // self.merge, self.merge, self.patch, columns // self.merge, self.merge, self.patch
        )
        patches = blocks.permute(1, 4, 2, 5, 0, 3, 6).unsqueeze(5)
        patches = patches.expand(*patches.shape[:5], self.frames, self.patch, self.patch)
        return patches.reshape(rows * columns, -1)


class QwenVL(Family):
    """Positions have three axes, and a raster of patches is merged block by block into tokens."""

    model_types: ClassVar[tuple[str, ...]] = ("qwen2_vl", "qwen2_5_vl")
    feature_source: ClassVar[FeatureSource | None] = FeatureSource.PROJECTOR
    static_cache = True
    pixel_paths = MappingProxyType({"Qwen2VLImageProcessor": FlatPatches})
    has_grid = True
    vision_encoder, projector = "model.visual", "model.visual.merger"

    def grid_shape(self, config: Any, inputs: Mapping[str, Any]) -> tuple[int, int]:
        """The processor's grid of patches, merged."""
        merge = int(config.vision_config.spatial_merge_size)
        frames, rows, columns = (int(side) for side in inputs["image_grid_thw"][0])
        if frames != 1:
            raise ConfigError(f"this image became {frames} frames, so there is no single grid; use --maps gradient.")
        return rows // merge, columns // merge

    def visible_part(self, image_processor: Any, height: int, width: int) -> tuple[float, float, float, float]:
        """The whole image."""
        return 0.0, 0.0, float(height), float(width)


class Qwen3VL(QwenVL):
    """The language model takes layers of the vision encoder too (DeepStack), which are not cached."""

    model_types = ("qwen3_vl",)
    feature_source = None
