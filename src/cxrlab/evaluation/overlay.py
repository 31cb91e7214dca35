"""Maps laid over images, as pictures: one panel, rows of panels, and the sheet of all layers and heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from cxrlab.core.codec import encode_png
from cxrlab.core.errors import ConfigError
from cxrlab.data.contact_sheet import drawable

Array = NDArray[np.float32]
Picture = NDArray[np.uint8]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

PAPER, INK, QUIET = (250, 249, 246), (34, 36, 40), (120, 124, 130)
# From cold to hot with steadily rising lightness, so that the order can be read without seeing any hue.
_HEAT = np.array(
    [(18, 14, 62), (58, 34, 124), (112, 48, 146), (172, 66, 128), (222, 104, 86), (246, 160, 62), (255, 232, 142)],
    np.float64,
)
MOST_PIXELS = 100_000_000
_GAP, _BAR, _CAPTION = 10, 12, 22
_SCALE, _NARROWEST = 64, 120  # pixels for a colour bar with its numbers, and of a column at least


@dataclass(frozen=True, eq=False)
class Panel:
    """An image with a map over it.

    Args:
        image: [H, W] or [H, W, 3] in [0, 1].
        heat: [H, W], at least 0, in the map's own unit; None shows the image alone.
        caption: Under the panel.
    """

    image: Array
    heat: Array | None
    caption: str


def colours(values: Array) -> Picture:
    """[…] in [0, 1] → uint8 […, 3] of the heat scale; values outside are clipped."""
    at = np.clip(values, 0.0, 1.0).astype(np.float64) * (len(_HEAT) - 1)
    low = np.minimum(np.floor(at).astype(np.intp), len(_HEAT) - 2)
    share = (at - low)[..., None]
    return np.asarray(np.rint(_HEAT[low] * (1 - share) + _HEAT[low + 1] * share), np.uint8)


def laid_over(image: Array, heat: Array, alpha: float) -> Picture:
    """The image under its map, uint8 [H, W, 3]: the hottest pixel is covered by `alpha`, a cold one not at all."""
    grey = (image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2)).astype(np.float64) * 255.0
    share = _scaled(heat)
    cover = (alpha * share)[..., None].astype(np.float64)
    return np.asarray(np.rint(np.clip(grey * (1 - cover) + colours(share) * cover, 0, 255)), np.uint8)


def panels_png(rows: Sequence[Sequence[Panel]], *, size: int = 320, alpha: float = 0.65, title: str = "") -> bytes:
    """PNG of panels in rows, each with its caption and a colour bar from 0 to its own maximum.

    Args:
        rows: Panels; rows may differ in length.
        size: Longer side of an image on the page, in pixels.
        alpha: How much the hottest pixel covers the image, 0 to 1.
        title: Line at the top.
    """
    sizes = [_on_page(panel, size) for row in rows for panel in row]
    # As wide and high as the largest image, but wide enough for a caption.
    width, height = max(_NARROWEST, *(wide for wide, _ in sizes)), max(high for _, high in sizes)
    columns, step = max(len(row) for row in rows), width + _GAP + _SCALE
    head = 34 if title else _GAP
    page = _page(_GAP + columns * step, head + len(rows) * (height + _CAPTION + _GAP))
    draw = ImageDraw.Draw(page)
    if title:
        draw.text((_GAP, head // 2), _cut(title, page.width - 2 * _GAP, _font(16)), INK, _font(16), anchor="lm")
    for number, row in enumerate(rows):
        top = head + number * (height + _CAPTION + _GAP)
        for place, panel in enumerate(row):
            left = _GAP + place * step
            _draw_panel(page, draw, panel, (left, top), size, alpha)
            caption = _cut(panel.caption, width + _SCALE, _font(13))
            draw.text((left, top + height + _CAPTION / 2), caption, INK, _font(13), anchor="lm")
    return encode_png(np.asarray(page))


def sheet_png(values: Array, title: str, *, side: int | None = None) -> bytes:
    """PNG of every layer (down) and head (across) on one scale.

    Args:
        values: [layers, heads, rows, columns], at least 0.
        title: Line at the top.
        side: Longer side of a tile in pixels; as large as fits a page of about 2,400 when left out.
    """
    layers, heads, rows, columns = values.shape
    side = side if side is not None else max(24, min(120, 2400 // max(layers, heads)))
    step_y, step_x = max(1, round(side / max(rows, columns))) * rows, max(1, round(side / max(rows, columns))) * columns
    head, margin = 66, 44
    page = _page(margin + heads * (step_x + 2) + 90, head + layers * (step_y + 2) + _GAP)
    draw = ImageDraw.Draw(page)
    draw.text((_GAP, 16), _cut(title, page.width - 2 * _GAP, _font(16)), INK, _font(16), anchor="lm")
    top = float(values.max())
    for layer in range(layers):
        y = head + layer * (step_y + 2)
        draw.text((margin - 6, y + step_y / 2), f"{layer + 1}", QUIET, _font(12), anchor="rm")
        for place in range(heads):
            tile = values[layer, place] / top if top > 0 else values[layer, place]
            big = colours(tile).repeat(step_y // rows, axis=0).repeat(step_x // columns, axis=1)
            page.paste(Image.fromarray(big), (margin + place * (step_x + 2), y))
    for place in range(heads):
        draw.text((margin + place * (step_x + 2) + step_x / 2, head - 8), f"{place + 1}", QUIET, _font(12), anchor="mm")
    draw.text((_GAP, head - 28), "layer (down) and head (across), one scale for all", QUIET, _font(11), anchor="lm")
    _draw_bar(draw, (margin + heads * (step_x + 2) + _GAP, head), min(200, layers * (step_y + 2)), top)
    return encode_png(np.asarray(page))


def _draw_panel(
    page: Image.Image, draw: ImageDraw.ImageDraw, panel: Panel, where: tuple[int, int], size: int, alpha: float
) -> None:
    left, top = where
    heat = panel.heat if panel.heat is not None else np.zeros(panel.image.shape[:2], np.float32)
    shown = _on_page(panel, size)
    page.paste(Image.fromarray(laid_over(panel.image, heat, alpha)).resize(shown, Image.Resampling.BILINEAR), where)
    if panel.heat is not None:
        _draw_bar(draw, (left + shown[0] + 6, top), shown[1], float(panel.heat.max()))


def _on_page(panel: Panel, size: int) -> tuple[int, int]:
    """Width and height of an image whose longer side is `size`."""
    height, width = panel.image.shape[:2]
    scale = size / max(height, width)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _draw_bar(draw: ImageDraw.ImageDraw, where: tuple[int, int], height: int, most: float) -> None:
    """The colour scale from 0 (below) to `most` (above)."""
    left, top = where
    for line in range(height):
        share = np.float32(1 - line / max(1, height - 1))
        draw.line((left, top + line, left + _BAR, top + line), fill=tuple(int(c) for c in colours(np.asarray(share))))
    draw.text((left + _BAR + 4, top), f"{most:.2g}", QUIET, _font(11), anchor="la")
    draw.text((left + _BAR + 4, top + height), "0", QUIET, _font(11), anchor="ld")


def _scaled(heat: Array) -> Array:
    """Divided by its maximum; a map without any heat stays 0."""
    top = float(heat.max())
    return np.asarray(heat / top if top > 0 else np.zeros_like(heat), np.float32)


def _page(width: int, height: int) -> Image.Image:
    if width * height > MOST_PIXELS:
        raise ConfigError(
            f"the picture would be {width:,} x {height:,} pixels large, above the limit of {MOST_PIXELS:,}; "
            "explain fewer words at once."
        )
    return Image.new("RGB", (width, height), PAPER)


def _cut(text: str, width: int, font: Font) -> str:
    """The text, ended by an ellipsis where it is too long for one line."""
    words = " ".join(drawable(text).split())
    if font.getlength(words) <= width:
        return words
    while words and font.getlength(words + "…") > width:
        words = words[:-1]
    return words + "…"


@lru_cache(maxsize=8)
def _font(size: int) -> Font:
    return ImageFont.load_default(size)
