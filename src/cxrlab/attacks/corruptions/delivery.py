"""What is done to a finished image on its way: letters burned in, JPEG compression, too few pixels."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from cxrlab.attacks.corruptions.image import ImageArray, each_channel, over, resized, short_side
from cxrlab.core.codec import decode, encode_jpeg, to_uint8, to_unit
from cxrlab.data.phantom.render import LETTERS

# Height of the stamp as a share of the shorter side: from small print in the corner to a plate over an apex or a base.
STAMP_HEIGHTS = (0.03, 0.05, 0.075, 0.11, 0.15)
STAMP_GREY = 0.95  # lead letters are white, not quite the white of an overlay
STAMP_COLUMNS = 16  # of writing beside the letter, which has 5
MARGIN = 0.03  # between the stamp and the rim of the image
INK_SIDE = 256  # pixels of the shorter side that small print takes to be drawn

# Coarseness of the JPEG quantisation in percent of the standard's table, for an image of 256 pixels. An image of 1024
# spreads the same detail over four times as many pixels, where it takes four times the coarseness to be lost.
COARSENESS = (50.0, 90.0, 150.0, 250.0, 420.0)
STANDARD_SIDE = 256
QUALITIES = (1, 95)

# Pixels left along the shorter side: those of a thumbnail (128) to a picture that keeps the outlines of heart and lungs
# alone (36). An image that has few pixels to begin with loses a share of them.
PIXELS_LEFT = (128, 96, 72, 52, 36)
SHARES_LEFT = (0.85, 0.75, 0.65, 0.55, 0.45)


def marker(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """A side letter with illegible print beside it, burned into a corner.

    The letter names the side that it stands on: a false one would change what the image says, not how well.
    """
    at_left, at_top = rng.random() < 0.5, rng.random() < 0.5
    stamp = _stamp("R" if at_left else "L", rng)
    # Small print is drawn on a finer raster and averaged: on an image of few pixels it is a faint smear, not a lump.
    finer = math.ceil(INK_SIDE / short_side(image))
    height, width = image.shape[0] * finer, image.shape[1] * finer
    fine = _placed(stamp, STAMP_HEIGHTS[severity - 1], (height, width), at_left, at_top)
    ink: ImageArray = fine.reshape(image.shape[0], finer, image.shape[1], finer).mean(axis=(1, 3))
    missing = np.maximum(np.float32(STAMP_GREY) - image, np.float32(0.0))  # ink never darkens what is whiter than it
    stamped: ImageArray = image + over(image, ink) * missing
    return stamped


def jpeg(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Through 8-bit JPEG and back, at the quality that `jpeg_quality` gives."""
    data = encode_jpeg(to_uint8(image), jpeg_quality(short_side(image), severity))
    return to_unit(decode(data, "the compressed image"))


def jpeg_quality(side: int, severity: int) -> int:
    """JPEG's quality number, 1 to 95, for an image with a shorter side of so many pixels."""
    percent = COARSENESS[severity - 1] * side / STANDARD_SIDE
    # How the usual encoder reads its quality number: 50 is the standard's table as it stands, 100 %.
    quality = 5000.0 / percent if percent > 100.0 else 100.0 - 0.5 * percent
    return round(min(max(quality, QUALITIES[0]), QUALITIES[1]))


def pixelate(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Shrunk to few pixels and enlarged again as squares."""
    height, width = image.shape[:2]
    side = short_side(image)
    left = min(PIXELS_LEFT[severity - 1], SHARES_LEFT[severity - 1] * side) / side
    rows, columns = max(1, round(height * left)), max(1, round(width * left))

    def squared(channel: ImageArray) -> ImageArray:
        small = resized(channel, rows, columns, Image.Resampling.BOX)
        return resized(small, height, width, Image.Resampling.NEAREST)

    return each_channel(image, squared)


def _placed(stamp: ImageArray, share: float, shape: tuple[int, int], at_left: bool, at_top: bool) -> ImageArray:
    """The stamp in a corner of an empty field [H, W], as high as this share of the shorter side."""
    height, width = shape
    tall = round(share * min(shape))
    wide = round(tall * stamp.shape[1] / stamp.shape[0])
    margin = round(MARGIN * min(shape))
    top = margin if at_top else height - margin - tall
    left = margin if at_left else width - margin - wide
    ink = np.zeros(shape, dtype=np.float32)
    ink[top : top + tall, left : left + wide] = resized(stamp, tall, wide, Image.Resampling.BOX)
    return ink


def _stamp(letter: str, rng: np.random.Generator) -> ImageArray:
    """Ink of the stamp, 0 or 1, fine enough to be shrunk evenly: a letter and three lines of dashes."""
    glyph = np.array([[float(bit) for bit in line] for line in LETTERS[letter]], dtype=np.float32)
    gap = np.zeros((len(glyph), 2), dtype=np.float32)
    writing = np.zeros((len(glyph), STAMP_COLUMNS), dtype=np.float32)
    for line in (0, 3, 6):
        length = int(rng.integers(STAMP_COLUMNS // 2, STAMP_COLUMNS + 1))
        writing[line, :length] = rng.random(length) < 0.7
    return np.hstack([glyph, gap, writing]).repeat(32, axis=0).repeat(32, axis=1)
