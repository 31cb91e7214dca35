from __future__ import annotations

import math

import numpy as np
import pytest
from tallies import mean

from cxrlab.core.errors import ConfigError
from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics.noninferiority import non_inferior
from cxrlab.metrics.statistics.paired import PairedDifference, paired_difference


def difference(low: float, high: float) -> PairedDifference:
    middle = (low + high) / 2
    return PairedDifference("m", 0.5, 0.5 + middle, middle, low, high, 0.5, 1000, False, 0.001, False, 100)


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
    assert found.shown is shown
    assert found.level == pytest.approx(0.975)
    assert ("NOT" in found.sentence or "cannot" in found.sentence) is not shown


def test_the_sentence_names_gain_bound_and_margin() -> None:
    assert non_inferior(difference(-0.01, 0.03), "higher", 0.02).sentence == (
        "m: non-inferior; the gain is +0.0100 and its lower 97.5 % bound -0.0100 is above the margin -0.02."
    )


def test_no_significant_difference_is_no_proof_of_non_inferiority() -> None:
    """Eight noisy studies: p is far from 0.05, and still nothing is shown."""
    rng = generator(1)
    a, b = rng.random(8), rng.random(8)
    found = paired_difference(mean(a), mean(b), [str(k) for k in range(8)], rng=rng)
    assert found.p > 0.2 and not non_inferior(found, "higher", 0.05).shown


def test_a_system_that_is_worse_by_half_the_margin_passes_with_enough_studies() -> None:
    rng = generator(2)
    a = rng.random(2000)
    b = a - 0.01 + rng.normal(scale=0.05, size=2000)
    found = paired_difference(mean(a), mean(b), np.arange(2000).astype(str).tolist(), rng=rng)
    assert found.p < 0.01, "it is truly worse"
    assert non_inferior(found, "higher", 0.02).shown


@pytest.mark.parametrize("margin", [-0.1, math.nan, math.inf])
def test_a_margin_must_be_a_number_from_zero(margin: float) -> None:
    with pytest.raises(ConfigError, match="at least 0"):
        non_inferior(difference(0, 0), "higher", margin)
