"""Idefics2, Idefics3 and SmolVLM: an image as one or several tiles, with a mask over their padding."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf.families import Family, FeatureSource
from cxrlab.models.hf.pixels import PixelPath, measure

if TYPE_CHECKING:
    from torch import Tensor

    Size = tuple[int, int]

_LARGEST = 4096  # side in pixels to which Idefics3 enlarges at most
_NOT_EMPTY = 1e-6


class Masked(PixelPath):
    """Images [N, K, 3, H, W] padded with zeros to the right, below and in number, and a mask with ones on the images."""

    def __init__(self, image_processor: Any) -> None:
        super().__init__(image_processor)
        self.size = image_processor.size
        self.do_resize = bool(image_processor.do_resize)
        self.split = bool(image_processor.do_image_splitting)
        if not image_processor.do_pad:
            raise ConfigError("a processor that does not pad is not supported; set do_pad to true in its file.")

    @abstractmethod
    def pieces(self, image: Tensor) -> list[Tensor]:
        """The images that one image becomes, [1 or 3, h, w] in [0, 1]."""

    def arrange(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """`pixel_values` [N, K, 3, H, W] and `pixel_attention_mask` [N, K, H, W] of 1 and 0."""
        return self.arrange_several([[image] for image in images])

    def arrange_several(self, samples: Sequence[Sequence[Tensor]]) -> dict[str, Tensor]:
        """As `arrange`; K counts the pieces of all images of a sample."""
        radiographs = [
            [visible(self.scaling(piece)) for image in sample for piece in self.pieces(image)] for sample in samples
        ]
        pieces = [piece for radiograph in radiographs for piece in radiograph]
        most = max(len(radiograph) for radiograph in radiographs)
        height, width = (max(piece.shape[side] for piece in pieces) for side in (-2, -1))
        values = pieces[0].new_zeros(len(radiographs), most, 3, height, width)
        mask = values.new_zeros(len(radiographs), most, height, width).long()
        for row, radiograph in enumerate(radiographs):
            for column, piece in enumerate(radiograph):
                values[row, column, :, : piece.shape[-2], : piece.shape[-1]] = piece
                mask[row, column, : piece.shape[-2], : piece.shape[-1]] = 1
        return {"pixel_values": values, "pixel_attention_mask": mask}


class EdgesAndQuarters(Masked):
    """The image at its own shape within two edges; with splitting, its four quarters before it."""

    def pieces(self, image: Tensor) -> list[Tensor]:
        """One image, or four quarters and the image."""
        parts = [*quarters(image), image] if self.split else [image]
        return [self.resize(part, self.target(*part.shape[-2:])) for part in parts] if self.do_resize else parts

    def target(self, height: int, width: int) -> Size:
        """No side above the longest edge, then none below the shortest, whatever that does to the shape."""
        shortest, longest = measure(self.size, "shortest_edge"), measure(self.size, "longest_edge")
        if not (shortest and longest):
            return measure(self.size, "height"), measure(self.size, "width")
        shape = width / height
        if width >= height and width > longest:
            height, width = int(longest / shape), longest
        elif height > width and height > longest:
            height, width = longest, int(longest * shape)
        return max(height, shortest), max(width, shortest)


class SquareTiles(Masked):
    """Square tiles row by row, then the whole image squeezed into one; without splitting, that one alone."""

    resizes = 3

    def __init__(self, image_processor: Any) -> None:
        super().__init__(image_processor)
        self.tile = measure(image_processor.max_image_size, "longest_edge")

    def pieces(self, image: Tensor) -> list[Tensor]:
        """Tiles and whole image, all `tile` × `tile`; an image no larger than a tile is not split."""
        if self.do_resize:
            image = self.resize(image, self.target(*image.shape[-2:]))
        square = (self.tile, self.tile)
        if not self.split:
            return [self.resize(image, square)]
        image = self.resize(image, self.whole_tiles(*image.shape[-2:]))
        height, width = image.shape[-2:]
        if (height, width) == square:
            return [image]
        corners = [(top, left) for top in range(0, height, self.tile) for left in range(0, width, self.tile)]
        tiles = [image[..., top : top + self.tile, left : left + self.tile] for top, left in corners]
        return [*tiles, self.resize(image, square)]

    def target(self, height: int, width: int) -> Size:
        """The longer side as configured, the other in proportion and even; at most 4096."""
        edge = measure(self.size, "longest_edge")
        if not edge:
            return measure(self.size, "height"), measure(self.size, "width")
        shape = width / height
        if width >= height:
            width, height = edge, int(edge / shape)
            height += height % 2
        else:
            height, width = edge, int(edge * shape)
            width += width % 2
        height, width = max(height, 1), max(width, 1)
        shape = width / height
        if width >= height and width > _LARGEST:
            width, height = _LARGEST, int(_LARGEST / shape)
        elif height > width and height > _LARGEST:
            height, width = _LARGEST, int(_LARGEST * shape)
        return max(height, 1), max(width, 1)

    def whole_tiles(self, height: int, width: int) -> Size:
        """The longer side rounded up to whole tiles, the other in proportion and then rounded up too."""
        shape = width / height
        if width >= height:
            width = self.up(width)
            return self.up(int(width / shape)), width
        height = self.up(height)
        return height, self.up(int(height * shape))

    def up(self, side: int) -> int:
        """To whole tiles."""
        return math.ceil(side / self.tile) * self.tile


def quarters(image: Tensor) -> list[Tensor]:
    """Upper left, upper right, lower left, lower right."""
    middle, centre = image.shape[-2] // 2, image.shape[-1] // 2
    return [
        part
        for half in (image[..., :middle, :], image[..., middle:, :])
        for part in (half[..., :centre], half[..., centre:])
    ]


def visible(image: Tensor) -> Tensor:
    """Make an image of all zeros (uniform mean grey) nonzero, since the models would drop it as padding."""
    return image + _NOT_EMPTY * (image == 0).all()


class Idefics2(Family):
    """Its perceiver mixes the patches of an image into a few summary tokens."""

    model_types = ("idefics2",)
    feature_source = FeatureSource.OUTPUT
    static_cache = True
    pixel_paths = MappingProxyType({"Idefics2ImageProcessor": EdgesAndQuarters})
    no_grid_reason = "mixes the patches of an image into summary tokens"
    language_model, vision_encoder, projector = "model.text_model", "model.vision_model", "model.connector"
    is_causal = True


class Idefics3(Family):
    """Idefics3."""

    model_types = ("idefics3",)
    feature_source = FeatureSource.OUTPUT
    static_cache = True
    pixel_paths = MappingProxyType({"Idefics3ImageProcessor": SquareTiles})
    no_grid_reason = "cuts an image into several tiles"
    language_model, vision_encoder, projector = "model.text_model", "model.vision_model", "model.connector"
    is_causal = True


class SmolVLM(Family):
    """SmolVLM, built like Idefics3."""

    model_types = ("smolvlm",)
    feature_source = FeatureSource.OUTPUT
    static_cache = True
    pixel_paths = MappingProxyType({"SmolVLMImageProcessor": SquareTiles})
    no_grid_reason = "cuts an image into several tiles"
    language_model, vision_encoder, projector = "model.text_model", "model.vision_model", "model.connector"
    is_causal = True

    def prepare_training(self, model: Any) -> None:
        """Give words the precision of the vision encoder, in which transformers writes image features among them."""
        inner = model.model
        inner.get_input_embeddings().register_forward_hook(lambda module, args, words: words.to(inner.dtype))
