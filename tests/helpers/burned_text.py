"""Text burned into images with Pillow, as consoles and printers do it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from cxrlab.data.burned_in_text import TextBox


@dataclass(frozen=True)
class Burned:
    """An image with text: its pixels, uint8 [H, W], and which of them are ink."""

    image: np.ndarray
    ink: np.ndarray

    def covered(self, boxes: tuple[TextBox, ...]) -> float:
        """Share of the ink that lies in boxes of text."""
        seen = np.zeros(self.ink.shape, bool)
        for box in boxes:
            left, top, right, bottom = box.corners
            seen[top:bottom, left:right] |= not box.marker
        return float((seen & self.ink).sum() / self.ink.sum())


def letters(words: str, size: int, quarter_turns: int = 0) -> np.ndarray:
    """How much of each pixel the words cover, [h, w] in [0, 1], cut to the ink."""
    font = ImageFont.load_default(size)
    _, _, right, bottom = font.getbbox(words)
    canvas = Image.new("L", (int(right) + 4, int(bottom) + 4))
    ImageDraw.Draw(canvas).text((2, 2), words, 255, font)
    cover = np.rot90(np.asarray(canvas, float) / 255, quarter_turns)
    rows, columns = np.nonzero(cover > 0.3)
    return cover[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]


def burn(
    image: np.ndarray, words: str, size: int, place: tuple[float, float], ink: int | None = None, turns: int = 0,
    plate: int | None = None,
) -> Burned:  # fmt: skip
    """Write words on a copy of an image.

    Args:
        image: uint8 [H, W].
        words: What to write.
        size: Of the letters, in points of the font.
        place: Where the box of ink stands: 0 is the left or upper edge, 1 the right or lower one.
        ink: Grey of the letters; by default white on dark and black on bright ground.
        turns: Quarter turns against the clock.
        plate: Grey of a flat patch behind the letters; none by default.
    """
    cover = letters(words, size, turns)
    height, width = cover.shape
    margin = 3
    left = margin + round(place[0] * (image.shape[1] - width - 2 * margin))
    top = margin + round(place[1] * (image.shape[0] - height - 2 * margin))
    out = image.copy()
    if plate is not None:
        out[max(0, top - 2) : top + height + 2, max(0, left - 2) : left + width + 2] = plate
    area = out[top : top + height, left : left + width]
    if ink is None:
        ink = 255 if np.median(area) < 128 else 0
    area[:] = np.rint(area * (1 - cover) + ink * cover).astype(np.uint8)
    mask = np.zeros(image.shape, bool)
    mask[top : top + height, left : left + width] = cover > 0.5
    return Burned(out, mask)
