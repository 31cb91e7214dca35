"""Which of many things are alike, without comparing each with each.

Things get several keys, chosen so that alike things share at least one of them almost surely. Only
things with an equal key are compared, so that the cost grows with their number and not with its square.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
Close = Callable[[Rows, Rows], NDArray[np.bool_]]

# Of things that share a key each is compared with this many that follow it; keys shared by more say little.
MOST_NEIGHBOURS = 64


def linked(keys: Iterable[NDArray[Any]], close: Close, count: int) -> list[list[int]]:
    """Groups of two or more things that are alike, directly or through others; rows in order.

    Args:
        keys: One array of `count` keys after another.
        close: For two arrays of rows, whether the things of each two rows are alike.
        count: Number of things.
    """
    roots = np.arange(count)
    for column in keys:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        for step in range(1, min(count, MOST_NEIGHBOURS + 1)):
            same = np.flatnonzero(ordered[step:] == ordered[:-step])
            if not len(same):
                break
            one, other = order[same], order[same + step]
            apart = roots[one] != roots[other]  # those that are linked already need no look
            one, other = one[apart], other[apart]
            alike = close(one, other)
            for a, b in zip(one[alike].tolist(), other[alike].tolist(), strict=True):
                _join(roots, a, b)
            if alike.any():
                roots = _settled(roots)
    return _groups(roots)


def _join(roots: Rows, one: int, other: int) -> None:
    """Let the later of two groups belong to the earlier."""
    first, second = sorted((_root(roots, one), _root(roots, other)))
    roots[second] = first


def _root(roots: Rows, row: int) -> int:
    while roots[row] != row:
        roots[row] = roots[roots[row]]
        row = int(roots[row])
    return row


def _settled(roots: Rows) -> Rows:
    """Every row led straight to the first of its group."""
    while not np.array_equal(roots, settled := roots[roots]):
        roots = settled
    return roots


def _groups(roots: Rows) -> list[list[int]]:
    order = np.argsort(roots, kind="stable")
    starts = np.flatnonzero(np.diff(roots[order], prepend=-1))
    return [part.tolist() for part in np.split(order, starts[1:]) if len(part) > 1]
