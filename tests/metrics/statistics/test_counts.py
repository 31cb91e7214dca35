from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrlab.metrics.statistics.intervals import clopper_pearson, student, wilson
from cxrlab.metrics.statistics.paired_tests import holm, mcnemar, mcnemar_counts


def test_mcnemar_by_hand() -> None:
    """One against five: 2 · (1 + 6) / 64 exact; the mid-p leaves out one 6/64."""
    found = mcnemar_counts(1, 5)
    assert found.p == pytest.approx(14 / 64) and found.mid_p == pytest.approx(8 / 64)


def test_only_discordant_studies_count() -> None:
    a, b = np.array([1, 1, 0, 0, 1, 0]), np.array([1, 0, 1, 0, 1, 1])
    found = mcnemar(a, b)
    assert (found.only_a, found.only_b) == (1, 2)
    assert found.p == mcnemar_counts(1, 2).p == 1


def test_no_discordant_study() -> None:
    assert (mcnemar([1, 0], [1, 0]).p, mcnemar([1, 0], [1, 0]).mid_p) == (1, 1)


def test_equal_counts_say_nothing() -> None:
    """As many one way as the other: p is 1, and so is the mid-p."""
    found = mcnemar_counts(50, 50)
    assert found.p == 1 and found.mid_p == pytest.approx(1)


def test_thousands_of_studies_do_not_overflow() -> None:
    """2,600 against 2,400: z = 200 / sqrt(5000), with the half of a continuity correction between the two."""
    found = mcnemar_counts(2600, 2400)
    assert found.mid_p == pytest.approx(math.erfc(200 / math.sqrt(5000) / math.sqrt(2)), rel=0.01)
    assert found.mid_p < found.p


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (0, 7), (3, 9), (40, 61), (300, 250)])
def test_mcnemar_equals_scipys_binomial_test(only_a: int, only_b: int) -> None:
    scipy = pytest.importorskip("scipy.stats")
    expected = scipy.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert mcnemar_counts(only_a, only_b).p == pytest.approx(expected)


def test_unequal_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="equal length"):
        mcnemar([1, 0], [1])
    with pytest.raises(ValueError, match="negative"):
        mcnemar_counts(-1, 2)


def test_holm_by_hand() -> None:
    """Smallest × 4, next × 3, next × 2, last × 1, never falling: 0.03 · 2 = 0.06 holds the 0.04 up."""
    assert holm([0.03, 0.01, 0.04, 0.005]) == pytest.approx([0.06, 0.03, 0.06, 0.02])


def test_an_undefined_test_is_no_test() -> None:
    adjusted = holm([0.02, math.nan, 0.03])
    assert adjusted[0] == pytest.approx(0.04) and math.isnan(adjusted[1]) and adjusted[2] == pytest.approx(0.04)
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_never_lowers_and_keeps_the_order(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert all(old <= new <= 1 for old, new in zip(ps, adjusted, strict=True))
    order = np.argsort(ps, kind="stable")
    assert np.all(np.diff(np.array(adjusted)[order]) >= 0)


def test_clopper_pearson_agrees_with_scipy_and_with_a_formula() -> None:
    """Where all agree, the lower end is the n-th root of alpha / 2."""
    stats = pytest.importorskip("scipy.stats")
    for successes, n, alpha in [(0, 10, 0.05), (3, 10, 0.05), (10, 10, 0.05), (730, 1000, 0.001), (99, 100, 0.01)]:
        known = stats.binomtest(successes, n).proportion_ci(1 - alpha, method="exact")
        assert clopper_pearson(successes, n, alpha).ends == pytest.approx((known.low, known.high), abs=1e-12)
    assert clopper_pearson(10, 10, 0.05).ends == pytest.approx((0.025**0.1, 1.0))


def test_wilson_by_hand() -> None:
    """5 of 10: centre 0.5, half width z·√(0.025 + z²/400)/(1 + z²/10) = 0.2634; none of 10 begins at 0."""
    assert wilson(5, 10).ends == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0, 10).low == 0 and wilson(10, 10).high == 1 and wilson(10, 10).low == 1 - wilson(0, 10).high
    assert math.isnan(wilson(0, 0).value) and math.isnan(wilson(0, 0).low)


def test_student_by_hand() -> None:
    """Mean 2 of 1, 2 and 3: standard error 1/√3, and t of two degrees of freedom is 4.3027."""
    assert student([1, 2, 3]).ends == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4)
    assert student([2.0]).value == 2 and math.isnan(student([2.0]).low) and math.isnan(student([]).value)
