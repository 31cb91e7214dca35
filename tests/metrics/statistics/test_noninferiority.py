from __future__ import annotations

import math

import numpy as np
import pytest
from tallies import mean

from cxrlab.core.errors import ConfigError
from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics.paired_tests import PairedDifference, non_inferior, paired_difference


def difference(low: float, high: float, patients: int = 100) -> PairedDifference:
    middle = (low + high) / 2
    return PairedDifference("m", 0.5, 0.5 + middle, middle, low, high, 0.5, 1000, False, 0.001, False, 100, patients)


@pytest.mark.parametrize(
    ("low", "high", "direction", "margin", "shown"),
    [
        (-0.01, 0.03, "higher", 0.02, True),  # at worst 0.01 lower
        (-0.03, 0.03, "higher", 0.02, False),  # may be 0.03 lower, though it may also be higher
        (-0.02, 0.03, "higher", 0.02, False),  # exactly the margin is not above it
        (-0.03, 0.01, "lower", 0.02, True),  # lower is better: at worst 0.01 higher
        (-0.03, 0.03, "lower", 0.02, False),
        (0.01, 0.03, "higher", 0.0, True),  # a margin of 0 asks for superiority
        (math.nan, math.nan, "higher", 0.5, False),
    ],
)
def test_the_unfavourable_end_decides(low: float, high: float, direction: str, margin: float, shown: bool) -> None:
    found = non_inferior(difference(low, high), direction, margin)  # type: ignore[arg-type]
    assert found.established is shown
    assert found.level == pytest.approx(0.975)
    assert found.verdict == ("non-inferior" if shown else "not established" if math.isnan(low) else "not shown")


def test_the_sentence_names_gain_bound_and_margin() -> None:
    assert non_inferior(difference(-0.01, 0.03), "higher", 0.02).sentence == (
        "m: non-inferior; the gain is +0.0100 and its lower 97.5 % bound -0.0100 is above the margin -0.02."
    )


@pytest.mark.parametrize(("patients", "minimum", "verdict"), [
    (29, 30, "not established"), (30, 30, "non-inferior"), (5, 5, "non-inferior"), (99, 100, "not established"),
])  # fmt: skip
def test_few_patients_establish_nothing(patients: int, minimum: int, verdict: str) -> None:
    """However good the bound; both sides of the minimum, as it is by default and as it is set."""
    found = non_inferior(difference(0.1, 0.3, patients), "higher", 0.02, minimum_patients=minimum)
    assert (found.verdict, found.established, found.patients) == (verdict, verdict == "non-inferior", patients)
    assert ("--minimum-patients" in found.sentence) is not found.established


@pytest.mark.parametrize("patients", [1, 29])
def test_few_patients_are_the_reason_also_without_an_interval(patients: int) -> None:
    """One patient gives no interval at all; what helps is more patients."""
    found = non_inferior(difference(math.nan, math.nan, patients), "higher", 0.02)
    assert found.verdict == "not established" and f"{patients} patient" in found.sentence
    assert "--minimum-patients" in found.sentence and "1 patients" not in found.sentence


@pytest.mark.parametrize("n", [5, 10])
def test_a_worse_system_never_passes_on_few_patients(n: int) -> None:
    """A true deficit of 0.05, most of it in few patients, and a margin of 0.02: the old gate let half of it through."""
    passed = 0
    for trial in range(60):
        rng = generator(n, "gate", str(trial))
        a = rng.random(n)
        b = np.where(rng.random(n) < 0.1, a - 0.5, a)
        found = paired_difference(mean(a), mean(b), [str(k) for k in range(n)], trials=50, resamples=200, rng=rng)
        passed += non_inferior(found, "higher", 0.02).established
        assert not non_inferior(found, "higher", 0.02, minimum_patients=2).established, "nor without the minimum"
    assert passed == 0


def test_equal_systems_pass_from_the_number_of_patients_that_the_sentence_names() -> None:
    """(1 - 0.02)^n = 0.025 at n = 182.6: with a range of 1 a margin of 0.02 takes 183 patients without a difference."""
    verdicts = []
    for n in (60, 182, 183):
        same = mean(generator(n).random(n))
        found = non_inferior(
            paired_difference(same, same, [str(k) for k in range(n)], trials=20, rng=generator(1)), "higher", 0.02
        )
        verdicts.append(found.verdict)
        assert found.established or "183 patients" in found.sentence
    assert verdicts == ["not shown", "not shown", "non-inferior"]


def test_no_significant_difference_is_no_proof_of_non_inferiority() -> None:
    """Eight noisy studies: p is far from 0.05, and still nothing is shown."""
    rng = generator(1)
    a, b = rng.random(8), rng.random(8)
    found = paired_difference(mean(a), mean(b), [str(k) for k in range(8)], rng=rng)
    assert found.p > 0.2 and not non_inferior(found, "higher", 0.05).established


def test_a_system_that_is_worse_by_half_the_margin_passes_with_enough_studies() -> None:
    rng = generator(2)
    a = rng.random(2000)
    b = a - 0.01 + rng.normal(scale=0.05, size=2000)
    found = paired_difference(mean(a), mean(b), np.arange(2000).astype(str).tolist(), rng=rng)
    assert found.p < 0.01, "it is truly worse"
    assert non_inferior(found, "higher", 0.02).established


@pytest.mark.parametrize("margin", [-0.1, math.nan, math.inf])
def test_a_margin_must_be_a_number_from_zero(margin: float) -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        non_inferior(difference(0, 0), "higher", margin)
