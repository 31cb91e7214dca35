from __future__ import annotations

import math

import numpy as np
import pytest
from tallies import f1_of, mean

from cxrlab.core.errors import ConfigError
from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics import clusters as clusters_module
from cxrlab.metrics.statistics.bootstrap import Resamples, interval, percentiles


def ids(n: int) -> list[str]:
    return [f"p{k:05d}" for k in range(n)]


def test_the_interval_is_that_of_theory_for_a_mean() -> None:
    """2,000 independent values of spread 1: the mean is known to ± 1.96 / sqrt(2000)."""
    values = generator(1, "data").normal(size=2000)
    low, high = interval(mean(values), ids(2000), trials=4000, rng=generator(1, "draws"))
    half = 1.96 * values.std() / math.sqrt(2000)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_copies_of_a_patient_add_no_certainty() -> None:
    """Each of 200 patients has ten equal studies: by patient the interval stays, by study it shrinks by sqrt(10)."""
    values = generator(2, "data").normal(size=200)
    alone = interval(mean(values), ids(200), rng=generator(2, "draws"))
    ten = interval(
        mean(np.repeat(values, 10)), [name for name in ids(200) for _ in range(10)], rng=generator(2, "draws")
    )
    naive = interval(mean(np.repeat(values, 10)), ids(2000), rng=generator(2, "draws"))
    assert ten == pytest.approx(alone)
    assert (naive.high - naive.low) / (alone.high - alone.low) == pytest.approx(10**-0.5, rel=0.15)


def test_the_value_of_a_resample_is_that_of_scoring_it_again() -> None:
    """An F1 of sums: build one resample by repeating rows and count it directly."""
    counts = generator(3, "data").integers(0, 4, size=(30, 4))
    draws = Resamples(ids(30), trials=20, rng=generator(3, "draws"))
    values = draws.values([f1_of(counts)])[0]
    _, weights = next(draws.weights())
    for trial in range(20):
        spelled = np.repeat(counts, weights[trial].astype(int), axis=0)
        tp, fp, fn, _ = spelled.sum(axis=0)
        assert values[trial] == pytest.approx(2 * tp / (2 * tp + fp + fn))
        assert len(spelled) == 30


def test_metrics_of_one_batch_share_their_draws() -> None:
    """A metric and its double: every resample keeps the ratio, also when asked in two calls."""
    values = generator(4, "data").random(50)
    draws = Resamples(ids(50), trials=100, rng=generator(4, "draws"))
    one, two = draws.values([mean(values), mean(2 * values)])
    assert np.allclose(two, 2 * one) and np.array_equal(draws.values([mean(values)])[0], one)


def test_blocks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on memory is no setting of the result."""
    tally = mean(generator(5, "data").random(40))
    whole = interval(tally, ids(40), rng=generator(5, "draws"))
    monkeypatch.setattr(clusters_module, "BLOCK", 130)
    assert interval(tally, ids(40), rng=generator(5, "draws")) == pytest.approx(whole, rel=1e-12)


def test_the_order_of_the_pairs_does_not_change_the_interval() -> None:
    values, names = generator(6, "data").random(60), [f"p{k % 25}" for k in range(60)]
    order = generator(6, "order").permutation(60)
    first = interval(mean(values), names, rng=generator(6, "draws"))
    second = interval(mean(values[order]), [names[k] for k in order], rng=generator(6, "draws"))
    assert second == pytest.approx(first)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([0.3], ["a"]),
        ([0.3, 0.5], ["a", "a"]),
        ([0.3, math.nan], ["a", "b"]),
        ([math.nan, math.nan], ["a", "b"]),
        ([], []),
    ],
)
def test_one_patient_gives_no_interval(values: list[float], names: list[str]) -> None:
    """Nothing is known of the spread between patients, also when a second one has no value."""
    assert all(math.isnan(end) for end in interval(mean(values), names, rng=generator(7)))


def test_resamples_without_a_value_stay_out() -> None:
    """Three of four pairs are undefined here and there; what remains lies between the two known values."""
    low, high = interval(mean([0.2, 0.6, math.nan, math.nan]), list("abcd"), rng=generator(8))
    assert (low, high) == pytest.approx((0.2, 0.6))
    assert percentiles(np.array([math.nan, 1.0, 1.0])) == (1.0, 1.0)
    assert math.isnan(percentiles(np.array([math.nan])).low)


def test_a_wider_level_gives_a_wider_interval() -> None:
    draws = Resamples(ids(50), rng=generator(9))
    tally = mean(generator(9, "data").random(50))
    (narrow,), (wide,) = draws.intervals([tally], 0.5), draws.intervals([tally], 0.99)
    assert wide.low < narrow.low < tally.value < narrow.high < wide.high


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="trials=0"):
        interval(mean([1, 2]), ["a", "b"], trials=0, rng=generator(1))
    with pytest.raises(ConfigError, match="level=95"):
        interval(mean([1, 2]), ["a", "b"], level=95, rng=generator(1))
    with pytest.raises(ValueError, match="2 rows for 3 cluster names"):
        interval(mean([1, 2]), ["a", "b", "c"], rng=generator(1))


def test_intervals_by_patient_hold_the_truth_as_often_as_they_say_and_those_by_study_do_not() -> None:
    """Studies of one patient agree (correlation about 0.7): 95 % by patient, far less when taken as independent."""
    rng = generator(3, "coverage")
    held = {"patient": 0, "study": 0}
    for _ in range(200):
        patients = np.repeat(np.arange(60), rng.integers(1, 6, 60))
        values = rng.normal(0, 1, 60)[patients] + rng.normal(0, 0.6, len(patients))
        for unit, names in (("patient", patients), ("study", np.arange(len(patients)))):
            found = interval(mean(values), [str(name) for name in names], trials=300, rng=rng)
            held[unit] += found.low <= 0 <= found.high
    assert held["patient"] >= 180 and held["study"] <= 165
