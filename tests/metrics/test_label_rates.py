from __future__ import annotations

import math

import numpy as np
import pytest

from cxrlab.metrics import chexpert_labels as rates

# True positives, false positives, false negatives, true negatives.
SEEN, ONLY_CLAIMED, ONLY_TRUE, UNSEEN = [3, 1, 2, 4], [0, 2, 0, 8], [0, 0, 5, 5], [0, 0, 0, 10]


def test_the_four_rates_of_one_label() -> None:
    """3 right of 4 claimed and of 5 true; 7 of 10 cells agree."""
    counts = np.array(SEEN, float)
    assert rates.precision(counts) == 3 / 4
    assert rates.recall(counts) == 3 / 5
    assert rates.f1(counts) == 6 / 9
    assert rates.accuracy(counts) == 7 / 10


def test_a_label_that_one_side_alone_has_scores_0_and_one_that_neither_has_is_undefined() -> None:
    counts = np.array([ONLY_CLAIMED, ONLY_TRUE, UNSEEN], float)
    for rate in (rates.precision, rates.recall, rates.f1):
        np.testing.assert_array_equal(rate(counts), [0, 0, np.nan])
    np.testing.assert_array_equal(rates.accuracy(counts), [0.8, 0.5, 1.0])
    assert math.isnan(rates.accuracy(np.zeros(4)))


def test_averages_over_labels() -> None:
    """F1 is 2/3, 0, 0 and undefined: macro divides by 4, macro-seen by 3, weighted by the 10 true positives in all."""
    sums = np.array([*SEEN, *ONLY_CLAIMED, *ONLY_TRUE, *UNSEEN], float)
    assert rates.OVER_LABELS["macro"](sums, rates.f1) == pytest.approx(2 / 3 / 4)
    assert rates.OVER_LABELS["macro-seen"](sums, rates.f1) == pytest.approx(2 / 3 / 3)
    assert rates.OVER_LABELS["weighted"](sums, rates.f1) == pytest.approx(2 / 3 * 5 / 10)


def test_nothing_positive_anywhere_has_no_average() -> None:
    sums = np.array([*UNSEEN, *UNSEEN], float)
    for average in rates.OVER_LABELS.values():
        assert math.isnan(average(sums, rates.f1))


def test_a_stack_of_sums_gives_each_its_own_value() -> None:
    """A bootstrap hands over [samples, labels · 4] at once."""
    sums = np.array([[*SEEN, *UNSEEN], [*ONLY_TRUE, *SEEN]], float)
    for average in rates.OVER_LABELS.values():
        found = average(sums[None], rates.recall)[0]
        np.testing.assert_array_equal(found, [average(row, rates.recall) for row in sums])
