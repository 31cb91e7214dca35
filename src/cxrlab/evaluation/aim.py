"""How well one map points at one mask.

hit      1 when the hottest place of the map lies within half a cell of the mask: for attention when the
         hottest cell holds a pixel of it, for gradients when the hottest pixel is that near
chance   how often a random cell (or pixel) would hit, exactly
mass     share of the map's heat that lies inside the mask
area     share of the image that the mask covers: the mass of a map that is the same everywhere
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.models.hf.token_grid import Grid

Array = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Aim:
    """The four numbers of one map and one mask, each 0 to 1."""

    hit: float
    chance: float
    mass: float
    area: float


def aim_of_cells(values: Array, mask: Mask, grid: Grid) -> Aim:
    """A map [rows, columns] of the grid against a mask [H, W] of the image.

    The heat of a cell is spread evenly over it. What of a mask lies where the model does not look (outside a crop)
    can be neither hit nor covered.
    """
    rows, columns = grid.cells(*mask.shape)
    pixels, covered = np.zeros(values.shape), np.zeros(values.shape)
    inside = np.ix_(rows >= 0, columns >= 0)
    where = np.ix_(rows[rows >= 0], columns[columns >= 0])
    np.add.at(pixels, where, 1.0)
    np.add.at(covered, where, mask[inside].astype(np.float64))
    # A cell that a small image leaves without any pixel covers nothing.
    share = np.divide(covered, pixels, out=np.zeros(values.shape), where=pixels > 0)
    return _aim(values, covered > 0, share, mask)


def aim_of_pixels(values: Array, mask: Mask, reach: float) -> Aim:
    """A map [H, W] of the image against a mask of the same size.

    Args:
        values: At least 0.
        mask: Where the finding lies.
        reach: How far beside the mask the hottest pixel may lie, in pixels, up, down, left and right alike.
    """
    return _aim(values, grown(mask, int(reach)), mask.astype(np.float64), mask)


def grown(mask: Mask, pixels: int) -> Mask:
    """The mask and everything up to so many pixels away in each direction (a square, not a disc)."""
    out = mask
    for axis in (0, 1):
        # How many mask pixels lie within reach, by differences of a running sum: the same time for any reach.
        running = np.cumsum(np.insert(out.astype(np.int64), 0, 0, axis=axis), axis=axis)
        length = out.shape[axis]
        high = np.minimum(np.arange(length) + pixels + 1, length)
        low = np.maximum(np.arange(length) - pixels, 0)
        out = np.take(running, high, axis=axis) > np.take(running, low, axis=axis)
    return np.asarray(out)


def _aim(values: Array, reached: Mask, share: NDArray[np.float64], mask: Mask) -> Aim:
    heat = values.astype(np.float64)
    total = float(heat.sum())
    # A map without heat says nothing: it is as good as one that is the same everywhere.
    spread = heat / total if total > 0 else np.full(heat.shape, 1 / heat.size)
    hottest = values == values.max()  # several at once are a tie, of which one would be drawn
    return Aim(
        hit=float(reached[hottest].mean()),
        chance=float(reached.mean()),
        mass=float((spread * share).sum()),
        area=float(mask.mean()),
    )
