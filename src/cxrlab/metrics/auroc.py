"""Area under the ROC curve, with an interval by patient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.tally import Matrix, ratio

# Numbers of one block of trials × cases: 32 MiB.
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Auroc:
    """How well a score tells the ill from the well.

    Args:
        value: Probability that a positive case scores above a negative one, ties counted half; not-a-number without
            both kinds.
        low: Lower end of the interval.
        high: Upper end.
        positives: Cases with the finding.
        negatives: Cases without it.
    """

    value: float
    low: float
    high: float
    positives: int
    negatives: int


def auroc(scores: Matrix, truth: NDArray[np.bool_], weights: Matrix | None = None) -> Matrix:
    """The area for each row of weights [T, N] → [T]; one area with weight 1 for all when there are none.

    Args:
        scores: One a case, [N]; higher means more likely.
        truth: Whether the finding is there, [N].
        weights: How often each case was drawn, [T, N].
    """
    times = np.ones((1, len(scores))) if weights is None else weights
    order = np.argsort(scores, kind="stable")
    ranked, there = scores[order], truth[order]
    # Cases of one and the same score are one group: half of the negatives of the group count as below.
    groups = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(ranked) else np.zeros(0, np.intp)
    areas = np.full(len(times), np.nan)
    if not len(groups):
        return areas
    step = max(1, _BLOCK // len(scores))
    for start in range(0, len(times), step):
        drawn = times[start : start + step][:, order]
        positive = np.add.reduceat(drawn * there, groups, axis=1)
        negative = np.add.reduceat(drawn * ~there, groups, axis=1)
        below = np.cumsum(negative, axis=1) - 0.5 * negative
        both = positive.sum(axis=1) * negative.sum(axis=1)
        areas[start : start + step] = ratio((positive * below).sum(axis=1), both)
    return areas


def auroc_interval(scores: Matrix, truth: NDArray[np.bool_], resamples: Resamples, level: float) -> Auroc:
    """The area with its interval; both ends are not-a-number with fewer than two patients of either kind.

    Args:
        scores: [N].
        truth: [N].
        resamples: Patients of the N cases, drawn again and again.
        level: Share of resamples inside the interval.
    """
    clusters = resamples.clusters
    fewer = min(clusters.holding(truth), clusters.holding(~truth))
    found = resamples.estimate(lambda weights: auroc(scores, truth, weights[:, clusters.codes]), fewer, (0.0, 1.0))
    low, high = found.interval(level)
    return Auroc(found.value, low, high, int(truth.sum()), int((~truth).sum()))
