"""Side markers (L or R, LT or RT, AP or PA, and a side with a view), told from other burned-in letters."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Shape = NDArray[np.float64]

# Letters of a side marker on a grid of 5 x 7: block letters, and the narrower foot and bowl of drawn ones.
_LETTERS = {
    "L": (
        "10000 10000 10000 10000 10000 10000 11111",
        "11000 11000 11000 11000 11000 11111 11111",
    ),
    "R": (
        "11110 10001 10001 11110 10100 10010 10001",
        "11110 11011 11011 11110 11110 11011 11011",
    ),
    "A": (
        "01110 10001 10001 11111 10001 10001 10001",
        "00100 01100 01010 01010 11110 10001 10001",
    ),
    "P": (
        "11110 10001 10001 11110 10000 10000 10000",
        "11110 11011 11011 11110 11000 11000 11000",
    ),
    "T": (
        "11111 00100 00100 00100 00100 00100 00100",
        "11111 11111 01100 01100 01100 01100 01100",
    ),
}
WORDS = ("L", "R", "LT", "RT", "AP", "PA", "LAP", "RAP", "LPA", "RPA")
_GRID = (7, 5)
_WAYS = 8
_PLACES = {name: place for place, name in enumerate(_LETTERS)}
ALIKE = 0.7


def is_marker(letters: list[NDArray[np.bool_]]) -> bool:
    """Whether masks of letters, in reading order, spell a side marker, upright, turned or mirrored."""
    if not 1 <= len(letters) <= len(WORDS[-1]):
        return False
    likeness = [_likeness(letter) for letter in letters]
    words = [word for word in WORDS if len(word) == len(letters)]
    # An image that is turned or mirrored has all its letters turned or mirrored alike, and maybe read backwards.
    return any(
        all(one[way, place] >= ALIKE for one, place in zip(order, (_PLACES[name] for name in word), strict=True))
        for word in words
        for way in range(_WAYS)
        for order in (likeness, likeness[::-1])
    )


def _likeness(letter: NDArray[np.bool_]) -> Shape:
    """[8, letters]: the best correlation, -1 to 1, with each letter in each way to turn and mirror it."""
    found = np.full((_WAYS, len(_LETTERS)), -1.0)
    for first, seen in ((0, letter), (4, np.rot90(letter))):
        height, width = seen.shape
        if 0.35 * height <= width <= 1.1 * height:  # the proportions of a capital letter
            grid = _on_grid(seen)
            views = np.stack([grid, grid[::-1], grid[:, ::-1], grid[::-1, ::-1]]).reshape(4, -1)
            spread = views.std(axis=1, keepdims=True)
            centred = (views - views.mean(axis=1, keepdims=True)) / np.maximum(spread, 1e-9)
            alike = centred @ _patterns() / views.shape[1]
            found[first : first + 4] = alike.reshape(4, len(_LETTERS), -1).max(axis=2)
    return found


def _on_grid(letter: NDArray[np.bool_]) -> Shape:
    """How much of each cell of the grid a letter covers, [7, 5]."""
    rows, columns = (_weights(side, cells) for side, cells in zip(letter.shape, _GRID, strict=True))
    return np.asarray(rows @ letter.astype(np.float64) @ columns.T)


def _weights(side: int, cells: int) -> Shape:
    """[cells, side]: the share of a cell that each pixel covers."""
    edges, pixels = np.linspace(0, side, cells + 1), np.arange(side)
    over = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.asarray(np.maximum(over, 0.0) * cells / side)


@cache
def _patterns() -> Shape:
    """[35, patterns]: every drawing of every letter, of mean 0 and spread 1."""
    rows = [[float(bit) for bit in drawn.replace(" ", "")] for drawings in _LETTERS.values() for drawn in drawings]
    grids = np.array(rows)
    centred = (grids - grids.mean(axis=1, keepdims=True)) / grids.std(axis=1, keepdims=True)
    return np.asarray(centred.T)
