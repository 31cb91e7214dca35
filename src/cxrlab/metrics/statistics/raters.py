"""Would a judge be noticed among the raters? Each rater is left out in turn and the judge sits in that chair."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cxrlab.metrics.statistics.agreement import others_mean
from cxrlab.metrics.statistics.distributions import t_two_sided
from cxrlab.metrics.tally import Matrix


@dataclass(frozen=True)
class TTest:
    """A paired t-test.

    Args:
        t: Student's t; not-a-number with fewer than two items or without spread.
        df: Degrees of freedom.
        p: Two-sided.
    """

    t: float
    df: int
    p: float


@dataclass(frozen=True)
class RaterComparison:
    """One rater and the judge, each against the mean of the other raters, on the items all of them rated.

    Args:
        rater: Column of the rater.
        rater_difference: Mean absolute difference of the rater to the others' mean, in the unit of the rating.
        judge_difference: That of the judge to the same mean.
        t: Paired t of judge − rater; negative when the judge is closer.
        df: Its degrees of freedom.
        p: Two-sided.
        n: Items.
    """

    rater: int
    rater_difference: float
    judge_difference: float
    t: float
    df: int
    p: float
    n: int


def leave_one_rater_out(ratings: ArrayLike, judge: ArrayLike) -> list[RaterComparison]:
    """Mean absolute differences with a paired t-test, one record a rater.

    Args:
        ratings: [N, R], at least two raters; not-a-number where one did not rate.
        judge: [N], in the unit of the ratings (a count of errors, or a rating).
    """
    table, seat = np.asarray(ratings, dtype=np.float64), np.asarray(judge, dtype=np.float64)
    if seat.shape != table.shape[:1]:
        raise ValueError(f"a judge of shape {seat.shape} does not fit ratings of shape {table.shape}")
    found = []
    for rater in range(table.shape[1]):
        others = others_mean(table, rater)
        person, machine = np.abs(table[:, rater] - others), np.abs(seat - others)
        known = ~np.isnan(person + machine)
        person, machine = person[known], machine[known]
        test = paired_t(machine, person)
        found.append(RaterComparison(rater, _mean(person), _mean(machine), test.t, test.df, test.p, len(person)))
    return found


def paired_t(x: ArrayLike, y: ArrayLike) -> TTest:
    """The t-test of x − y against 0; without spread in the differences there is nothing to judge by."""
    change = np.asarray(x, dtype=np.float64) - np.asarray(y, dtype=np.float64)
    n = len(change)
    # Equal differences leave a spread of rounding alone, which would make t as large as one likes.
    if n < 2 or np.ptp(change) <= 1e-12 * np.abs(change).max():
        return TTest(math.nan, max(0, n - 1), math.nan)
    t = float(change.mean() / (change.std(ddof=1) / math.sqrt(n)))
    return TTest(t, n - 1, t_two_sided(t, n - 1))


def _mean(values: Matrix) -> float:
    return float(values.mean()) if len(values) else math.nan
