from __future__ import annotations

import math

import pytest

from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics.intervals import regularised_beta, t_two_sided
from cxrlab.metrics.statistics.paired_tests import binomial_half


@pytest.mark.parametrize("t", [0.0, 0.01, 0.5, 1.0, -2.5, 12.7, 1e6])
def test_one_degree_of_freedom_is_cauchy(t: float) -> None:
    """P(|T| >= t) = 1 − 2 arctan(t) / π."""
    assert t_two_sided(t, 1) == pytest.approx(2 * math.atan2(1, abs(t)) / math.pi, rel=1e-10)


@pytest.mark.parametrize("t", [0.3, 1.0, 4.3, 50.0])
def test_two_degrees_of_freedom_in_closed_form(t: float) -> None:
    """P(|T| >= t) = 1 − t / sqrt(t² + 2)."""
    assert t_two_sided(t, 2) == pytest.approx(1 - t / math.sqrt(t * t + 2), rel=1e-9)


def test_many_degrees_of_freedom_are_normal() -> None:
    """At a million the t distribution is the normal one to six digits."""
    assert t_two_sided(1.96, 1_000_000) == pytest.approx(math.erfc(1.96 / math.sqrt(2)), rel=1e-5)
    assert t_two_sided(math.inf, 3) == 0


def test_beta_by_hand() -> None:
    """I_x(1, 1) = x, I_x(2, 1) = x², I_x(1, b) = 1 − (1 − x)^b; the ends are 0 and 1."""
    assert regularised_beta(0.3, 1, 1) == pytest.approx(0.3)
    assert regularised_beta(0.3, 2, 1) == pytest.approx(0.09)
    assert regularised_beta(0.3, 1, 7) == pytest.approx(1 - 0.7**7)
    assert (regularised_beta(0, 2, 3), regularised_beta(1, 2, 3)) == (0, 1)


def test_beta_equals_scipy() -> None:
    special = pytest.importorskip("scipy.special")
    rng = generator(1)
    for _ in range(2000):
        x, a, b = rng.random(), 10 ** rng.uniform(-1, 4), 10 ** rng.uniform(-1, 4)
        assert regularised_beta(x, a, b) == pytest.approx(special.betainc(a, b, x), rel=1e-7, abs=1e-12)


def test_coins() -> None:
    """Six ways of two heads in four tosses; all outcomes of many tosses add up to 1."""
    assert binomial_half(2, 4) == pytest.approx(6 / 16)
    assert math.fsum(binomial_half(k, 5001) for k in range(5002)) == pytest.approx(1)
