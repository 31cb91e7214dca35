"""Agreement of a metric with raters: Kendall's τ-b, preference accuracy, and the raters' own ceiling.

In every function a higher number means a better report; negate a metric whose lower values are better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrlab.metrics.base import Matrix, ratio
from cxrlab.metrics.statistics.intervals import Clusters, ResampledValue, Resamples, t_two_sided, trial_blocks


@dataclass(frozen=True)
class Agreement:
    """Kendall's τ-b over the `n` pairs known on both sides, with its interval by cluster.

    τ is not-a-number when one side is constant, the interval with fewer than two clusters.
    """

    tau: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class TauDifference:
    """τ-b of two metrics and first − second with its interval, on the `n` pairs that both and the rating have."""

    first: float
    second: float
    difference: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Preference:
    """How often a metric prefers the report that people prefer."""

    correct: int  # pairs of reports put in the raters' order
    tied: int  # pairs to which the metric gives the same value; half a point each
    n: int  # pairs of reports of one study with different ratings and known values

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
    """τ-b of a metric's values [N] with ratings [N]; clusters [N], such as studies, are resampled together."""
    one, two = two_lists(x, y)
    known, draws = _known([one, two], clusters, trials, rng)
    one, two = one[known], two[known]
    ends = resampled_tau(one, two, draws).estimate(level)
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
    ends = resampled_tau(one, rating, draws).minus(resampled_tau(two, rating, draws)).estimate(level)
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
        counted = (people != 0) & ~(np.isnan(metric[left]) | np.isnan(metric[right]))
        n += int(counted.sum())
        correct += int((counted & (people == ours)).sum())
        tied += int((counted & (ours == 0)).sum())
    return Preference(correct, tied, n)


