"""What the corruptions share: the type of a film, its size, and fields laid over all of its channels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Film = NDArray[np.float32]
Corruption = Callable[[Film, int, np.random.Generator], Film]


def short_side(film: Film) -> int:
    """Pixels of the shorter side; sizes of blemishes are shares of it."""
    height, width = film.shape[:2]
    return min(int(height), int(width))


def each_channel(film: Film, change: Callable[[Film], Film]) -> Film:
    """The same change of every channel [H, W] of a film."""
    if film.ndim == 2:
        return change(film)
    return np.stack([change(film[..., channel]) for channel in range(film.shape[-1])], axis=-1)


def over(film: Film, field: Film) -> Film:
    """A field [H, W] in a shape that is the same for all channels of the film."""
    return field if film.ndim == 2 else field[..., None]


def resized(field: Film, height: int, width: int, how: Image.Resampling) -> Film:
    """A field [h, w] brought to [height, width]."""
    return np.asarray(Image.fromarray(field).resize((width, height), how), dtype=np.float32)


def either(rng: np.random.Generator) -> float:
    """-1 or 1, as the coin falls."""
    return 1.0 if rng.random() < 0.5 else -1.0
