from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from chest_images import frontal_images

from cxrlab.core.image_codec import to_uint8
from cxrlab.data.images import luminance
from cxrlab.data.synthetic_scenes import draw_scene


@cache
def _phantoms() -> tuple[np.ndarray, ...]:
    return tuple(to_uint8(image) for image in frontal_images(120, 64))


@pytest.fixture(scope="session")
def phantoms() -> tuple[np.ndarray, ...]:
    """120 chest radiographs, uint8 [64, 64]."""
    return _phantoms()


@pytest.fixture(scope="session")
def scenes() -> tuple[np.ndarray, ...]:
    """30 pictures without a chest, uint8 [64, 64]."""
    pictures = [draw_scene(3, number, 64).image for number in range(30)]
    return tuple(to_uint8(luminance(picture.astype(np.float32) / 255)) for picture in pictures)
