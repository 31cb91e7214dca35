"""What the pixels of one image tell a check: its size, how bright it is, and whether it looks turned black for white."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.codec import to_uint8, to_unit
from cxrlab.core.vocabulary import View
from cxrlab.data.grey import luminance
from cxrlab.data.images import Picture, eight_bits

FRONTAL = frozenset({View.PA, View.AP, View.FRONTAL})
_DEPTHS = {"uint8": "8 bits", "uint16": "16 bits", "bool": "1 bit", "float32": "DICOM"}
_GREYS = np.arange(256)
_THUMB = 32


@dataclass(frozen=True)
class ImageFacts:
    """Numbers of one image; grey values are of [0, 1].

    Args:
        width: Pixels.
        height: Pixels.
        depth: How grey values are stored: "8 bits", "16 bits", "1 bit", or "DICOM".
        colour: Whether its channels differ.
        mean: Mean grey.
        spread: Standard deviation of grey.
        low: Grey that 1 % of the pixels stay below.
        high: Grey that 1 % of the pixels exceed.
        inverted: It looks as if bone were dark; only a frontal image is asked.
        digest: Mark of what it shows: the same image saved in another way has the same one.
        likeness: Perceptual hash; None where nobody asked for one.
    """

    width: int
    height: int
    depth: str
    colour: bool
    mean: float
    spread: float
    low: float
    high: float
    inverted: bool
    digest: bytes
    likeness: int | None = None


def image_facts(picture: Picture, view: View | None) -> ImageFacts:
    """Measure a picture as `images.read_picture` returns it."""
    shown = eight_bits(picture)
    grey = shown if shown.ndim == 2 else to_uint8(luminance(to_unit(shown)))
    shares = np.bincount(grey.ravel(), minlength=256) / grey.size
    mean = float(shares @ _GREYS)
    variance = float(shares @ (_GREYS - mean) ** 2)
    below = np.cumsum(shares)
    return ImageFacts(
        width=grey.shape[1],
        height=grey.shape[0],
        depth=_DEPTHS[str(picture.dtype)],
        colour=shown.ndim == 3,
        mean=mean / 255,
        spread=math.sqrt(max(0.0, variance)) / 255,
        low=int(np.searchsorted(below, 0.01)) / 255,
        high=int(np.searchsorted(below, 0.99)) / 255,
        inverted=view in FRONTAL and looks_inverted(grey),
        digest=digest(shown),
    )


def digest(shown: NDArray[np.uint8]) -> bytes:
    """Sixteen bytes that stand for the pixels of a picture in its plainest form (see `images.eight_bits`)."""
    # The shape counts: a blank image of 2 x 8 and one of 4 x 4 hold the same bytes.
    mark = hashlib.blake2b(repr(shown.shape).encode(), digest_size=16)
    mark.update(np.ascontiguousarray(shown).data)
    return mark.digest()


def looks_inverted(grey: NDArray[np.uint8]) -> bool:
    """Whether a frontal chest radiograph, uint8 [H, W], seems to show bone dark and air bright.

    Two signs must agree: the midline between the lungs is darker than the lungs, and the upper corners,
    where no body is, are bright. A suspicion, not a verdict: an image that lies on its side may show both.
    """
    if min(grey.shape) < _THUMB:
        return False
    small = _shrunk(grey) / 255
    rows = slice(8, 20)
    lungs = (small[rows, 5:11].mean() + small[rows, 21:27].mean()) / 2
    corners = np.median(np.concatenate([small[:4, :4], small[:4, -4:]]))
    return bool(small[rows, 14:18].mean() < lungs and corners > 0.5)


def _shrunk(grey: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Means over a 32 x 32 grid; up to 31 rows and columns at the far edges are left out."""
    height, width = (side // _THUMB * _THUMB for side in grey.shape)
    cells = grey[:height, :width].reshape(_THUMB, height // _THUMB, _THUMB, width // _THUMB)
    return np.asarray(cells.mean(axis=(1, 3)))
