"""Colour to the grey that the eye gives it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ImageArray = NDArray[np.float32]

_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)


def luminance(colour: ImageArray) -> ImageArray:
    """Red, green and blue in [0, 1] ([H, W, 3]) to one grey in [0, 1] ([H, W])."""
    return np.asarray(np.clip(colour @ _WEIGHTS, 0.0, 1.0))
