"""One picture of one size: CLIP, SigLIP, ViT, BiT, and the processors of LLaVA, PaliGemma and Gemma 3."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.pixels import PixelPath, measure, three

if TYPE_CHECKING:
    from torch import Tensor

    Size = tuple[int, int]

_SMALL = 1 << 20  # pixels of an image up to which all are resized at once; larger ones would lie in memory twice


class Plain(PixelPath):
    """Resize, cut out the centre, scale."""

    def __init__(self, image_processor: Any) -> None:
        super().__init__(image_processor)
        self.size = image_processor.size
        self.do_resize = bool(image_processor.do_resize)
        self.crop = crop_size(image_processor)

    def arrange(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """`pixel_values` [N, 3, H, W]."""
        import torch

        if len({image.shape for image in images}) == 1 and images[0].numel() <= _SMALL:
            return {"pixel_values": self.one(torch.stack(list(images)))}
        ready = [self.one(image) for image in images]
        if len({image.shape for image in ready}) > 1:
            raise DataError(
                "this model's processor keeps the shape of an image, and images of different shapes make no batch; "
                "give them one by one, or crop them to one shape."
            )
        return {"pixel_values": torch.stack(ready)}

    def one(self, image: Tensor) -> Tensor:
        """[..., 1 or 3, H, W] in [0, 1] → [..., 3, h, w] scaled."""
        if self.do_resize:
            image = self.resize(image, target(image, self.size))
        if self.crop is not None:
            image = centre(image, self.crop, odd_before=self.pillow)
        return self.scaling(image)


class PaddedToSquare(Plain):
    """LLaVA's own processor: an image may first be set in a square of the mean colour, normalised later or not."""

    def __init__(self, image_processor: Any) -> None:
        super().__init__(image_processor)
        self.colour = three(image_processor.image_mean) if image_processor.do_pad else None

    def one(self, image: Tensor) -> Tensor:
        """[..., 1 or 3, H, W] in [0, 1] → [..., 3, h, w] scaled."""
        return super().one(image if self.colour is None else in_square(image, self.colour))


class WholeImage(Plain):
    """Gemma 3's image processor could add crops to the image; its processor never asks for them unless it is told to."""

    asked = MappingProxyType({"do_pan_and_scan": False})


def crop_size(image_processor: Any) -> Size | None:
    """Height and width of what is cut out of the centre; None when nothing is."""
    size = getattr(image_processor, "crop_size", None)
    if not getattr(image_processor, "do_center_crop", False) or size is None:
        return None
    return measure(size, "height"), measure(size, "width")


def target(image: Tensor, size: Any) -> Size:
    """Height and width after the resize, by the rule that the entries of `size` stand for."""
    height, width = image.shape[-2:]
    shortest, longest = measure(size, "shortest_edge"), measure(size, "longest_edge")
    if shortest and not longest:
        long = int(shortest * max(height, width) / min(height, width))
        return (long, shortest) if width <= height else (shortest, long)
    if shortest:
        return within_edges(height, width, shortest, longest)
    most = measure(size, "max_height"), measure(size, "max_width")
    if all(most):
        scale = min(most[0] / height, most[1] / width)
        return int(height * scale), int(width * scale)
    exact = measure(size, "height"), measure(size, "width")
    if not all(exact):
        raise ConfigError(f"the image processor resizes to {size!r}, a rule that is not known here.")
    return exact


def within_edges(height: int, width: int, shortest: int, longest: int) -> Size:
    """The shorter side at `shortest`, unless the longer one would then exceed `longest`."""
    short, long = min(height, width), max(height, width)
    exact = float(shortest)
    if long / short * shortest > longest:
        exact = longest * short / long
    edge = round(exact)
    if short == edge:
        return height, width
    other = int(exact * long / short)
    return (other, edge) if width < height else (edge, other)


def centre(image: Tensor, size: Size, odd_before: bool) -> Tensor:
    """The middle [..., h, w] of a picture; black around it where the picture is smaller.

    Args:
        image: [..., H, W].
        size: Height and width to cut out.
        odd_before: An odd line of padding goes above and to the left, as in the Pillow processors.
    """
    from torch.nn.functional import pad

    margins: list[int] = []
    for have, want in zip(reversed(image.shape[-2:]), reversed(size), strict=True):
        missing = max(want - have, 0)
        before = (missing + 1) // 2 if odd_before else missing // 2
        margins += [before, missing - before]
    image = pad(image, margins)
    top, left = ((have - want) // 2 for have, want in zip(image.shape[-2:], size, strict=True))
    return image[..., top : top + size[0], left : left + size[1]]


def in_square(image: Tensor, colour: Sequence[float]) -> Tensor:
    """Pictures [..., 1 or 3, H, W] amid squares [..., 3, S, S] of one colour, rounded down to a grey level."""
    height, width = image.shape[-2:]
    if height == width:
        return image
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    levels = image.new_tensor([int(value * 255) / 255.0 for value in colour]).view(3, 1, 1)
    square = levels.expand(*image.shape[:-3], 3, side, side).clone()
    square[..., top : top + height, left : left + width] = image
    return square
