"""Area under the ROC curve against counting pairs, and its interval by patient."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cxrlab.metrics.classification import auroc, auroc_interval
from cxrlab.metrics.statistics.intervals import Resamples


def by_pairs(scores: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> float:
    above = total = 0.0
    for i in np.flatnonzero(truth):
        for j in np.flatnonzero(~truth):
            pair = weights[i] * weights[j]
            above += pair * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
            total += pair
    return above / total if total else math.nan


def test_by_hand() -> None:
    """Positives 0.9 and 0.4, negatives 0.5 and 0.1: three of four pairs are in order."""
    assert auroc(np.array([0.9, 0.4, 0.5, 0.1]), np.array([True, True, False, False]))[0] == 0.75


def test_constant_scores_are_chance() -> None:
    assert auroc(np.zeros(5), np.array([True, False, True, False, False]))[0] == 0.5


@pytest.mark.parametrize("seed", range(4))
def test_weights_and_ties_as_by_counting_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, truth = rng.integers(0, 5, 30).astype(float), rng.random(30) < 0.4
    weights = rng.integers(0, 4, (3, 30)).astype(float)
    wanted = [by_pairs(scores, truth, row) for row in weights]
    assert auroc(scores, truth, weights) == pytest.approx(wanted)


@pytest.mark.parametrize("truth", [[True, True], [False, False], []])
def test_one_kind_alone_has_no_area(truth: list[bool]) -> None:
    assert math.isnan(auroc(np.arange(len(truth), dtype=float), np.array(truth, bool))[0])


def test_the_interval_holds_the_value_and_widens_with_fewer_patients() -> None:
    """The same 200 cases as 200 patients or as 10: images of one patient say the same thing twice."""
    rng = np.random.default_rng(5)
    patient = np.arange(200) // 20
    truth = patient % 2 == 0
    scores = truth + rng.normal(size=10)[patient] + 0.05 * rng.normal(size=200)
    widths = []
    for names in ([str(k) for k in range(200)], [str(k) for k in patient]):
        found = auroc_interval(scores, truth, Resamples(names, trials=300, rng=np.random.default_rng(0)), 0.95)
        assert found.low <= found.value <= found.high
        assert (found.positives, found.negatives) == (100, 100)
        widths.append(found.high - found.low)
    assert widths[1] > 2 * widths[0]


def test_no_interval_from_one_patient_of_a_kind() -> None:
    truth = np.array([True, False, False])
    resamples = Resamples(["a", "b", "c"], trials=50, rng=np.random.default_rng(0))
    found = auroc_interval(np.array([1.0, 0.0, 0.5]), truth, resamples, 0.95)
    assert found.value == 1.0 and math.isnan(found.low) and math.isnan(found.high)
