"""Thresholds whose rate of false alarms is bounded for benign traffic of any distribution.

A score that comes from the same source as n benign ones is equally likely to take any place among them. So it exceeds
the r-th smallest of them with probability (n + 1 - r) / (n + 1), whatever the distribution. That holds over all draws
of the n scores: the rate of the one threshold that is used has a beta distribution around it, and is above it half of
the time. Images are therefore bounded with confidence, accounts, of which there are few, on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cxrlab.metrics.statistics.intervals import clopper_pearson

_SLACK = 1e-9  # 499 of 500 must not become 499.0000001 of 500
CONFIDENCE = 0.95  # that the rate of false alarms of an image is within its bound


def min_images_for_bound(bound: float) -> int:
    """The fewest benign scores of which the largest is, with confidence, exceeded by a share of at most `bound`."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-bound) - _SLACK)


def tolerance_rank(n: int, bound: float) -> int:
    """Which of n benign scores, from 1 for the smallest, is, with confidence, exceeded by a share of at most `bound`.

    As many lie above it as would be surprisingly few if the share were `bound`.
    """
    needed = min_images_for_bound(bound)
    if n < needed:
        raise ValueError(f"{n} benign scores cannot bound false alarms by {bound} for sure; {needed} could")
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
    """The fewest benign scores from which a rate of false alarms of at most `bound` can be had."""
    return math.ceil(1 / bound - 1 - _SLACK)


def conformal_rank(n: int, bound: float) -> int:
    """Which of n benign scores, counted from 1 for the smallest, is the threshold for this bound."""
    rank = math.ceil((n + 1) * (1 - bound) - _SLACK)
    if rank > n:
        raise ValueError(f"{n} benign scores cannot bound false alarms by {bound}; {min_scores_for_bound(bound)} could")
    return max(1, rank)


def score_at_rank(scores: Sequence[float], rank: int) -> float:
    """The score of this rank, counted from 1 for the smallest; no score may be not-a-number."""
    return float(np.sort(np.asarray(scores, np.float64))[rank - 1])


def alarm_count(n: int, rank: int, queries: int, bound: float) -> int:
    """How many flagged images of `queries` a benign account reaches with probability at most `bound`.

    Args:
        n: Benign scores behind the threshold of an image.
        rank: Which of them is the threshold.
        queries: Images that an account asks about.
        bound: Of false alarms, by account.

    How often benign images exceed the threshold is not known exactly: over the draw of the n scores it has a beta
    distribution, so that the count has a beta-binomial one. `queries` + 1 means that no count is rare enough.
    """
    above, tail = n + 1 - rank, 1.0
    for count in range(queries + 1):
        if tail <= bound:
            return count
        tail -= _beta_binomial(count, queries, above, rank)
    return queries + 1


def _beta_binomial(k: int, n: int, a: float, b: float) -> float:
    """P(k of n) where the rate has a beta distribution with a and b."""
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    log += _log_beta(k + a, n - k + b) - _log_beta(a, b)
    return math.exp(log)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


@dataclass(frozen=True)
class Share:
    """How many of how many.

    Args:
        value: In [0, 1]; None of none.
        low: Lower end of the interval of Clopper and Pearson at 95 %; None of none.
        high: Upper end.
        n: Independent trials behind the interval.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int


def share(successes: float, n: int, *, independent: int | None = None, level: float = 0.95) -> Share:
    """So many of n, with the exact interval.

    Args:
        successes: 0 to n.
        n: Trials.
        independent: Trials that have nothing in common, where not all n are independent. The interval is that of the
            same share among so many, which is never narrower than what all n tell.
        level: Of the interval.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is no count")
    trials = n if independent is None else min(n, independent)
    if not trials:
        return Share(successes / n if n else None, None, None, 0)
    low, high = clopper_pearson(successes / n * trials, trials, 1 - level).ends
    return Share(successes / n, low, high, trials)
