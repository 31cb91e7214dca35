"""Connected parts of a mask, in numpy alone: runs of pixels in rows, joined where they touch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.intp]


@dataclass(frozen=True)
class Parts:
    """Parts of a mask, one entry each; right and bottom are exclusive.

    Args:
        left: First column.
        top: First row.
        right: Column after the last.
        bottom: Row after the last.
        area: Pixels.
        peak: Largest of the values given with the mask.
        edge: Mean over its outline of the steps given with the mask.
        strokes: How often a row through it crosses it, on average.
    """

    left: Ints
    top: Ints
    right: Ints
    bottom: Ints
    area: Ints
    peak: Ints
    edge: NDArray[np.float64]
    strokes: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.left)

    @property
    def height(self) -> Ints:
        """Rows of each part's box."""
        return self.bottom - self.top

    @property
    def width(self) -> Ints:
        """Columns of each part's box."""
        return self.right - self.left

    def chosen(self, which: NDArray[np.bool_] | Ints) -> Parts:
        """Some of the parts."""
        return Parts(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


def parts_of(mask: NDArray[np.bool_], values: NDArray[np.uint8], steps: NDArray[np.uint8]) -> Parts:
    """The 8-connected parts of a mask, [H, W], in the order of their first pixel.

    Args:
        mask: What belongs to a part.
        values: The peak of each part is taken from here; same shape.
        steps: Difference of each pixel to its neighbours, for the edge of each part; same shape.
    """
    rows, starts, ends = _runs(mask)
    if not len(rows):
        none, nothing = np.zeros(0, np.intp), np.zeros(0)
        return Parts(none, none, none, none, none, none, nothing, nothing)
    roots, part = np.unique(_joined(rows, starts, ends, mask.shape[1]), return_inverse=True)
    count = len(roots)
    left, top = np.full(count, mask.shape[1]), np.full(count, mask.shape[0])
    right, bottom, area, peak = (np.zeros(count, np.intp) for _ in range(4))
    np.minimum.at(left, part, starts)
    np.minimum.at(top, part, rows)
    np.maximum.at(right, part, ends)
    np.maximum.at(bottom, part, rows + 1)
    np.add.at(area, part, ends - starts)
    # The pixels of all runs in order are those of the mask in order, so a run is a stretch of them.
    stretches = np.concatenate([[0], np.cumsum(ends - starts)[:-1]])
    np.maximum.at(peak, part, np.maximum.reduceat(values[mask], stretches).astype(np.intp))
    rim = _outline(mask)[mask]
    rims, total = np.zeros(count), np.zeros(count)
    np.add.at(rims, part, np.add.reduceat(rim, stretches, dtype=np.intp))
    np.add.at(total, part, np.add.reduceat(steps[mask] * rim, stretches, dtype=np.intp))
    strokes = np.bincount(part, minlength=count) / (bottom - top)
    return Parts(left, top, right, bottom, area, peak, total / rims, strokes)


def _outline(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Pixels of a mask with a neighbour above, below or beside them that is not of it; so are those at the rim."""
    framed = np.pad(mask, 1)
    inner = framed[:-2, 1:-1] & framed[2:, 1:-1] & framed[1:-1, :-2] & framed[1:-1, 2:]
    return mask & ~inner


def _runs(mask: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """Row, first column and column after the last of every unbroken stretch, row by row."""
    edges = np.zeros((mask.shape[0], mask.shape[1] + 1), bool)
    edges[:, 1:-1] = mask[:, 1:] != mask[:, :-1]
    edges[:, 0], edges[:, -1] = mask[:, 0], mask[:, -1]
    rows, columns = np.nonzero(edges)
    return rows[::2], columns[::2], columns[1::2]


def _joined(rows: Ints, starts: Ints, ends: Ints, width: int) -> Ints:
    """For each run the number of the first run of its part."""
    stride = width + 2
    below = (rows + 1) * stride
    # Touching at a corner counts, so a run below may start where this one has just ended.
    first = np.searchsorted(rows * stride + ends, below + starts, "left")
    after = np.searchsorted(rows * stride + starts, below + ends, "right")
    many = np.maximum(after - first, 0)
    upper = np.repeat(np.arange(len(rows)), many)
    lower = np.arange(len(upper)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)
    root = np.arange(len(rows))
    while True:
        one, other = root[upper], root[lower]
        if (one == other).all():
            return root
        least = np.minimum(one, other)
        np.minimum.at(root, one, least)
        np.minimum.at(root, other, least)
        while (root[root] != root).any():
            root = root[root]