def tau_per_rater(ratings: ArrayLike) -> list[float]:
    """For each rater τ-b of their ratings with the mean of the others: the ceiling of any metric.

    Ratings are [N, R] of at least two raters; not-a-number where one did not rate.
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


# Up to here the signs of all pairs fit into a small matrix, and every resample is a matrix product.
SQUARE = 2000


def kendall_tau(x: ArrayLike, y: ArrayLike) -> float:
    """τ-b of two lists in O(n log n); pairs with a not-a-number stay out; not-a-number when a side is constant."""
    one, two = two_lists(x, y)
    known = ~(np.isnan(one) | np.isnan(two))
    return _tau(_ranks(one[known]), _ranks(two[known]))


def resampled_tau(x: Matrix, y: Matrix, draws: Resamples) -> ResampledValue:
    """τ-b of two lists without a not-a-number, and in every resample."""
    codes = draws.clusters.codes
    ranks_x, ranks_y = _ranks(x), _ranks(y)
    kinds: tuple[Matrix, ...] = ()
    if len(x) <= SQUARE:
        sign_x, sign_y = order_of(x[:, None], x), order_of(y[:, None], y)
        kinds = (sign_x * sign_y, np.abs(sign_x), np.abs(sign_y))

    def taus(weights: Matrix) -> Matrix:
        if not kinds:  # long lists: each resample in full, in O(n log n)
            drawn = (np.repeat(np.arange(len(x)), row[codes].astype(np.intp)) for row in weights)
            return np.array([_tau(ranks_x[rows], ranks_y[rows]) for rows in drawn])
        # With S the signs of all pairs and w how often each was drawn, concordant − discordant is wᵀSw / 2.
        found = np.empty(len(weights))
        for start, stop in trial_blocks(len(weights), len(x)):
            times = weights[start:stop][:, codes]
            balance, apart_x, apart_y = (np.einsum("tn,tn->t", times @ kind, times) for kind in kinds)
            found[start:stop] = ratio(balance, np.sqrt(apart_x * apart_y))
        return found

    return draws.resample_value(taus, draws.clusters.count, (-1.0, 1.0))


def two_lists(x: ArrayLike, y: ArrayLike) -> tuple[Matrix, Matrix]:
    """Both as arrays [N] of equal length."""
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
    """τ-b of dense ranks.

    Sorted by x and, within ties of x, by y, the pairs whose y still stand in the wrong order are discordant. They are
    counted bit by bit from the highest: two ranks differ first at their highest differing bit. With the list sorted
    stably by the bits above, the pairs that differ first at this bit and stand in the wrong order are, within each run
    of equal upper bits, the ones before a zero.
    """
    n = len(x)
    if n < 2:
        return float("nan")
    discordant, ranks = 0, y[np.lexsort((y, x))]
    for bit in reversed(range(int(ranks.max(initial=0)).bit_length())):
        upper, ones = ranks >> (bit + 1), (ranks >> bit) & 1
        before = np.cumsum(ones)
        first = np.searchsorted(upper, upper)  # where this run begins
        discordant += int((before - (before[first] - ones[first]))[ones == 0].sum())
        ranks = ranks[np.argsort(ranks >> bit, kind="stable")]
    pairs = n * (n - 1) // 2
    tied_x, tied_y = _tied(x), _tied(y)
    both = _tied(x * (int(y.max()) + 1) + y)
    spread = (pairs - tied_x) * (pairs - tied_y)
    return (pairs - tied_x - tied_y + both - 2 * discordant) / spread**0.5 if spread else float("nan")


def _tied(codes: NDArray[np.intp]) -> int:
    """Pairs of equal codes."""
    times = np.unique(codes, return_counts=True)[1].astype(object)  # Python integers, which do not overflow
    return int((times * (times - 1) // 2).sum())


@dataclass(frozen=True)
class TTest:
    """A two-sided paired t-test; `t` is not-a-number with fewer than two items or without spread."""

    t: float
    df: int
    p: float


@dataclass(frozen=True)
class RaterComparison:
    """One rater and the judge, each against the mean of the other raters, on the items all of them rated."""

    rater: int  # column of the rater
    rater_difference: float  # mean absolute difference of the rater to the others' mean, in the unit of the rating
    judge_difference: float  # that of the judge to the same mean
    t: float  # paired t of judge − rater, with `df` and two-sided `p`; negative when the judge is closer
    df: int
    p: float
    n: int  # items


def compare_with_each_rater(ratings: ArrayLike, judge: ArrayLike) -> list[RaterComparison]:
    """Mean absolute differences of each rater and of the judge to the other raters, with a paired t-test.

    Args:
        ratings: [N, R], at least two raters; not-a-number where one did not rate.
        judge: [N], in the unit of the ratings (a count of errors, or a rating).
    """
    table, judged = np.asarray(ratings, dtype=np.float64), np.asarray(judge, dtype=np.float64)
    if judged.shape != table.shape[:1]:
        raise ValueError(f"a judge of shape {judged.shape} does not fit ratings of shape {table.shape}")
    comparisons = []
    for rater in range(table.shape[1]):
        others = others_mean(table, rater)
        of_rater, of_judge = np.abs(table[:, rater] - others), np.abs(judged - others)
        known = ~np.isnan(of_rater + of_judge)
        of_rater, of_judge = of_rater[known], of_judge[known]
        n = len(of_rater)
        means = (float(of_rater.mean()), float(of_judge.mean())) if n else (math.nan, math.nan)
        test = paired_t(of_judge, of_rater)
        comparisons.append(RaterComparison(rater, means[0], means[1], test.t, test.df, test.p, n))
    return comparisons


def paired_t(x: ArrayLike, y: ArrayLike) -> TTest:
    """The t-test of x − y against 0; not-a-number without spread in the differences."""
    change = np.asarray(x, dtype=np.float64) - np.asarray(y, dtype=np.float64)
    n = len(change)
    # Equal differences leave a spread of rounding alone, which would make t arbitrarily large.
    if n < 2 or np.ptp(change) <= 1e-12 * np.abs(change).max():
        return TTest(math.nan, max(0, n - 1), math.nan)
    t = float(change.mean() / (change.std(ddof=1) / math.sqrt(n)))
    return TTest(t, n - 1, t_two_sided(t, n - 1))
