"""Kendall's τ-b: of two lists, and of every resample of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrlab.metrics.statistics.bootstrap import Estimate, Resamples
from cxrlab.metrics.statistics.clusters import blocks_of
from cxrlab.metrics.tally import Matrix, ratio

# Up to here the signs of all pairs fit into a small matrix, and every resample is a matrix product.
SQUARE = 2000


def kendall_tau(x: ArrayLike, y: ArrayLike) -> float:
    """τ-b of two lists in O(n log n); pairs with a not-a-number stay out; not-a-number when a side is constant."""
    one, two = two_lists(x, y)
    known = ~(np.isnan(one) | np.isnan(two))
    return _tau(_ranks(one[known]), _ranks(two[known]))


def resampled_tau(x: Matrix, y: Matrix, draws: Resamples) -> Estimate:
    """τ-b of two lists without a not-a-number, and in every resample."""
    codes = draws.clusters.codes
    value_of = _by_product(x, y, codes) if len(x) <= SQUARE else _one_by_one(x, y, codes)
    return draws.estimate(value_of, draws.clusters.count, (-1.0, 1.0))


def two_lists(x: ArrayLike, y: ArrayLike) -> tuple[Matrix, Matrix]:
    """Both as arrays [N]; other shapes are a mistake of the programmer."""
    one, two = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if one.ndim != 1 or one.shape != two.shape:
        raise ValueError(f"shapes {one.shape} and {two.shape} are not two lists of equal length")
    return one, two


def order_of(left: Matrix, right: Matrix) -> Matrix:
    """1 where left is greater, -1 where right is, 0 where they are equal or unknown; right for infinities too."""
    return (left > right).astype(np.float64) - (left < right)


def _ranks(values: Matrix) -> NDArray[np.intp]:
    """Dense ranks from 0; equal values share one."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def _tau(x: NDArray[np.intp], y: NDArray[np.intp]) -> float:
    """τ-b of dense ranks."""
    n = len(x)
    if n < 2:
        return float("nan")
    order = np.lexsort((y, x))
    # Sorted by x and, within ties of x, by y: what still stands in the wrong order is discordant.
    discordant = _inversions(y[order])
    pairs = n * (n - 1) // 2
    tied_x, tied_y = _tied(x), _tied(y)
    both = _tied(x * (int(y.max()) + 1) + y)
    spread = (pairs - tied_x) * (pairs - tied_y)
    return (pairs - tied_x - tied_y + both - 2 * discordant) / spread**0.5 if spread else float("nan")


def _tied(codes: NDArray[np.intp]) -> int:
    """Pairs of equal codes."""
    times = np.unique(codes, return_counts=True)[1].astype(object)  # whole numbers without end
    return int((times * (times - 1) // 2).sum())


def _inversions(ranks: NDArray[np.intp]) -> int:
    """Pairs i < j with ranks[i] > ranks[j], bit by bit from the highest.

    Two ranks are first told apart at the highest bit in which they differ. With the list sorted stably
    by the bits above, the pairs told apart here are, inside each run of equal upper bits, the ones
    that stand before a zero.
    """
    total = 0
    for bit in reversed(range(int(ranks.max(initial=0)).bit_length())):
        upper, ones = ranks >> (bit + 1), (ranks >> bit) & 1
        before = np.cumsum(ones)
        first = np.searchsorted(upper, upper)  # where this run begins
        here = before - (before[first] - ones[first])
        total += int(here[ones == 0].sum())
        ranks = ranks[np.argsort(ranks >> bit, kind="stable")]
    return total


def _by_product(x: Matrix, y: Matrix, codes: NDArray[np.intp]) -> Callable[[Matrix], Matrix]:
    """With S the signs of all pairs and w how often each was drawn, concordant − discordant is wᵀSw / 2."""
    sign_x, sign_y = order_of(x[:, None], x), order_of(y[:, None], y)
    kinds = (sign_x * sign_y, np.abs(sign_x), np.abs(sign_y))

    def taus(weights: Matrix) -> Matrix:
        found = np.empty(len(weights))
        for start, stop in blocks_of(len(weights), len(x)):
            drawn = weights[start:stop][:, codes]
            balance, apart_x, apart_y = (np.einsum("tn,tn->t", drawn @ kind, drawn) for kind in kinds)
            found[start:stop] = ratio(balance, np.sqrt(apart_x * apart_y))
        return found

    return taus


def _one_by_one(x: Matrix, y: Matrix, codes: NDArray[np.intp]) -> Callable[[Matrix], Matrix]:
    """For long lists: each resample spelled out and counted in O(n log n)."""
    ranks_x, ranks_y = _ranks(x), _ranks(y)

    def taus(weights: Matrix) -> Matrix:
        drawn = (np.repeat(np.arange(len(x)), row[codes].astype(np.intp)) for row in weights)
        return np.array([_tau(ranks_x[rows], ranks_y[rows]) for rows in drawn])

    return taus
