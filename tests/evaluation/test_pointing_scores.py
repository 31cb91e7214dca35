"""Pointing and mass, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cxrlab.evaluation.pointing import PointingScore, dilate, score_on_grid, score_on_pixels
from cxrlab.models.hf.families import Grid

WHOLE = Grid(2, 2, 0.0, 0.0, 8.0, 8.0)


def mask(*boxes: tuple[int, int, int, int]) -> Any:
    """True in each box of rows [a, b) and columns [c, d) of an 8 x 8 image."""
    found = np.zeros((8, 8), bool)
    for a, b, c, d in boxes:
        found[a:b, c:d] = True
    return found


def heat(*values: float) -> Any:
    return np.array(values, np.float32).reshape(2, 2)


def test_a_hot_cell_over_the_mask() -> None:
    """8 of 16 pixels of the first cell are mask: half of its heat, 0.7, lies inside; one cell of four would hit."""
    assert score_on_grid(heat(7, 1, 1, 1), mask((0, 2, 0, 4)), WHOLE) == PointingScore(
        1.0, 0.25, pytest.approx(0.35), 0.125
    )


def test_a_hot_cell_elsewhere() -> None:
    aim = score_on_grid(heat(1, 7, 1, 1), mask((0, 2, 0, 4)), WHOLE)
    assert (aim.hit, aim.mass) == (0.0, pytest.approx(0.05))


def test_a_large_mask_is_no_free_win() -> None:
    """Everything hits, and chance says so; the mass of any map is the area."""
    aim = score_on_grid(heat(7, 1, 1, 1), mask((0, 8, 0, 8)), WHOLE)
    assert (aim.hit, aim.chance, aim.mass, aim.area) == (1.0, 1.0, pytest.approx(1.0), 1.0)


def test_a_flat_map_is_chance() -> None:
    """A tie of all cells hits as often as a random cell, and its mass is the area; so is a map without heat."""
    where = mask((0, 3, 0, 3))
    for flat in (heat(1, 1, 1, 1), heat(0, 0, 0, 0)):
        aim = score_on_grid(flat, where, WHOLE)
        assert aim.hit == aim.chance == 0.25 and aim.mass == pytest.approx(aim.area)
    pixels = score_on_pixels(np.ones((8, 8), np.float32), where, 0)
    assert pixels.hit == pixels.chance == pixels.area == pytest.approx(pixels.mass) == 9 / 64


def test_what_a_crop_leaves_out_cannot_be_hit() -> None:
    """The grid sees columns 2 to 6; a mask at column 0 is out of sight, one at column 5 in the second cell."""
    crop = Grid(1, 2, 0.0, 2.0, 8.0, 4.0)
    values = np.array([[0.0, 1.0]], np.float32)
    assert score_on_grid(values, mask((0, 8, 0, 1)), crop).chance == 0.0
    assert score_on_grid(values, mask((0, 8, 5, 6)), crop) == PointingScore(1.0, 0.5, pytest.approx(0.5), 0.125)


def test_the_hottest_pixel_may_lie_half_a_cell_beside() -> None:
    values = np.zeros((8, 8), np.float32)
    values[4, 6] = 1.0
    where = mask((0, 2, 4, 5))  # three rows above and two columns left of the hot pixel
    assert score_on_pixels(values, where, 3.0).hit == 1.0
    assert score_on_pixels(values, where, 2.9).hit == 0.0
    assert score_on_pixels(values, where, 3.0).mass == 0.0


def test_growing_is_a_square_that_stays_on_the_image() -> None:
    assert np.array_equal(dilate(mask((0, 1, 7, 8)), 2), mask((0, 3, 5, 8)))
    assert np.array_equal(dilate(mask((3, 4, 3, 4)), 0), mask((3, 4, 3, 4)))
    assert dilate(mask((3, 4, 3, 4)), 99).all() and not dilate(mask(), 3).any()
