"""What the corruptions share: the type of an image, its size, and fields laid over all of its channels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

ImageArray = NDArray[np.float32]
Corruption = Callable[[ImageArray, int, np.random.Generator], ImageArray]


def short_side(image: ImageArray) -> int:
    """Pixels of the shorter side; sizes of blemishes are shares of it."""
    height, width = image.shape[:2]
    return min(int(height), int(width))


def each_channel(image: ImageArray, change: Callable[[ImageArray], ImageArray]) -> ImageArray:
    """The same change of every channel [H, W] of an image."""
    if image.ndim == 2:
        return change(image)
    return np.stack([change(image[..., channel]) for channel in range(image.shape[-1])], axis=-1)


def over(image: ImageArray, field: ImageArray) -> ImageArray:
    """A field [H, W] in a shape that is the same for all channels of the image."""
    return field if image.ndim == 2 else field[..., None]


def resized(field: ImageArray, height: int, width: int, how: Image.Resampling) -> ImageArray:
    """A field [h, w] brought to [height, width]."""
    return np.asarray(Image.fromarray(field).resize((width, height), how), dtype=np.float32)


def either(rng: np.random.Generator) -> float:
    """-1 or 1, as the coin falls."""
    return 1.0 if rng.random() < 0.5 else -1.0
