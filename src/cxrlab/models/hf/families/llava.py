"""LLaVA and ViP-LLaVA: one image size, one token per patch."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.models.hf.families import Family, FeatureSource
from cxrlab.models.hf.pixels import Plain, three_channels

if TYPE_CHECKING:
    from torch import Tensor


class PaddedToSquare(Plain):
    """LLaVA's own processor, which may first pad an image to a square with the mean colour."""

    def __init__(self, image_processor: Any) -> None:
        super().__init__(image_processor)
        self.colour = three_channels(image_processor.image_mean) if image_processor.do_pad else None

    def one(self, image: Tensor) -> Tensor:
        """[..., 1 or 3, H, W] in [0, 1] → [..., 3, h, w] scaled."""
        return super().one(image if self.colour is None else in_square(image, self.colour))


def in_square(image: Tensor, colour: Sequence[float]) -> Tensor:
    """Images [..., 1 or 3, H, W] centred in squares [..., 3, S, S] of one colour, rounded down to a grey level."""
    height, width = image.shape[-2:]
    if height == width:
        return image
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    levels = image.new_tensor([int(value * 255) / 255.0 for value in colour]).view(3, 1, 1)
    square = levels.expand(*image.shape[:-3], 3, side, side).clone()
    square[..., top : top + height, left : left + width] = image
    return square


class Llava(Family):
    """LLaVA 1.5 and its relatives; CLIP's image processor is common, LLaVA's own one may pad to a square."""

    model_types = ("llava",)
    static_cache = True
    pixel_paths = MappingProxyType({"LlavaImageProcessor": PaddedToSquare})
    has_grid = True
    is_causal = True


class VipLlava(Llava):
    """ViP-LLaVA; runs with an attention mask."""

    model_types = ("vipllava",)
    feature_source = FeatureSource.OUTPUT
    static_cache = True
    is_causal = False

    def used_layers(self, config: Any) -> tuple[int, ...]:
        """Several layers, whose hidden states are joined."""
        chosen = config.vision_feature_layers
        return (chosen,) if isinstance(chosen, int) else tuple(chosen)
