from __future__ import annotations

import math

import numpy as np
import pytest

from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics.agreement import (
    kendall_tau,
    preference_accuracy,
    tau_difference,
    tau_per_rater,
    tau_with_interval,
)


def studies(n: int) -> list[str]:
    """Two candidates a study."""
    return [f"s{k // 2}" for k in range(n)]


def test_the_interval_holds_the_true_correlation_as_often_as_it_says() -> None:
    """Two normals with correlation 0.5 have τ = 1/3; of 200 intervals of 90 % about 180 hold it."""
    held = 0
    for trial in range(200):
        rng = generator(1, trial)
        x = rng.normal(size=80)
        y = 0.5 * x + math.sqrt(0.75) * rng.normal(size=80)
        found = tau_with_interval(x, y, [str(k) for k in range(80)], trials=200, level=0.9, rng=rng)
        held += found.low <= 1 / 3 <= found.high
    assert held == pytest.approx(180, abs=20)


def test_the_study_is_the_unit() -> None:
    """Every pair written twice under one study: the value and the interval stay."""
    rng = generator(2)
    x, y = rng.random(40), rng.random(40)
    names = [f"s{k}" for k in range(40)]
    once = tau_with_interval(x, y, names, rng=generator(2, "draws"))
    twice = tau_with_interval(np.repeat(x, 2), np.repeat(y, 2), np.repeat(names, 2).tolist(), rng=generator(2, "draws"))
    assert twice.tau == pytest.approx(once.tau) and twice.n == 80
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))


def test_unknown_values_leave_the_count() -> None:
    found = tau_with_interval([1, math.nan, 2, 3], [1, 2, 2, 3], list("abcd"), rng=generator(3))
    assert (found.tau, found.n) == (1, 3)


def test_one_study_has_no_interval() -> None:
    found = tau_with_interval([1, 2], [1, 2], ["s", "s"], rng=generator(3))
    assert found.tau == 1 and math.isnan(found.low) and math.isnan(found.high)
    none = tau_with_interval([], [], [], rng=generator(3))
    assert math.isnan(none.tau) and none.n == 0


def test_a_better_metric_is_shown_to_be_better() -> None:
    rng = generator(4)
    truth = rng.random(100)
    good, poor = truth + 0.1 * rng.random(100), truth + 2 * rng.random(100)
    found = tau_difference(good, poor, truth, studies(100), rng=rng)
    assert found.difference == pytest.approx(kendall_tau(good, truth) - kendall_tau(poor, truth))
    assert found.low > 0 and found.n == 100


def test_a_metric_does_not_differ_from_itself() -> None:
    """On the same resamples the difference is 0 in each: what is left is the exact bound, a share of the range."""
    rng = generator(5)
    x, y = rng.random(30), rng.random(30)
    found = tau_difference(x, 2 * x + 1, y, studies(30), rng=rng)
    share = 1 - 0.025 ** (1 / 15)  # two candidates each of 15 studies
    assert (found.difference, found.low, found.high) == pytest.approx((0, -2 * share, 2 * share), abs=1e-12)


def test_a_difference_is_taken_where_both_are_known() -> None:
    """One unknown in each metric and one in the rating: three of six pairs remain."""
    nan = math.nan
    found = tau_difference(
        [nan, 1, 2, 3, 4, 5], [1, nan, 2, 3, 4, 5], [1, 2, nan, 3, 4, 5], list("abcdef"), rng=generator(6)
    )
    assert (found.n, found.first, found.second) == (3, 1, 1)


def test_preferences_by_hand() -> None:
    """Study a: right; b: wrong; c: the metric is tied; d: people are tied, so nothing is asked; e: value unknown."""
    scores = [0.9, 0.1, 0.2, 0.7, 0.5, 0.5, 0.3, 0.8, math.nan, 0.4]
    ratings = [5, 1, 4, 2, 3, 2, 3, 3, 1, 2]
    found = preference_accuracy(scores, ratings, list("aabbccddee"))
    assert (found.correct, found.tied, found.n) == (1, 1, 3)
    assert found.accuracy == pytest.approx(0.5)


def test_a_constant_metric_prefers_at_chance() -> None:
    assert preference_accuracy([1, 1, 1], [1, 2, 3], ["s"] * 3).accuracy == 0.5


def test_more_than_two_candidates_give_all_pairs_and_none_across_studies() -> None:
    assert preference_accuracy([1, 2, 3, 0], [1, 2, 3, 9], ["s", "s", "s", "other"]).n == 3


def test_no_pairs_no_accuracy() -> None:
    assert math.isnan(preference_accuracy([], [], []).accuracy)
    with pytest.raises(ValueError, match="do not fit"):
        preference_accuracy([1], [1], [])


def test_the_ceiling_is_each_rater_against_the_rest() -> None:
    """Two who agree and one who turns everything round; the mean of an order and its reverse is constant: no τ."""
    ratings = np.array([[1, 1, 3], [2, 2, 2], [3, 3, 1]])
    first, second, third = tau_per_rater(ratings)
    assert math.isnan(first) and math.isnan(second) and third == -1


def test_a_rater_who_skipped_an_item_is_left_out_there() -> None:
    """Item 3 is rated by the first and the third alone, and those two agree."""
    ratings = [[1, 1, 1], [2, 2, 2], [3, math.nan, 3]]
    assert tau_per_rater(ratings) == [1, 1, 1]


def test_one_rater_has_no_ceiling() -> None:
    with pytest.raises(ValueError, match="at least two raters"):
        tau_per_rater([[1], [2]])
