"""Chest images for tests of views: phantoms from the front, and a plain drawing of a chest from the side."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
from PIL import Image

from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import draw_studies, patients_with_visits


@cache
def frontal_images(n: int = 8, size: int = 128, preset: str = "standard") -> tuple[np.ndarray, ...]:
    """Phantoms, [size, size] in [0, 1]."""
    config = PhantomConfig(n=n, size=size, seed=5, preset=preset)
    drawn = [one for order in patients_with_visits(config) for one in draw_studies(config, order)]
    images = [Image.open(io.BytesIO(one.files[one.study.images[0].path])) for one in drawn]
    return tuple(np.asarray(image, np.float32) / np.float32(255) for image in images)


def side_image(size: int = 128) -> np.ndarray:
    """A body between air on both sides: one dark lung in its middle, the back brighter than the breast, belly below."""
    down, across = np.mgrid[0:size, 0:size] / size
    left, right = 0.30 - 0.12 * down, 0.80 + 0.06 * down
    body = (across > left) & (across < right)
    image = np.where(body, 0.55 + 0.4 * (across - left) / (right - left), 0.02)
    lung = ((across - 0.52) / 0.2) ** 2 + ((down - 0.42) / 0.3) ** 2 < 1
    image = np.where(lung, 0.2, image)
    image = np.where(body & (down > 0.68 + 0.1 * across), 0.95, image)
    return image.astype(np.float32)


def png(image: np.ndarray) -> bytes:
    return encode_png(to_uint8(image))
