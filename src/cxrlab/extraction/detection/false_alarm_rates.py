"""Thresholds that bound the rate of false alarms for benign traffic of any distribution (conformal prediction).

A new benign score is equally likely to take any rank among n others: it exceeds the r-th smallest of them with
probability (n + 1 - r) / (n + 1), whatever the distribution. That holds over all draws of the n scores: the rate of one
threshold has a beta distribution around it, and is above it half of the time. The rate per image is therefore bounded
with confidence; the rate per account, since there are few accounts, on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cxrlab.metrics.statistics.intervals import clopper_pearson

_SLACK = 1e-9  # 499 of 500 must not become 499.0000001 of 500
CONFIDENCE = 0.95  # that the rate of false alarms per image is within its bound


def min_images_for_bound(bound: float) -> int:
    """The fewest benign scores of which the largest is, with confidence, exceeded by a share of at most `bound`."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-bound) - _SLACK)


def tolerance_rank(n: int, bound: float) -> int:
    """Which of n benign scores, from 1 for the smallest, is, with confidence, exceeded by a share of at most `bound`.

    The number of scores above it would be surprisingly low if the share were `bound`.
    """
    needed = min_images_for_bound(bound)
    if n < needed:
        raise ValueError(f"{n} benign scores cannot bound false alarms by {bound} with confidence; {needed} can")
    above, chance = -1, 0.0
    while above < n:
        one_more = above + 1
        log = math.lgamma(n + 1) - math.lgamma(one_more + 1) - math.lgamma(n - one_more + 1)
        chance += math.exp(log + one_more * math.log(bound) + (n - one_more) * math.log1p(-bound))
        if chance > 1 - CONFIDENCE + _SLACK:
            break
        above = one_more
    return n - max(above, 0)


def min_scores_for_bound(bound: float) -> int:
    """The fewest benign scores that can bound the rate of false alarms by `bound`."""
    return math.ceil(1 / bound - 1 - _SLACK)


def conformal_rank(n: int, bound: float) -> int:
    """Which of n benign scores, counted from 1 for the smallest, is the threshold for this bound."""
    rank = math.ceil((n + 1) * (1 - bound) - _SLACK)
    if rank > n:
        raise ValueError(f"{n} benign scores cannot bound false alarms by {bound}; {min_scores_for_bound(bound)} can")
    return max(1, rank)


def score_at_rank(scores: Sequence[float], rank: int) -> float:
    """The score of this rank, counted from 1 for the smallest; no score may be not-a-number."""
    return float(np.sort(np.asarray(scores, np.float64))[rank - 1])


def alarm_count(n: int, rank: int, queries: int, bound: float) -> int:
    """How many flagged images of `queries` a benign account reaches with probability at most `bound`.

    The threshold is the score of this rank among n benign ones. The rate at which benign images exceed it has a beta
    distribution over the draw of the n scores, so that the count is beta-binomial. `queries` + 1 means that no count is
    rare enough.
    """
    above, tail = n + 1 - rank, 1.0
    for count in range(queries + 1):
        if tail <= bound:
            return count
        log = math.lgamma(queries + 1) - math.lgamma(count + 1) - math.lgamma(queries - count + 1)
        tail -= math.exp(log + (_log_beta(count + above, queries - count + rank) - _log_beta(above, rank)))
    return queries + 1


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@dataclass(frozen=True)
class Share:
    """A share in [0, 1] with its exact interval (Clopper-Pearson, 95 %) from n independent trials; None of none."""

    value: float | None
    low: float | None
    high: float | None
    n: int


def share(successes: float, n: int, *, independent: int | None = None, level: float = 0.95) -> Share:
    """The share of successes in n trials, with the exact interval.

    If only some trials are `independent`, the interval is that of the same share among so many, which is never
    narrower than that of all n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is not a count")
    trials = n if independent is None else min(n, independent)
    if not trials:
        return Share(successes / n if n else None, None, None, 0)
    low, high = clopper_pearson(successes / n * trials, trials, 1 - level).ends
    return Share(successes / n, low, high, trials)
