"""Bounds of run-length masks, against the mask drawn pixel by pixel."""

from __future__ import annotations

import numpy as np
from tables import every_row

from cxrlab.data.sources.candid_ptx import run_bounds


def test_a_run_within_one_column() -> None:
    """Ten rows: pixel 23 is in column 2, row 3; four pixels reach row 6."""
    assert run_bounds("23 4", 10, 8) == (2, 3, 3, 7)


def test_skips_count_from_the_end_of_the_run_before() -> None:
    """23 + 4 + 9 = 36: column 3, row 6. Counted from the start of the image the second run would be in column 0."""
    assert run_bounds("23 4 9 2", 10, 8) == (2, 3, 4, 8)


def test_a_run_over_the_edge_of_a_column_touches_both_edges() -> None:
    assert run_bounds("19 2", 10, 8) == (1, 0, 3, 10)


@every_row("runs", ["", "-1", "5", "1 2 3", "a b", "1 -2", "1.5 2", "0 81", "80 1", "5 0", "9" * 5000 + " 1"])
def test_what_is_no_mask_of_the_image_has_no_bounds(runs: str) -> None:
    """Odd counts, words, negative numbers, runs beyond the 80 pixels, a mask of no pixel, a number without end."""
    assert run_bounds(runs, 10, 8) is None


@every_row("seed", range(30))
def test_bounds_agree_with_the_drawn_mask(seed: int) -> None:
    """The oracle fills a flat image run by run, folds it into columns and looks where it is set."""
    rng = np.random.default_rng(seed)
    height, width = int(rng.integers(1, 12)), int(rng.integers(1, 12))
    flat = np.zeros(height * width, bool)
    pairs, end = [], 0
    while True:
        skip, length = int(rng.integers(0, 9)), int(rng.integers(1, 7))
        if end + skip + length > flat.size:
            break
        flat[end + skip : end + skip + length] = True
        end += skip + length
        pairs += [skip, length]
    if not pairs:
        pairs, flat[0] = [0, 1], True
    columns, rows = np.nonzero(flat.reshape(width, height))
    drawn = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    bounds = run_bounds(" ".join(map(str, pairs)), height, width)
    assert bounds is not None
    # A run over a column's edge is bounded by both edges, as drawn.
    assert bounds == tuple(int(edge) for edge in drawn)
