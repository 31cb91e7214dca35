"""Means over seeds, against tables and sums that a person can do."""

from __future__ import annotations

import math

import pytest

from cxrlab.studies.over_seeds import over_seeds


@pytest.mark.parametrize(("count", "quantile"), [(2, 12.706), (3, 4.303), (11, 2.228)])
def test_intervals_use_the_quantiles_of_the_printed_table(count: int, quantile: float) -> None:
    """Half zeros and half ones, and the standard error by hand."""
    values = [float(place % 2) for place in range(count)]
    mean = sum(values) / count
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1) / count)
    assert over_seeds(values)["high"] - mean == pytest.approx(quantile * error, rel=1e-4)


def test_three_seeds_by_hand() -> None:
    """1, 2, 3: mean 2, deviation 1, standard error 1/√3, times 4.303."""
    found = over_seeds([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0 and found["seeds"] == 3
    assert found["high"] - 2.0 == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert found["high"] - 2.0 == pytest.approx(2.0 - found["low"])


def test_one_seed_has_no_interval_and_none_no_mean() -> None:
    """One value says nothing about its spread; that is not an interval of width 0."""
    one = over_seeds([0.5, math.nan])
    assert one == {"values": [0.5, None], "mean": 0.5, "low": None, "high": None, "seeds": 1}
    assert over_seeds([None])["mean"] is None
