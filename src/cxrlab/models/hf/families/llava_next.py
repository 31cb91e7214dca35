"""LLaVA-NeXT and LLaVA-OneVision: the whole image, and the image at a higher resolution in tiles."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.models.hf.families import Family, FeatureSource
from cxrlab.models.hf.families.llava import in_square
from cxrlab.models.hf.pixels import Plain, measure, three_channels

if TYPE_CHECKING:
    from torch import Tensor


class AnyResolution(Plain):
    """Tiles [N, T, 3, H, W], the whole image first, padded with zeros; `image_sizes` tells the model how many are real."""

    def __init__(self, image_processor: Any) -> None:
        super().__init__(image_processor)
        short = measure(self.size, "shortest_edge")
        self.whole = (measure(self.size, "height") or short, measure(self.size, "width") or short)
        crop = measure(getattr(image_processor, "crop_size", None) or {}, "height")
        self.tile = crop or self.whole[0]
        self.resolutions = [tuple(each) for each in image_processor.image_grid_pinpoints]
        # The plain steps resize each piece again unless it already has their size.
        whole_tiles = not any(side % self.tile for resolution in self.resolutions for side in resolution)
        self.resizes = 1 if whole_tiles and self.whole == (self.tile, self.tile) else 2

    def arrange(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """`pixel_values` [N, T, 3, H, W] and `image_sizes` [N, 2]: height and width of each image."""
        return self.stacked(images, [self.pieces(image) for image in images])

    def stacked(self, images: Sequence[Tensor], pieces: Sequence[Sequence[Tensor]]) -> dict[str, Tensor]:
        """The inputs for images and the pieces of each."""
        import torch
        from torch.nn.functional import pad

        radiographs = [torch.stack([self.one(piece) for piece in own]) for own in pieces]
        most = max(len(radiograph) for radiograph in radiographs)
        filled = [pad(radiograph, (0, 0, 0, 0, 0, 0, 0, most - len(radiograph))) for radiograph in radiographs]
        sizes = [tuple(image.shape[-2:]) for image in images]
        return {
            "pixel_values": torch.stack(filled),
            "image_sizes": torch.tensor(sizes, dtype=torch.long, device=images[0].device),
        }

    def pieces(self, image: Tensor) -> list[Tensor]:
        """The whole image, squashed into a square, then its tiles row by row."""
        from torch.nn.functional import pad
        from transformers.image_processing_utils import select_best_resolution

        height, width = select_best_resolution(tuple(image.shape[-2:]), self.resolutions)
        fitted = self.resize(image, fit(image, height, width))
        above, left = (height - fitted.shape[-2]) // 2, (width - fitted.shape[-1]) // 2
        margins = (left, width - fitted.shape[-1] - left, above, height - fitted.shape[-2] - above)
        framed = pad(fitted, margins)
        corners = [(top, start) for top in range(0, height, self.tile) for start in range(0, width, self.tile)]
        tiles = [framed[..., top : top + self.tile, start : start + self.tile] for top, start in corners]
        return [self.resize(image, self.whole), *tiles]


class OneVision(AnyResolution):
    """As LLaVA-NeXT, with the number of images per sample; of a sample with several, each is padded to a square and not cut."""

    def __init__(self, image_processor: Any) -> None:
        super().__init__(image_processor)
        self.colour = three_channels(image_processor.image_mean)

    def arrange(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """As for any resolution, with `batch_num_images` [N]."""
        return self.arrange_several([[image] for image in images])

    def arrange_several(self, samples: Sequence[Sequence[Tensor]]) -> dict[str, Tensor]:
        """As `arrange`, with the number of images of each sample."""
        import torch

        images = [image for sample in samples for image in sample]
        several = [len(sample) > 1 for sample in samples for _ in sample]
        pieces = [
            [in_square(image, self.colour)] if among_others else self.pieces(image)
            for image, among_others in zip(images, several, strict=True)
        ]
        counts = torch.tensor([len(sample) for sample in samples], dtype=torch.long, device=images[0].device)
        return {**self.stacked(images, pieces), "batch_num_images": counts}


def fit(image: Tensor, height: int, width: int) -> tuple[int, int]:
    """The largest size of the same shape inside height × width, the free side rounded up."""
    have_height, have_width = image.shape[-2:]
    across, down = width / have_width, height / have_height
    if across < down:
        return min(ceil(have_height * across), height), width
    return height, min(ceil(have_width * down), width)


class LlavaNext(Family):
    """LLaVA 1.6."""

    model_types = ("llava_next",)
    feature_source = FeatureSource.OUTPUT
    static_cache = True
    pixel_paths = MappingProxyType({"LlavaNextImageProcessor": AnyResolution})
    no_grid_reason = "cuts an image into several tiles"
    is_causal = True


class LlavaOnevision(Family):
    """LLaVA-OneVision."""

    model_types = ("llava_onevision",)
    feature_source = FeatureSource.OUTPUT
    same_among_several = False  # a single image alone is cut into tiles
    static_cache = True
    pixel_paths = MappingProxyType({"LlavaOnevisionImageProcessor": OneVision})
    no_grid_reason = "cuts an image into several tiles"
    is_causal = True
