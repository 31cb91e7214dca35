from __future__ import annotations

import math

import numpy as np
import pytest
from tallies import f1_of, mean

from cxrlab.core.errors import ConfigError
from cxrlab.core.randomness import generator
from cxrlab.metrics.base import Tally
from cxrlab.metrics.statistics import intervals as clusters_module
from cxrlab.metrics.statistics.intervals import METHOD, Estimate, ResampledValue, Resamples, clopper_pearson, widening


def interval(
    tally: Tally, clusters: list[str], *, trials: int = 1000, level: float = 0.95, rng: np.random.Generator
) -> Estimate:
    return Resamples(clusters, trials=trials, rng=rng).estimates([tally], level)[0]


def ids(n: int) -> list[str]:
    return [f"p{k:05d}" for k in range(n)]


def test_the_interval_is_that_of_theory_for_a_mean() -> None:
    """2,000 independent values of spread 1: the mean is known to ± 1.96 / sqrt(2000)."""
    values = generator(1, "data").normal(0.5, 1.0, size=2000)
    low, high = interval(mean(values), ids(2000), trials=4000, rng=generator(1, "draws")).ends
    half = 1.96 * values.std() / math.sqrt(2000)
    assert low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_copies_of_a_patient_add_no_certainty() -> None:
    """Each of 200 patients has ten equal studies: by patient the interval stays, by study it shrinks by sqrt(10)."""
    values = generator(2, "data").normal(0.5, 0.1, size=200)
    alone = interval(mean(values), ids(200), rng=generator(2, "draws"))
    ten = interval(
        mean(np.repeat(values, 10)), [name for name in ids(200) for _ in range(10)], rng=generator(2, "draws")
    )
    naive = interval(mean(np.repeat(values, 10)), ids(2000), rng=generator(2, "draws"))
    assert ten.ends == pytest.approx(alone.ends)
    assert (naive.high - naive.low) / (alone.high - alone.low) == pytest.approx(10**-0.5, rel=0.15)


def test_the_value_of_a_resample_is_that_of_scoring_it_again() -> None:
    """An F1 of sums: build one resample by repeating rows and count it directly."""
    counts = generator(3, "data").integers(0, 4, size=(30, 4))
    draws = Resamples(ids(30), trials=20, rng=generator(3, "draws"))
    values = draws.resample([f1_of(counts)])[0].draws
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
    one, two = (found.draws for found in draws.resample([mean(values), mean(2 * values)]))
    assert np.allclose(two, 2 * one) and np.array_equal(draws.resample([mean(values)])[0].draws, one)


