"""Equivalence by two one-sided tests, against intervals and tables worked out by hand."""

from __future__ import annotations

import math

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.statistics.equivalence import equivalent, over_seeds_and_patients


def test_established_exactly_when_the_interval_of_ninety_percent_lies_inside() -> None:
    """t of 95 % with 10 degrees of freedom is 1.8125: 0.01 ± 0.0181."""
    found = equivalent(0.01, 0.01, 10, margin=0.03)
    assert (found.low, found.high) == (pytest.approx(-0.008125, abs=1e-5), pytest.approx(0.028125, abs=1e-5))
    assert found.smallest_margin == pytest.approx(0.028125, abs=1e-5)
    assert found.established and found.p < 0.05
    assert not equivalent(0.01, 0.01, 10, margin=0.028).established


def test_p_is_five_percent_at_the_smallest_margin() -> None:
    bound = equivalent(-0.02, 0.01, 4, margin=1).smallest_margin
    assert equivalent(-0.02, 0.01, 4, margin=bound).p == pytest.approx(0.05, abs=1e-6)


def test_an_effect_beyond_the_margin_is_not_equivalent() -> None:
    found = equivalent(0.5, 0.01, 10, margin=0.1)
    assert not found.established and found.p > 0.95


def test_no_difference_that_is_not_significant_is_called_equal() -> None:
    """The effect does not differ from zero, and may still be of any size up to 0.2."""
    found = equivalent(0.0, 0.1, 100, margin=0.05)
    assert not found.established and found.smallest_margin == pytest.approx(0.166, abs=0.001)


def test_seeds_and_patients_both_count() -> None:
    """Seeds 0.00, 0.02, 0.04: variance 0.0004, by three seeds 0.0001333; patients add 0.0001."""
    found = over_seeds_and_patients([0.0, 0.02, 0.04], 0.01, 50)
    assert found.value == pytest.approx(0.02)
    assert found.error == pytest.approx(math.sqrt(0.0004 / 3 + 0.0001))
    assert found.freedom == 5  # 0.0002333² / (0.0001333² / 2 + 0.0001² / 49) = 5.99, cut
    assert found.seeds == pytest.approx(math.sqrt(0.0004 / 3))


def test_one_seed_has_no_error() -> None:
    found = over_seeds_and_patients([0.01], 0.001, 50)
    assert math.isnan(found.error)
    assert not equivalent(found.value, found.error, found.freedom, margin=1).established


def test_equal_seeds_leave_the_error_of_patients() -> None:
    found = over_seeds_and_patients([0.01, 0.01, 0.01], 0.02, 41)
    assert found.error == pytest.approx(0.02) and found.freedom == 40


def test_a_margin_below_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="margin -0.1"):
        equivalent(0.0, 0.1, 5, margin=-0.1)
