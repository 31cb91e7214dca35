"""Calibration error and Brier score against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from cxrlab.metrics.base import Tally
from cxrlab.metrics.classification import (
    bin_of,
    brier,
    equal_mass_bins,
    expected_calibration_error,
    fit_temperature,
    fixed_calibration_error,
    risk_coverage_area,
    scaled,
)
from cxrlab.metrics.statistics.intervals import Resamples


def bin_counts(error: Tally) -> NDArray[np.int64]:
    """Answers in each bin of a calibration error."""
    bins = error.rows.shape[1] // 2
    return error.rows[:, bins:].sum(axis=0).astype(np.int64)


GIVEN = [0.2, 0.2, 0.8, 0.8]
TRUE = [0, 0, 1, 0]


def test_by_hand() -> None:
    """Two bins: 0.2 twice against no truth (gap 0.4), 0.8 twice against one (gap 0.6); 1.0 over four answers."""
    error = expected_calibration_error(GIVEN, TRUE, bins=2)
    assert error.value == pytest.approx(0.25)
    assert bin_counts(error).tolist() == [2, 2]


def test_brier_by_hand() -> None:
    """0.04 + 0.04 + 0.04 + 0.64 over four."""
    assert brier(GIVEN, TRUE).value == pytest.approx(0.19)


def test_bins_hold_equally_many() -> None:
    values = np.random.default_rng(0).permutation(30) / 30
    assert bin_counts(expected_calibration_error(values, np.zeros(30))).tolist() == [2] * 15


def test_equal_probabilities_share_a_bin_in_any_order() -> None:
    """Seven answers of 0.5 stand across the middle of ten: no cut may part them."""
    values = np.array([0.1] + [0.5] * 7 + [0.9, 0.95])
    truth = np.array([0, 1, 0, 1, 1, 0, 0, 1, 1, 1])
    first = expected_calibration_error(values, truth, bins=2)
    assert bin_counts(first).tolist() == [1, 9]
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(10)
        again = expected_calibration_error(values[order], truth[order], bins=2)
        assert bin_counts(again).tolist() == [1, 9]
        assert again.value == pytest.approx(first.value)


def test_one_value_is_one_bin() -> None:
    """All at 0.7, half of them true: the gap is 0.2."""
    error = expected_calibration_error([0.7] * 4, [1, 1, 0, 0])
    assert equal_mass_bins([0.7] * 4).tolist() == []
    assert error.value == pytest.approx(0.2)


def test_an_answer_at_an_edge_is_in_the_upper_bin() -> None:
    edges = equal_mass_bins([0.1, 0.2, 0.3, 0.4], bins=2)
    assert edges.tolist() == [0.3]
    assert bin_of([0.29, 0.3], edges).tolist() == [0, 1]


def test_what_is_not_known_is_left_out_and_not_absent() -> None:
    """Counting the unknown 0.9 as absent would give 0.81 more."""
    reported = brier([0.9, 0.9], [1, np.nan])
    assert reported.value == pytest.approx(0.01)
    assert (reported.n, reported.undefined) == (1, 1)
    assert bin_counts(expected_calibration_error([0.9, 0.9], [1, np.nan])).sum() == 1


def test_a_table_by_study_is_its_answers_one_by_one() -> None:
    rng = np.random.default_rng(3)
    given, truth = rng.random((20, 4)), (rng.random((20, 4)) < 0.5).astype(float)
    truth[rng.random((20, 4)) < 0.3] = np.nan
    for measure in (expected_calibration_error, brier):
        table = measure(given, truth)
        assert len(table.rows) == 20
        assert table.value == pytest.approx(measure(given.ravel(), truth.ravel()).value)


def test_nothing_known_has_no_value() -> None:
    error = expected_calibration_error([0.5], [np.nan])
    assert error.n == 0
    assert math.isnan(error.value)


def test_resamples_keep_the_bins() -> None:
    """Each resample is its own answers in the bins of all answers, by patient."""
    rng = np.random.default_rng(1)
    given, truth = rng.random(40), rng.random(40) < 0.5
    patients = [f"p{number // 2}" for number in range(40)]
    error = expected_calibration_error(given, truth, bins=5)
    draws = Resamples(patients, trials=3, rng=np.random.default_rng(2))
    place = bin_of(given, equal_mass_bins(given, 5))
    found = draws.resample([error])[0].draws
    for number, weights in enumerate(next(draws.weights())[1]):
        times = weights[draws.clusters.codes]
        gaps = [abs(float((times * (given - truth))[place == one].sum())) for one in range(5)]
        assert found[number] == pytest.approx(sum(gaps) / times.sum())


def test_few_answers_look_worse_calibrated_than_they_are() -> None:
    """Truth drawn with exactly the probability given: the error falls with n towards its true value, 0."""
    rng = np.random.default_rng(0)
    errors = []
    for n in (30, 30_000):
        given = rng.random(n)
        errors.append(expected_calibration_error(given, rng.random(n) < given).value)
    assert errors[0] > 0.1
    assert errors[1] < 0.02


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="equal size"):
        brier([0.1, 0.2], [1])


def test_bins_of_equal_width_by_hand() -> None:
    """Two bins cut at 0.5: 0.1 and 0.2 against one truth (gap 0.7), 0.9 against none (gap 0.9); 1.6 over three answers."""
    found = fixed_calibration_error([0.1, 0.2, 0.9], [1, 0, 0], bins=2)
    assert found.value == pytest.approx((0.7 + 0.9) / 3)
    assert bin_counts(found).tolist() == [2, 1]
    assert found.metric.name == "ece_fixed"


def test_bins_of_equal_width_do_not_move_with_the_answers() -> None:
    assert (
        bin_counts(fixed_calibration_error([0.51, 0.52, 0.53], [1, 1, 1], bins=10)).tolist() == [0] * 5 + [3] + [0] * 4
    )


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_a_known_temperature_is_recovered(temperature: float) -> None:
    """Truths drawn with probability sigmoid(m), answers given as sigmoid(m · T): dividing logits by T repairs them."""
    rng = np.random.default_rng(5)
    margins = rng.normal(0, 1.5, 40_000)
    truth = rng.random(len(margins)) < 1 / (1 + np.exp(-margins))
    given = 1 / (1 + np.exp(-margins * temperature))
    found = fit_temperature(given, truth)
    assert found == pytest.approx(temperature, rel=0.04)
    assert fixed_calibration_error(scaled(given, found), truth).value < 0.015


def test_temperature_changes_no_answer_and_knows_no_truth_from_nothing() -> None:
    given = np.array([0.1, 0.5, 0.9, np.nan])
    assert ((scaled(given, 4.0) > 0.5) == (given > 0.5)).all()
    assert scaled([0.8], 2.0)[0] == pytest.approx(2 / 3)  # logit log 4, halved: log 2
    assert math.isnan(fit_temperature([np.nan], [1]))


def test_risk_and_coverage_by_hand() -> None:
    """Right, wrong, right from the most confident on: risks 0, 1/2, 1/3, so 5/18 on average."""
    area = risk_coverage_area(np.array([0.9, 0.8, 0.7]), np.array([0.0, 1.0, 0.0]))
    assert area == pytest.approx([5 / 18])


def test_equally_confident_answers_are_accepted_together() -> None:
    area = risk_coverage_area(np.array([0.9, 0.9]), np.array([1.0, 0.0]))
    assert area == pytest.approx([0.5])
    twice = risk_coverage_area(np.array([0.9, 0.8]), np.array([0.0, 1.0]), np.array([[1.0, 1.0], [2.0, 0.0]]))
    assert twice == pytest.approx([0.25, 0.0])