def test_blocks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on memory is no setting of the result."""
    tally = mean(generator(5, "data").random(40))
    whole = interval(tally, ids(40), rng=generator(5, "draws"))
    monkeypatch.setattr(clusters_module, "BLOCK", 130)
    assert interval(tally, ids(40), rng=generator(5, "draws")).ends == pytest.approx(whole.ends, rel=1e-12)


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
    assert all(math.isnan(end) for end in interval(mean(values), names, rng=generator(7)).ends)


def test_resamples_without_a_value_stay_out() -> None:
    """Two of four pairs are undefined: patients who count are two, and a resample without a value is left out."""
    (found,) = Resamples(list("abcd"), rng=generator(8)).resample([mean([0.2, 0.6, math.nan, math.nan])])
    assert found.patients == 2 and 0 < np.isnan(found.draws).sum() < 1000 / 8
    assert np.nanmin(found.draws) == 0.2 and np.nanmax(found.draws) == 0.6
    assert found.estimate() == Estimate(0.4, 0.0, 1.0, 2, METHOD), "two patients say next to nothing"
    assert math.isnan(ResampledValue(0.4, np.array([math.nan]), np.empty(0), 9).estimate().low)


def test_a_wider_level_gives_a_wider_interval() -> None:
    draws = Resamples(ids(50), rng=generator(9))
    tally = mean(generator(9, "data").random(50))
    (narrow,), (wide,) = draws.estimates([tally], 0.5), draws.estimates([tally], 0.99)
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
        values = rng.normal(0.5, 0.1, 60)[patients] + rng.normal(0, 0.06, len(patients))
        for unit, names in (("patient", patients), ("study", np.arange(len(patients)))):
            found = interval(mean(values), [str(name) for name in names], trials=300, rng=rng)
            held[unit] += found.low <= 0.5 <= found.high
    assert held["patient"] >= 180 and held["study"] <= 165


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [(1.0, 1 - 0.1157, 1.0), (0.0, 0.0, 0.1157), (0.5, 0.5 - 0.1157 / 2, 0.5 + 0.1157 / 2)],
)
def test_where_nothing_varies_the_interval_is_the_exact_one(value: float, low: float, high: float) -> None:
    """30 patients alike: (1 - u)^30 = 0.025 gives u = 0.1157, and those unseen may be anywhere in the range.

    At exactly 1.0 this is the interval of Clopper and Pearson for 30 of 30.
    """
    found = interval(mean([value] * 30), ids(30), rng=generator(10))
    assert found.ends == pytest.approx((low, high), abs=1e-4)
    if value == 1.0:
        assert found.low == pytest.approx(clopper_pearson(30, 30, 0.05).low)


def test_a_range_without_an_end_is_taken_to_reach_one_further() -> None:
    """No error in any of 30 reports: at most 0.1157 errors per report, and none below 0."""
    none = ResampledValue(0.0, np.zeros(100), np.empty(0), 30, (0.0, math.inf))
    assert none.estimate().ends == pytest.approx((0.0, 0.1157), abs=1e-4)


def test_the_interval_is_wider_where_few_patients_carry_the_spread() -> None:
    """A share of 2 of 40 patients has few degrees of freedom, one of 20 of 40 has 39; nothing lies beyond the range."""
    few, many = (
        Resamples(ids(40), rng=generator(11)).resample([mean([1.0] * k + [0.0] * (40 - k))])[0] for k in (2, 20)
    )
    assert widening(few) > 1.3 and widening(many) == pytest.approx(math.sqrt(40 / 39) * 2.0227 / 1.95996, rel=1e-3)
    assert few.estimate().low == 0.0
    plain = np.percentile(few.draws, 97.5)
    assert few.estimate().high > few.value + widening(few) * (plain - few.value), "the rare side is moved out further"
    assert many.estimate().high == pytest.approx(0.5 + widening(many) * (np.percentile(many.draws, 97.5) - 0.5))


def test_only_patients_with_a_value_count() -> None:
    """An F1 of a label that three of fifty patients have and the model finds: exact for 3, not for 50."""
    counts = np.array([[1, 0, 0, 0]] * 3 + [[0, 0, 0, 1]] * 47)
    found = interval(f1_of(counts), ids(50), rng=generator(12))
    assert found.ends == pytest.approx((0.025 ** (1 / 3), 1.0))


def test_differences_and_ratios_are_taken_draw_by_draw() -> None:
    draws = Resamples(ids(30), trials=200, rng=generator(13))
    a, b = draws.resample([mean(generator(13, "a").random(30)), mean(generator(13, "b").random(30))])
    gap, share = b.minus(a), b.over(a)
    assert np.allclose(gap.draws, b.draws - a.draws) and gap.range == (-1.0, 1.0)
    assert np.allclose(share.draws, b.draws / a.draws) and share.value == b.value / a.value
    none = a.over(ResampledValue(0.0, np.zeros(200), np.zeros(30), 30, (0.0, 1.0)))
    assert math.isnan(none.value) and math.isnan(none.estimate().low)


def test_the_same_seed_gives_the_same_ends_to_the_last_bit() -> None:
    tally = mean(generator(14, "data").random(25))
    assert interval(tally, ids(25), rng=generator(14)) == interval(tally, ids(25), rng=generator(14))


@pytest.mark.parametrize(("n", "least", "gained"), [(5, 0.88, 0.1), (20, 0.92, 0.01)])
def test_few_patients_hold_the_truth_nearly_as_often_as_they_say(n: int, least: float, gained: float) -> None:
    """An F1 over patients with one to four reports whose errors go together; 300 sets, whose share is known to 2 %.

    The plain percentile interval holds it in far fewer sets of 5.
    """
    held = plain = 0
    for trial in range(300):
        rng = generator(n, "coverage", str(trial))
        patients = np.repeat(np.arange(n), rng.integers(1, 5, n))
        wrong = rng.beta(0.5, 2.0, n)[patients]
        there = rng.poisson(2.0, len(patients))
        hit = rng.binomial(there, 1 - wrong)
        counts = np.stack([hit, rng.poisson(2 * wrong), there - hit, np.zeros_like(hit)], axis=1)
        names = [str(name) for name in patients]
        (found,) = Resamples(names, trials=200, rng=rng).resample([f1_of(counts)])
        low, high = found.estimate().ends
        held += low <= TRUE_F1 <= high
        plain += np.nanpercentile(found.draws, 2.5) <= TRUE_F1 <= np.nanpercentile(found.draws, 97.5)
    assert held / 300 >= least and (held - plain) / 300 >= gained


# Of the patients above: 2 · 2 · 0.8 / (2 · 2 · 0.8 + 2 · 0.2 + 2 · 0.2) with a mean share of errors of 0.5 / 2.5.
TRUE_F1 = 0.8
