from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from tallies import f1_of, mean

from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics.paired_tests import paired_difference


def ids(n: int) -> list[str]:
    return [f"p{k:04d}" for k in range(n)]


def test_exact_enumeration_equals_a_count_by_hand() -> None:
    """F1 of seven patients, every swap spelled out with plain loops."""
    a, b = generator(2, "a").integers(0, 4, (7, 4)), generator(2, "b").integers(0, 4, (7, 4))

    def score(rows: np.ndarray) -> float:
        tp, fp, fn, _ = rows.sum(axis=0)
        return float(2 * tp / (2 * tp + fp + fn))

    observed = abs(score(b) - score(a))
    count = 0
    for swap in itertools.product([False, True], repeat=7):
        mask = np.array(swap)[:, None]
        count += abs(score(np.where(mask, a, b)) - score(np.where(mask, b, a))) >= observed - 1e-12
    found = paired_difference(f1_of(a), f1_of(b), ids(7), rng=generator(2))
    assert found.exact and found.p == pytest.approx(count / 2**7)


def test_random_swaps_agree_with_all_swaps() -> None:
    """Twelve patients, once with 4,096 swaps allowed and once with 4,095 drawn."""
    a, b = generator(3, "a").random(12), generator(3, "b").random(12) + 0.15
    exact = paired_difference(mean(a), mean(b), ids(12), trials=4096, rng=generator(3))
    drawn = paired_difference(mean(a), mean(b), ids(12), trials=4095, rng=generator(3))
    assert exact.exact and not drawn.exact
    assert 0.01 < exact.p < 0.9
    assert drawn.p == pytest.approx(exact.p, abs=4 * math.sqrt(exact.p * (1 - exact.p) / 4095))


def test_p_is_never_zero() -> None:
    """(c + 1) / (N + 1): 999 swaps, none as extreme."""
    found = paired_difference(mean(np.zeros(100)), mean(np.ones(100)), ids(100), trials=999, rng=generator(4))
    assert found.p == found.smallest_p == 1 / 1000


def test_under_the_null_p_is_uniform() -> None:
    """400 comparisons of two equally good systems: about 5 % fall below 0.05, about half below 0.5."""
    ps = []
    for trial in range(400):
        rng = generator(7, trial)
        a, b = rng.random(30), rng.random(30)
        ps.append(paired_difference(mean(a), mean(b), ids(30), trials=199, resamples=10, rng=rng).p)
    assert np.mean(np.array(ps) <= 0.05) == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 400))
    assert np.mean(np.array(ps) <= 0.5) == pytest.approx(0.5, abs=4 * math.sqrt(0.25 / 400))


def test_a_swap_without_a_value_counts_against_the_difference() -> None:
    """Swapping both patients apart leaves one side without any value; it is not evidence of a difference."""
    a, b = mean([0.2, math.nan]), mean([math.nan, 0.9])
    found = paired_difference(a, b, ["x", "y"], rng=generator(9))
    assert found.p == 1.0


def test_only_patients_who_differ_bear_on_the_test() -> None:
    """Four of a hundred differ: 2/2^4 is the least p whatever the other 96 are."""
    a = np.full(100, 0.5)
    b = a.copy()
    b[:4] = 0.9
    found = paired_difference(mean(a), mean(b), ids(100), rng=generator(6))
    assert (found.exact, found.p, found.too_few) == (True, 2 / 16, True)
