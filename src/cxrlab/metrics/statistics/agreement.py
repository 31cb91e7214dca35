"""How far a metric orders reports as people do: Kendall's τ-b, preference accuracy, and the raters' own ceiling.

In every function here a higher number means a better report; turn a metric round whose lower values are better.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.statistics.clusters import Clusters
from cxrlab.metrics.statistics.kendall import kendall_tau, order_of, resampled_tau, two_lists
from cxrlab.metrics.tally import Matrix, ratio


@dataclass(frozen=True)
class Agreement:
    """A rank correlation with its interval.

    Args:
        tau: Kendall's τ-b in [-1, 1]; not-a-number when one side is constant or fewer than two pairs are known.
        low: Lower end, by cluster; not-a-number with fewer than two clusters.
        high: Upper end.
        n: Pairs known on both sides; the others stay out.
    """

    tau: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class TauDifference:
    """How much better the first metric orders than the second, on the pairs that both and the rating know.

    Args:
        first: τ-b of the first metric.
        second: τ-b of the second.
        difference: first − second.
        low: Lower end of the interval of the difference, both on the same resamples.
        high: Upper end.
        n: Pairs.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Preference:
    """How often a metric prefers the report that people prefer.

    Args:
        correct: Pairs of reports put in the raters' order.
        tied: Pairs to which the metric gives the same value; half a point each.
        n: Pairs of reports of one study with different ratings and known values.
    """

    correct: int
    tied: int
    n: int

    @property
    def accuracy(self) -> float:
        """In [0, 1], 0.5 for a constant metric; not-a-number without pairs."""
        return (self.correct + self.tied / 2) / self.n if self.n else float("nan")


def tau_with_interval(
    x: ArrayLike,
    y: ArrayLike,
    clusters: Sequence[str],
    *,
    trials: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> Agreement:
    """τ-b of a metric with a rating, and its interval by cluster.

    Args:
        x: Values of the metric [N]; not-a-number where it has none.
        y: Ratings [N].
        clusters: What is drawn together [N], such as the study that two candidates share.
        trials: Resamples.
        level: Of the interval.
        rng: Source of the resamples.
    """
    one, two = two_lists(x, y)
    known, draws = _known([one, two], clusters, trials, rng)
    one, two = one[known], two[known]
    ends = resampled_tau(one, two, draws).interval(level)
    return Agreement(kendall_tau(one, two), ends.low, ends.high, len(one))


def tau_difference(
    first: ArrayLike,
    second: ArrayLike,
    y: ArrayLike,
    clusters: Sequence[str],
    *,
    trials: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> TauDifference:
    """τ-b of the first metric minus that of the second, both with the rating `y` on the same resamples."""
    one, two = two_lists(first, second)
    rating = two_lists(y, y)[0]
    known, draws = _known([one, two, rating], clusters, trials, rng)
    one, two, rating = one[known], two[known], rating[known]
    ends = resampled_tau(one, rating, draws).minus(resampled_tau(two, rating, draws)).interval(level)
    better, worse = kendall_tau(one, rating), kendall_tau(two, rating)
    return TauDifference(better, worse, better - worse, ends.low, ends.high, len(one))


def preference_accuracy(scores: ArrayLike, ratings: ArrayLike, groups: Sequence[str]) -> Preference:
    """Over all pairs of reports of one group (study) whose ratings differ; a missing value leaves its pairs out."""
    metric, rating = two_lists(scores, ratings)
    members: dict[str, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    if len(metric) != len(groups):
        raise ValueError(f"{len(metric)} values do not fit {len(groups)} group names")
    correct = tied = n = 0
    for inside in members.values():
        i, j = np.triu_indices(len(inside), 1)
        left, right = np.asarray(inside)[i], np.asarray(inside)[j]
        people, ours = order_of(rating[left], rating[right]), order_of(metric[left], metric[right])
        asked = (people != 0) & ~(np.isnan(metric[left]) | np.isnan(metric[right]))
        n += int(asked.sum())
        correct += int((asked & (people == ours)).sum())
        tied += int((asked & (ours == 0)).sum())
    return Preference(correct, tied, n)


def leave_one_out_tau(ratings: ArrayLike) -> list[float]:
    """For each rater τ-b of their ratings with the mean of the others: the ceiling of any metric.

    Args:
        ratings: [N, R], at least two raters; not-a-number where one did not rate.
    """
    table = np.asarray(ratings, dtype=np.float64)
    return [kendall_tau(table[:, rater], others_mean(table, rater)) for rater in range(table.shape[1])]


def others_mean(ratings: Matrix, rater: int) -> Matrix:
    """Mean of all other raters [N] of a table [N, R]; not-a-number where none of them rated."""
    if ratings.ndim != 2 or ratings.shape[1] < 2:
        raise ValueError(f"ratings of shape {ratings.shape} are not [N, R] with at least two raters")
    others = np.delete(ratings, rater, axis=1)
    return ratio(np.nansum(others, axis=1), (~np.isnan(others)).sum(axis=1))


def _known(
    columns: Sequence[Matrix], clusters: Sequence[str], trials: int, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], Resamples]:
    """Where every column has a value, and resamples of the clusters that are left."""
    if any(len(column) != len(clusters) for column in columns):
        raise ValueError(f"{[len(column) for column in columns]} values do not fit {len(clusters)} cluster names")
    known = ~np.any(np.isnan(np.stack(columns)), axis=0).reshape(-1)
    left = [name for name, kept in zip(clusters, known, strict=True) if kept]
    return known, Resamples(Clusters(left), trials=trials, rng=rng)
