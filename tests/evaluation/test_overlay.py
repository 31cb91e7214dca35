"""Pictures of maps."""

from __future__ import annotations

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.image_codec import decode
from cxrlab.evaluation.explain import Panel, apply_colour_map, draw_panels, draw_sheet, overlay_heat_map


def lightness(rgb: np.ndarray) -> np.ndarray:
    """CIE L* of sRGB colours."""
    unit = rgb / 255.0
    linear = np.where(unit <= 0.04045, unit / 12.92, ((unit + 0.055) / 1.055) ** 2.4)
    y = linear @ np.array([0.2126, 0.7152, 0.0722])
    return np.where(y > (6 / 29) ** 3, 116 * np.cbrt(y) - 16, y * 24389 / 27)


def test_hotter_is_lighter_in_even_steps() -> None:
    """The order can be read without seeing hue; no tenth of the scale takes more than a fifth of the lightness."""
    steps = np.diff(lightness(apply_colour_map(np.linspace(0, 1, 101, dtype=np.float32))))
    assert steps.min() > 0
    tenths = steps.reshape(10, 10).sum(axis=1)
    assert tenths.max() < 0.2 * steps.sum() and tenths.min() > 0.04 * steps.sum()


def test_a_cold_pixel_shows_the_image_and_the_hottest_is_covered_by_alpha() -> None:
    image = np.full((1, 2), 0.4, np.float32)
    shown = overlay_heat_map(image, np.array([[0.0, 5.0]], np.float32), alpha=0.5)
    assert shown[0, 0].tolist() == [102, 102, 102]
    hot = apply_colour_map(np.float32(1.0)).astype(float)
    assert np.abs(shown[0, 1] - (0.5 * 102 + 0.5 * hot)).max() <= 0.5


def test_without_heat_the_image_is_unchanged() -> None:
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.float32) / 255
    assert np.array_equal(
        overlay_heat_map(image, np.zeros((5, 7), np.float32), 0.7), np.rint(image * 255).astype(np.uint8)
    )


def test_panels_are_a_picture_that_is_the_same_every_time() -> None:
    """Wide and tall images, with and without heat, a caption that does not fit and letters that the font lacks."""
    rng = np.random.default_rng(1)
    rows = [
        [Panel(rng.random((20, 10)).astype(np.float32), None, "a very long caption " * 20)],
        [Panel(rng.random((10, 20)).astype(np.float32), rng.random((10, 20)).astype(np.float32), "œdème 心")] * 2,
    ]
    png = draw_panels(rows, size=64, title="words")
    assert png == draw_panels(rows, size=64, title="words")
    page = decode(png, "page")
    assert page.ndim == 3 and page.shape[1] > 2 * 64 and page.shape[0] > 2 * 64


def test_a_caption_stands_right_under_a_wide_image() -> None:
    """An image four times as wide as high leaves no empty square above its caption."""
    wide = Panel(np.zeros((40, 160), np.float32), None, "left")
    page = decode(draw_panels([[wide], [wide]], size=320), "page")
    assert page.shape[0] < 2 * (80 + 22 + 10) + 20
    tall = Panel(np.zeros((160, 40), np.float32), None, "left")
    assert decode(draw_panels([[tall] * 3], size=320), "page").shape[1] < 3 * (120 + 80) + 20


def test_the_sheet_has_one_scale_and_one_tile_a_head() -> None:
    """The hottest cell of all is the only one in the hottest colour."""
    values = np.zeros((3, 2, 2, 2), np.float32)
    values[2, 1, 0, 0], values[0, 0, 1, 1] = 1.0, 0.5
    page = decode(draw_sheet(values, "word", side=20), "sheet")
    tiles = page[:, : page.shape[1] - 90]
    hottest = (tiles == apply_colour_map(np.float32(1.0))).all(axis=2)
    assert hottest.sum() == 100  # one cell of 10 x 10 pixels
    assert (tiles == apply_colour_map(np.float32(0.5))).all(axis=2).sum() == 100
    assert len(draw_sheet(np.zeros((1, 1, 3, 4), np.float32), "flat")) > 0


def test_a_picture_that_nobody_could_open_is_refused() -> None:
    panel = Panel(np.zeros((4, 4), np.float32), None, "x")
    with pytest.raises(ConfigError, match="explain fewer words"):
        draw_panels([[panel]] * 4000, size=320)
