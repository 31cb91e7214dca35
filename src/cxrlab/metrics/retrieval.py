"""Retrieval: rank of the first right candidate, recall at k, and the recalls of chance and of one fixed order.

A candidate is right when it has the same key as the query. Keys repeat (many reports are the same normal one), so
several candidates may be right, and chance depends on how many.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cxrlab.metrics.base import Matrix, Metric, Tally, mean_tally

Vectors = NDArray[np.float32]
Keys = NDArray[np.int64]

UNKNOWN = -1  # key of something unknown; it matches nothing
# Cosines held at once: 64 MiB, whatever the number of queries and candidates.
BLOCK = 1 << 24


def first_match_rank(queries: Vectors, wanted: Keys, gallery: Vectors, keys: Keys) -> NDArray[np.int64]:
    """Rank of the first right candidate for each query, from 1; 0 where there is none or the query's key is unknown.

    A wrong candidate that is exactly as similar as the best right one ranks before it: an encoder that gives every
    image the same vector then finds nothing, instead of everything. Vectors that are not numbers raise `ValueError`.

    Args:
        queries: Rows of length 1, [Q, D].
        wanted: Key of each query, [Q].
        gallery: Rows of length 1, [N, D].
        keys: Key of each candidate, [N].
    """
    if not (np.isfinite(queries).all() and np.isfinite(gallery).all()):
        raise ValueError("a vector to rank by holds something that is not a number")
    places = np.zeros(len(queries), np.int64)
    counts = match_counts(wanted, keys)
    order = np.argsort(keys, kind="stable")
    starts = np.searchsorted(keys[order], wanted)
    matched = np.flatnonzero(counts)
    step = max(1, BLOCK // max(1, len(gallery)))
    for start in range(0, len(matched), step):
        rows = matched[start : start + step]
        cosines = queries[rows] @ gallery.T
        # The right candidates of a query stand side by side in the order of keys: all of the block's in one row.
        many = counts[rows]
        ends = np.cumsum(many)
        inside = np.arange(ends[-1]) - np.repeat(ends - many, many)
        right = cosines[np.repeat(np.arange(len(rows)), many), order[np.repeat(starts[rows], many) + inside]]
        best = np.maximum.reduceat(right, ends - many)
        equal = np.add.reduceat((right >= np.repeat(best, many)).astype(np.int64), ends - many)
        places[rows] = np.count_nonzero(cosines >= best[:, None], axis=1) - equal + 1
    return places


def match_counts(wanted: Keys, keys: Keys) -> NDArray[np.int64]:
    """How many candidates are right for each query [Q]; 0 for an unknown key."""
    known, counts = np.unique(keys[keys != UNKNOWN], return_counts=True)
    if not len(known):
        return np.zeros(len(wanted), np.int64)
    spots = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[spots] == wanted, counts[spots], 0).astype(np.int64)


def recall(direction: str, places: NDArray[np.int64], k: int) -> Tally:
    """Share of queries with a right candidate among the first k; a query without any right one has no value."""
    hits = np.where(places > 0, (places <= k).astype(np.float64), np.nan)
    return mean_tally(recall_card(direction, k), hits)


def recall_card(direction: str, k: int) -> Metric:
    """The card of recall@k."""
    return Metric(
        name=f"{direction}.recall@{k}",
        direction="higher",
        range=(0.0, 1.0),
        identity=None,
        undefined="queries without a right candidate",
        conventions={"ties": "against"},
        about=f"share of queries with a right candidate among the first {k}",
    )


def chance(right: NDArray[np.int64], gallery: int, k: int) -> float:
    """The recall of a random order: mean of 1 − C(N − m, k) / C(N, k) over queries with m > 0 right of N.

    Not-a-number when no query has a right candidate.
    """
    some = right[right > 0]
    if not len(some):
        return float("nan")
    drawn = np.arange(min(k, gallery))
    missed: Matrix = np.clip(gallery - some[:, None] - drawn, 0, None) / (gallery - drawn)
    return float(1.0 - missed.prod(axis=1).mean())


def fixed_order(wanted: Keys, keys: Keys, k: int) -> float:
    """The best recall of the same order for every query: the share of queries with one of the k commonest keys.

    Where reports repeat it lies far above a random order. Not-a-number when no query has a right candidate.
    """
    matched = wanted[match_counts(wanted, keys) > 0]
    if not len(matched):
        return float("nan")
    times = np.sort(np.unique(matched, return_counts=True)[1])[::-1]
    return float(times[:k].sum() / len(matched))
