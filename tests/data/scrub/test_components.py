"""Connected parts of masks, against pictures drawn by hand and another library's answer."""

from __future__ import annotations

import numpy as np
import pytest
from tables import every_row

from cxrlab.data.burned_in_text import parts_of


def mask(*rows: str) -> np.ndarray:
    return np.array([[cell == "#" for cell in row] for row in rows])


def found(drawn: np.ndarray) -> list[tuple[int, int, int, int, int]]:
    parts = parts_of(drawn, drawn.astype(np.uint8), drawn.astype(np.uint8))
    rows = zip(parts.left, parts.top, parts.right, parts.bottom, parts.area, strict=True)
    return [tuple(map(int, row)) for row in rows]  # type: ignore[misc]


def test_corners_join_and_gaps_part() -> None:
    """A diagonal is one part of three pixels; a column further off is another."""
    assert found(mask("#...#", ".#..#", "..#..")) == [(0, 0, 3, 3, 3), (4, 0, 5, 2, 2)]


def test_a_u_is_one_part_although_its_arms_start_apart() -> None:
    """The two arms are known to belong together only at the bottom."""
    assert found(mask("#..#", "#..#", "####")) == [(0, 0, 4, 3, 8)]


def test_a_spiral_is_one_part() -> None:
    """Runs that meet late and in the wrong order."""
    assert len(found(mask("#######", "......#", "#####.#", "#...#.#", "#.###.#", "#.....#", "#######"))) == 1


@pytest.mark.parametrize("drawn", [mask("...", "..."), np.zeros((0, 4), bool)])
def test_nothing_has_no_parts(drawn: np.ndarray) -> None:
    """An empty mask, or one without rows."""
    assert found(drawn) == []


def test_peak_strokes_and_edge() -> None:
    """A ring of 3 x 3: eight pixels, crossed 1, 2 and 1 times; its outline is all of it."""
    ring = mask("###", "#.#", "###")
    values = np.arange(9, dtype=np.uint8).reshape(3, 3)
    parts = parts_of(ring, values, np.full((3, 3), 5, np.uint8))
    assert parts.peak.tolist() == [8] and parts.strokes.tolist() == [4 / 3] and parts.edge.tolist() == [5.0]


@every_row("seed", range(8))
def test_agrees_with_another_library(seed: int) -> None:
    """Random masks from sparse to dense, of odd shapes; parts come in the same order."""
    ndimage = pytest.importorskip("scipy.ndimage")
    rng = np.random.default_rng(seed)
    drawn = rng.random((int(rng.integers(1, 60)), int(rng.integers(1, 60)))) < rng.uniform(0.1, 0.7)
    labels, count = ndimage.label(drawn, np.ones((3, 3)))
    expected = [
        (cut[1].start, cut[0].start, cut[1].stop, cut[0].stop, int((labels == number).sum()))
        for number, cut in enumerate(ndimage.find_objects(labels), 1)
    ]
    assert found(drawn) == expected and len(expected) == count
