"""Means over seeds, against tables and sums that a person can do."""

from __future__ import annotations

import math

import pytest

from cxrlab.studies.over_seeds import over_seeds, t_quantile


@pytest.mark.parametrize(("df", "expected"), [(1, 12.706), (2, 4.303), (10, 2.228)])
def test_quantiles_are_those_of_the_printed_table(df: int, expected: float) -> None:
    assert t_quantile(0.95, df) == pytest.approx(expected, abs=5e-4)


def test_three_seeds_by_hand() -> None:
    """1, 2, 3: mean 2, deviation 1, standard error 1/√3, times 4.303."""
    found = over_seeds([1.0, 2.0, 3.0])
    assert found.mean == 2.0 and found.seeds == 3
    assert found.high - 2.0 == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert found.high - 2.0 == pytest.approx(2.0 - found.low)


def test_one_seed_has_no_interval_and_none_no_mean() -> None:
    """One value says nothing about its spread; that is not an interval of width 0."""
    one = over_seeds([0.5, math.nan])
    assert one.mean == 0.5 and math.isnan(one.low) and one.seeds == 1
    assert math.isnan(over_seeds([math.nan]).mean)
