"""A tally's value, its denominator and its independence of order."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cxrlab.metrics.base import Metric, mean_tally, ratio

CARD = Metric("m:kind", "higher", (-math.inf, math.inf), None, "none", {"case": "lower", "average": "pair"})


def test_the_order_of_the_pairs_does_not_move_the_last_digit() -> None:
    """1e16 swallows a 1 that is added to it alone; summed exactly, every order gives the same mean."""
    values = np.array([1e16, 1.0, -1e16, 3.0, 0.1, 0.2, 0.3])
    orders = (slice(None), slice(None, None, -1), [3, 0, 4, 2, 6, 1, 5])
    assert len({mean_tally(CARD, values[order]).value for order in orders}) == 1


def test_an_undefined_pair_leaves_the_mean_and_is_counted() -> None:
    tally = mean_tally(CARD, [1.0, math.nan, 3.0])
    assert (tally.value, tally.n, tally.undefined) == (2.0, 2, 1)
    assert tally.by_pair.tolist() == pytest.approx([1.0, math.nan, 3.0], nan_ok=True)


def test_no_defined_pair_has_no_value() -> None:
    assert math.isnan(mean_tally(CARD, [math.nan]).value)


def test_the_signature_holds_name_conventions_and_version() -> None:
    assert CARD.signature.startswith("m:kind|case:lower|average:pair|v:")


def test_a_ratio_over_nothing_is_not_a_number() -> None:
    assert math.isnan(float(ratio(np.array(1.0), np.array(0.0)))) and float(ratio(np.array(1.0), np.array(2.0))) == 0.5
