from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics import agreement
from cxrlab.metrics.statistics.agreement import kendall_tau, resampled_tau
from cxrlab.metrics.statistics.intervals import Resamples


def by_definition(x: list[float], y: list[float]) -> float:
    """τ-b pair by pair: concordant − discordant over the root of the pairs not tied in x times those not tied in y."""
    balance = apart_x = apart_y = 0
    for i, j in itertools.combinations(range(len(x)), 2):
        a, b = (x[i] > x[j]) - (x[i] < x[j]), (y[i] > y[j]) - (y[i] < y[j])
        balance, apart_x, apart_y = balance + a * b, apart_x + abs(a), apart_y + abs(b)
    return balance / math.sqrt(apart_x * apart_y) if apart_x * apart_y else math.nan


def test_a_value_to_check_by_hand() -> None:
    """Of the six pairs of 1,2,3,4 against 1,3,2,4 five agree and one does not: 4/6."""
    assert kendall_tau([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(4 / 6)


def test_ties_by_hand() -> None:
    """x = 1,1,2 and y = 1,2,3: two pairs agree, one is tied in x: 2 / sqrt(2 · 3)."""
    assert kendall_tau([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / math.sqrt(6))


def test_order_and_its_reverse() -> None:
    values = generator(1).random(1000)
    assert kendall_tau(values, values) == 1 and kendall_tau(values, -values) == -1


@pytest.mark.parametrize(("x", "y"), [([], []), ([1], [2]), ([1, 1, 1], [1, 2, 3]), ([1, math.nan], [1, 2])])
def test_without_order_there_is_no_correlation(x: list[float], y: list[float]) -> None:
    assert math.isnan(kendall_tau(x, y))


def test_unknown_values_stay_out() -> None:
    assert kendall_tau([1, math.nan, 2, 9], [1, 5, 2, math.nan]) == 1


def test_infinities_are_values() -> None:
    """Two worst possible scores are tied, not unknown."""
    assert kendall_tau([-math.inf, -math.inf, 1, math.inf], [1, 1, 2, 3]) == 1


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40))
def test_it_equals_the_definition(points: list[tuple[int, int]]) -> None:
    x, y = [float(a) for a, _ in points], [float(b) for _, b in points]
    assert kendall_tau(x, y) == pytest.approx(by_definition(x, y), nan_ok=True)


@pytest.mark.parametrize("levels", [2, 5, 50, 100_000])
def test_it_equals_scipy_on_long_lists_with_ties(levels: int) -> None:
    scipy = pytest.importorskip("scipy.stats")
    rng = generator(2, levels)
    x = rng.integers(0, levels, 3000)
    y = x // 2 + rng.integers(0, levels, 3000)
    assert kendall_tau(x, y) == pytest.approx(scipy.kendalltau(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize("limit", [0, 2000])
def test_every_resample_equals_counting_it_again(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Both ways of computing, for short and for long lists, against resamples spelled out item by item."""
    monkeypatch.setattr(agreement, "SQUARE", limit)
    rng = generator(3)
    x, y = rng.integers(0, 8, 24).astype(float), rng.integers(0, 5, 24).astype(float)
    draws = Resamples([f"s{k // 2}" for k in range(24)], trials=25, rng=rng)
    found = resampled_tau(x, y, draws)
    _, weights = next(draws.weights())
    for trial in range(25):
        again = np.repeat(np.arange(24), weights[trial].astype(int)[draws.clusters.codes])
        assert found.draws[trial] == pytest.approx(by_definition(x[again].tolist(), y[again].tolist()), nan_ok=True)


def test_lists_of_other_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="equal length"):
        kendall_tau([1, 2], [1])
