from __future__ import annotations

import math

import numpy as np
import pytest

from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics.agreement import compare_with_each_rater, paired_t


def test_differences_by_hand() -> None:
    """Rater 0 gives 1, 4; the others' mean is 2, 2: differences 1 and 2. The judge gives 2, 3: 0 and 1."""
    ratings = [[1, 2, 2], [4, 2, 2]]
    first = compare_with_each_rater(ratings, [2, 3])[0]
    assert (first.rater_difference, first.judge_difference, first.n) == (1.5, 0.5, 2)
    assert math.isnan(first.p), "judge − rater is −1 on both items: no spread to judge by"


def test_a_judge_closer_than_the_raters_is_seen() -> None:
    """The judge knows the truth, raters add noise."""
    rng = generator(1)
    truth = rng.integers(0, 6, 200).astype(float)
    ratings = truth[:, None] + rng.normal(size=(200, 6))
    for found in compare_with_each_rater(ratings, truth):
        assert found.judge_difference < found.rater_difference and found.t < 0 and found.p < 0.01


def test_a_judge_who_is_a_rater_makes_no_difference() -> None:
    ratings = generator(2).integers(1, 6, (50, 3)).astype(float)
    found = compare_with_each_rater(ratings, ratings[:, 1])[1]
    assert found.judge_difference == found.rater_difference and math.isnan(found.t)


def test_items_without_judge_or_rater_stay_out() -> None:
    nan = math.nan
    ratings = [[1, 2, 3], [nan, 2, 3], [2, 2, 2], [3, nan, nan]]
    found = compare_with_each_rater(ratings, [1, 1, nan, 1])
    assert [one.n for one in found] == [1, 2, 2]
    empty = compare_with_each_rater([[nan, nan]], [1])[0]
    assert empty.n == 0 and math.isnan(empty.rater_difference)


def test_t_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, spread 1, t = 2 · sqrt(3) with two degrees of freedom."""
    found = paired_t([1, 2, 3], [0, 0, 0])
    assert found.t == pytest.approx(2 * math.sqrt(3)) and found.df == 2
    assert found.p == pytest.approx(1 - math.sqrt(12) / math.sqrt(14))


def test_t_equals_scipy() -> None:
    scipy = pytest.importorskip("scipy.stats")
    rng = generator(3)
    for n in (2, 3, 10, 500):
        x, y = rng.normal(size=n), rng.normal(size=n) + 0.2
        expected = scipy.ttest_rel(x, y)
        found = paired_t(x, y)
        assert (found.t, found.p) == pytest.approx((expected.statistic, expected.pvalue))


@pytest.mark.parametrize("x", [[], [1.0], [0.1 + 0.2, 0.3, 0.3], [0.0, 0.0]])
def test_without_spread_there_is_no_t(x: list[float]) -> None:
    """0.1 + 0.2 differs from 0.3 in the last bit only; that is rounding, not evidence."""
    assert math.isnan(paired_t(x, np.zeros(len(x))).p)


def test_a_judge_of_other_length_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        compare_with_each_rater([[1, 2], [2, 3]], [1])
