from __future__ import annotations

import math

import numpy as np
import pytest
from tallies import f1_of, mean

from cxrlab.core.errors import ConfigError
from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics.intervals import Resamples
from cxrlab.metrics.statistics.paired_tests import non_inferior, paired_difference, paired_differences


def ids(n: int) -> list[str]:
    return [f"p{k:04d}" for k in range(n)]


def test_five_studies_cannot_reach_five_per_cent() -> None:
    """All five favour b: of 2^5 swaps only the data and their mirror image are as extreme: 2/32."""
    found = paired_difference(mean([0.1] * 5), mean([0.2, 0.3, 0.4, 0.5, 0.6]), ids(5), rng=generator(1))
    assert found.exact and found.trials == 32
    assert found.p == found.smallest_p == 2 / 32
    assert found.too_few
    assert found.difference == pytest.approx(0.3)


def test_six_studies_can() -> None:
    found = paired_difference(mean([0.0] * 6), mean([1.0] * 6), ids(6), rng=generator(1))
    assert found.p == 2 / 64 and not found.too_few


def test_patients_not_studies_are_swapped() -> None:
    """Ten studies of two patients: 2^2 swaps, so p is at least 2/4."""
    found = paired_difference(mean([0.0] * 10), mean([1.0] * 10), ["a"] * 5 + ["b"] * 5, rng=generator(1))
    assert (found.p, found.patients, found.too_few) == (0.5, 2, True)


def test_few_trials_are_flagged_too() -> None:
    """Ten swaps cannot give a p below 1/11."""
    found = paired_difference(mean(np.zeros(100)), mean(np.ones(100)), ids(100), trials=10, rng=generator(4))
    assert found.too_few and found.smallest_p == 1 / 11


def test_two_equal_systems_differ_by_nothing() -> None:
    values = generator(5, "a").random(50)
    found = paired_difference(mean(values), mean(values.copy()), ids(50), rng=generator(5))
    assert (found.difference, found.p, found.patients, found.patients_with_value) == (0.0, 1.0, 0, 50)
    assert found.too_few
    # (1 - u)^50 = 0.025: at most 7 % of patients are unlike these 50, and a mean in [0, 1] differs by 1 at most.
    assert (found.low, found.high) == pytest.approx((-0.0711, 0.0711), abs=1e-4)


def test_the_interval_of_a_difference_uses_the_pairing() -> None:
    """Studies differ much, systems hardly: the paired interval is a tenth of that of either."""
    values = generator(8, "a").random(60)
    change = generator(8, "change").normal(0.05, 0.02, 60)
    found = paired_difference(mean(values), mean(values + change), ids(60), rng=generator(8))
    (alone,) = Resamples(ids(60), rng=generator(8)).estimates([mean(values)])
    assert found.low < change.mean() < found.high and 10 * (found.high - found.low) < alone.high - alone.low
    assert found.p < 0.001


def test_a_pair_that_one_system_leaves_undefined_moves_with_its_report() -> None:
    """a: mean of 1 and 0; b: 1 alone. Swapping patient y makes a 1 and b 0.5, the mirror image: p = 1."""
    found = paired_difference(mean([1.0, 0.0]), mean([1.0, math.nan]), ["x", "y"], rng=generator(9))
    assert (found.a, found.b, found.patients, found.p) == (0.5, 1.0, 1, 1.0)


def test_a_metric_without_any_value_has_no_p() -> None:
    found = paired_difference(mean([math.nan] * 3), mean([0.1, 0.2, 0.3]), ids(3), rng=generator(9))
    assert math.isnan(found.p) and math.isnan(found.difference) and math.isnan(found.low)


def test_many_metrics_at_once_equal_one_at_a_time() -> None:
    """Shared rows, exact and drawn tests side by side: the observed numbers are the same; drawn p within chance."""
    rng = generator(10, "data")
    counts_a, counts_b = rng.integers(0, 5, (40, 4)).astype(float), rng.integers(0, 5, (40, 4)).astype(float)
    few = np.full(40, 0.5)
    few_b = few.copy()
    few_b[:3] = 1.0
    a = [f1_of(counts_a, "one"), f1_of(counts_a, "two"), mean(few, "few"), mean(counts_a[:, 0], "tp")]
    b = [f1_of(counts_b, "one"), f1_of(counts_b, "two"), mean(few_b, "few"), mean(counts_b[:, 0], "tp")]
    found = paired_differences(a, b, ids(40), trials=2000, rng=generator(10))
    assert [item.metric for item in found] == ["one", "two", "few", "tp"]
    assert found[0].p == found[1].p and found[0].low == found[1].low
    assert found[2].exact and found[2].p == 2 / 8
    for index in (0, 3):
        alone = paired_difference(a[index], b[index], ids(40), trials=2000, rng=generator(10))
        assert alone.difference == found[index].difference
        assert alone.p == pytest.approx(found[index].p, abs=4 * math.sqrt(0.25 / 2000))


def test_systems_with_other_metrics_or_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="same metrics"):
        paired_differences([mean([1])], [mean([1], "other")], ["a"], rng=generator(1))
    with pytest.raises(ValueError, match="2 rows for 3"):
        paired_difference(mean([1, 2]), mean([1, 2]), ids(3), rng=generator(1))
    with pytest.raises(ConfigError, match="alpha"):
        paired_difference(mean([1, 2]), mean([1, 2]), ids(2), alpha=5, rng=generator(1))


def test_only_patients_with_a_value_under_both_count() -> None:
    """Forty patients have one under each system, and ten of them under both; the gate asks for thirty."""
    a, b = np.full(70, 0.5), np.full(70, 0.5)
    a[40:], b[:30] = np.nan, np.nan
    found = paired_difference(mean(a), mean(b), ids(70), rng=generator(1))
    assert found.patients_with_value == 10
    assert non_inferior(found, "higher", 0.5).verdict == "not established"
