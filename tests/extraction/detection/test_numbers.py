"""Ranks, counts, intervals and Shapiro–Wilk against numbers that a person or another program can check."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from cxrlab.extraction.detection.detectors import shapiro_wilk
from cxrlab.extraction.detection.false_alarm_rates import (
    alarm_count,
    conformal_rank,
    min_images_for_bound,
    min_scores_for_bound,
    score_at_rank,
    share,
    tolerance_rank,
)


@pytest.mark.parametrize("n", [6, 7, 12, 50, 400])
def test_w_is_what_another_program_computes(n: int) -> None:
    rng = np.random.default_rng(n)
    for values in (rng.normal(5, 2, n), rng.exponential(size=n), rng.uniform(size=n)):
        assert shapiro_wilk(values) == pytest.approx(stats.shapiro(values).statistic, abs=1e-8)


def test_w_is_unknown_for_few_or_equal_numbers() -> None:
    assert math.isnan(shapiro_wilk([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert math.isnan(shapiro_wilk([0.1] * 30))


def test_a_bound_of_one_in_five_hundred_takes_499_images() -> None:
    """With 499 benign scores a further one is equally likely to take any of 500 places; the top one is flagged."""
    assert min_scores_for_bound(1 / 500) == 499
    assert conformal_rank(499, 1 / 500) == 499
    assert score_at_rank([3.0, 1.0, 2.0], conformal_rank(3, 0.25)) == 3.0
    assert score_at_rank(list(range(1, 100)), conformal_rank(99, 0.1)) == 90
    with pytest.raises(ValueError, match="; 499 "):
        conformal_rank(498, 1 / 500)


def test_with_confidence_more_images_are_needed() -> None:
    """0.95 ** 58 = 0.0510 and 0.95 ** 59 = 0.0485: 59 images without a further one above the largest are surprising."""
    assert min_images_for_bound(0.05) == 59
    assert tolerance_rank(59, 0.05) == 59
    with pytest.raises(ValueError, match="; 59 "):
        tolerance_rank(58, 0.05)
    # As many may lie above the threshold as are seen with a probability of at most 5 % where the share is the bound.
    for n, bound in ((93, 0.05), (598, 0.005), (2000, 0.01)):
        above = n - tolerance_rank(n, bound)
        assert stats.binom.cdf(above, n, bound) <= 0.05 < stats.binom.cdf(above + 1, n, bound)


def test_the_rate_of_false_alarms_is_within_its_bound_nineteen_times_of_twenty() -> None:
    """The rate above the threshold of uniform scores is 1 minus the threshold."""
    rng = np.random.default_rng(3)
    rates = [1 - score_at_rank(rng.random(200).tolist(), tolerance_rank(200, 0.05)) for _ in range(2000)]
    assert np.mean(np.array(rates) > 0.05) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_the_count_that_rings_follows_the_unknown_rate() -> None:
    """One benign score: an image exceeds it with probability 1/2, two images both with 1/3, three with 1/4."""
    assert alarm_count(1, 1, 1, 0.5) == 1
    assert alarm_count(1, 1, 2, 0.34) == 2
    assert alarm_count(1, 1, 2, 0.33) == 3  # more than there are images: it never rings
    # Many benign scores: the rate is known, and counts are binomial.
    count = alarm_count(999_999, 990_000, 100, 0.01)
    assert stats.binom.sf(count - 1, 100, 0.01) <= 0.01 < stats.binom.sf(count - 2, 100, 0.01)


def test_a_share_has_the_interval_of_clopper_and_pearson() -> None:
    none = share(0, 10)
    assert (none.value, none.low) == (0.0, 0.0) and none.high == pytest.approx(1 - 0.025 ** (1 / 10))
    for k, n in ((1, 500), (7, 20), (20, 20)):
        found, exact = share(k, n), stats.binomtest(k, n).proportion_ci()
        assert (found.low, found.high) == (pytest.approx(exact.low), pytest.approx(exact.high))


def test_what_overlaps_is_not_counted_twice() -> None:
    """Ten of a hundred accounts that were cut from the images of ten are one of ten."""
    assert share(10, 100, independent=10) == share(1, 10)
    empty = share(0, 0)
    assert (empty.value, empty.low, empty.high, empty.n) == (None, None, None, 0)
