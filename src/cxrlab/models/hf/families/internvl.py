"""InternVL 3: an image as tiles of one size in the grid nearest to its shape, and the whole image after them."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.models.hf.families import Family, FeatureSource
from cxrlab.models.hf.pixels import PixelPath, measure

if TYPE_CHECKING:
    from torch import Tensor


class GridOfTiles(PixelPath):
    """The tiles of all images in one list [T, 3, h, w]; the number of image tokens tells which are whose."""

    call_settings = MappingProxyType({"crop_to_patches": True})

    def __init__(self, image_processor: Any) -> None:
        super().__init__(image_processor)
        self.tile = (measure(image_processor.size, "height"), measure(image_processor.size, "width"))
        fewest, most = int(image_processor.min_patches), int(image_processor.max_patches)
        grids = [
            (rows, columns)
            for rows in range(1, most + 1)
            for columns in range(1, most // rows + 1)
            if rows * columns >= fewest
        ]
        self.grids = sorted(grids, key=lambda grid: grid[0] * grid[1])

    def arrange(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """`pixel_values` [tiles of all images, 3, h, w]."""
        import torch

        return {"pixel_values": torch.stack([self.scaling(tile) for image in images for tile in self.pieces(image)])}

    def pieces(self, image: Tensor) -> list[Tensor]:
        """Tiles row by row and, if there are several, the whole image squashed into a tile."""
        rows, columns = self.grid(*image.shape[-2:])
        height, width = self.tile
        resized = self.resize(image, (rows * height, columns * width))
        tiles = [
            resized[..., row * height : (row + 1) * height, column * width : (column + 1) * width]
            for row in range(rows)
            for column in range(columns)
        ]
        return tiles if len(tiles) == 1 else [*tiles, self.resize(image, self.tile)]

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the grid whose shape is nearest; of equals the largest within twice the image's area."""
        best, nearest = (1, 1), float("inf")
        for rows, columns in self.grids:
            distance = abs(width / height - columns / rows)
            enough = height * width > 0.5 * self.tile[0] * self.tile[1] * rows * columns
            if distance < nearest or (distance == nearest and enough):
                best, nearest = (rows, columns), distance
        return best


class InternVL(Family):
    """InternVL 3 in the layout of Hugging Face."""

    model_types = ("internvl",)
    feature_source = FeatureSource.OUTPUT
    static_cache = True
    pixel_paths = MappingProxyType({"GotOcr2ImageProcessor": GridOfTiles})
    no_grid_reason = "cuts an image into several tiles"
    is_causal = True

    def used_layers(self, config: Any) -> tuple[int, ...] | None:
        """None for the last layer: the model then takes the output."""
        return None if config.vision_feature_layer == -1 else super().used_layers(config)
