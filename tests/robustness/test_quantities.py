"""Quantities of what a model said, counted by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from small_evidence import NORMAL, audit, image, lines, truth

from cxrlab.metrics.classification import auroc
from cxrlab.robustness.audit import conclude
from cxrlab.robustness.audit_metrics import change, direction_of, mean_auroc
from cxrlab.robustness.condition_results import Outcomes

# s2 knows nothing of oedema; what is answered about it there must not count.
STUDIES = [truth("s1", e=1, o=0), truth("s2", e=0), truth("s3", e=1, o=1)]
SAID = {"s1": image(e=0.9, o=0.2), "s2": image(e=0.6, o=0.99), "s3": image(e=0.3, o=0.7)}


def test_answers_by_hand() -> None:
    """Five known pairs: 0.9 for 1, 0.2 for 0, 0.6 for 0, 0.3 for 1, 0.7 for 1; the second study's 0.99 is unknown."""
    found = audit(STUDIES, lines("a", "clean", SAID)).clean("a").image
    assert found["closed_questions.accuracy"].value == pytest.approx(3 / 5)
    assert found["closed_questions.confidence"].value == pytest.approx((0.9 + 0.8 + 0.6 + 0.7 + 0.7) / 5)
    assert found["closed_questions.truth"].value == pytest.approx((0.9 + 0.8 + 0.4 + 0.3 + 0.7) / 5)
    assert found["closed_questions.brier"].value == pytest.approx((0.01 + 0.04 + 0.36 + 0.49 + 0.09) / 5)
    assert found["closed_questions.accuracy"].n == found["closed_questions.ece"].n == 5


def test_bins_of_equal_width_and_risk_by_hand() -> None:
    """0.9 for 1, 0.2 for 0 and 0.6 for 0 in bins of their own: gaps 0.1, 0.2, 0.6. Risks 0, 0, 1/3 as 0.6 comes last."""
    made = audit(
        STUDIES,
        lines("a", "clean", {"s1": image(e=0.9, o=0.2, outside=0.25), "s2": image(e=0.6), "s3": image()}),
        trials=20,
    )
    found = made.clean("a").image
    assert found["closed_questions.outside"].value == pytest.approx(0.25)
    assert found["closed_questions.outside"].n == 1
    assert (
        found["closed_questions.ece_fixed"].value == pytest.approx(0.3) and found["closed_questions.ece_fixed"].n == 3
    )
    assert found["closed_questions.risk_coverage"].value == pytest.approx(1 / 9)


def test_a_temperature_changes_calibration_and_no_answer() -> None:
    answers = lines("a", "clean", SAID), lines("a", "pgd@2/255", SAID)
    plain = audit(STUDIES, *answers, trials=20)
    hot = Outcomes(plain.evidence, trials=20, temperatures={"a": 1e6})
    found = hot.outcome(hot.tables("a")["pgd@2/255"]).image
    assert found["closed_questions.confidence.scaled"].value == pytest.approx(0.5, abs=1e-4)
    assert found["closed_questions.brier.scaled"].value == pytest.approx(0.25, abs=1e-4)
    assert found["closed_questions.accuracy"].value == plain.clean("a").image["closed_questions.accuracy"].value
    assert "closed_questions.brier.scaled" not in plain.clean("a").image


def test_blanks_count_either_way() -> None:
    """Oedema of s1 is blank: unknown by default, and absent, so that 0.9 is wrong, in the other reading."""
    studies = [replace(truth("s1", e=1), blank=("edema",)), truth("s2", e=0, o=1)]
    made = audit(studies, lines("a", "clean", {"s1": image(e=0.9, o=0.9), "s2": image(e=0.1, o=0.9)}), trials=20)
    found = conclude(made.evidence, trials=20)["models"]["a"]
    assert (
        found["clean"]["closed_questions.accuracy"]["value"] == 1
        and found["clean"]["closed_questions.accuracy"]["n"] == 3
    )
    negative = found["blanks_negative"]["clean"]["closed_questions.accuracy"]
    assert negative["value"] == 0.75 and negative["n"] == 4


def test_the_area_is_the_mean_over_labels_that_have_both_kinds() -> None:
    """Effusion: positives 0.9 and 0.3 against 0.6, one of two in order. Oedema: 0.7 against 0.2, in order."""
    found = audit(STUDIES, lines("a", "clean", SAID)).clean("a").image["closed_questions.auroc"]
    assert found.value == pytest.approx((0.5 + 1.0) / 2)
    assert found.n == 5


@pytest.mark.parametrize("seed", range(3))
def test_areas_of_resamples_are_those_of_the_metric(seed: int) -> None:
    """Ties, unknown labels and several images a patient, against `metrics.auroc` label by label."""
    rng = np.random.default_rng(seed)
    probs, known = rng.integers(0, 6, (40, 3)) / 5, (rng.random((40, 3)) < 0.4).astype(float)
    known[rng.random((40, 3)) < 0.2] = np.nan
    patients = [truth(f"s{row}", patient=f"p{row // 2}", e=1) for row in range(40)]
    made = audit(patients, lines("a", "clean", {study.id: image(e=0.5) for study in patients}), trials=20)
    found = mean_auroc(probs, known, made.resamples)
    weights = next(made.resamples.weights())[1][:, made.resamples.clusters.codes]
    areas = []
    for label in range(3):
        kept = ~np.isnan(known[:, label])
        areas.append(auroc(probs[kept, label], known[kept, label] == 1, weights[:, kept]))
    assert found.resampled.draws == pytest.approx(np.mean(areas, axis=0))


def test_a_model_that_is_not_asked_has_no_answers_and_no_zeros() -> None:
    found = audit(STUDIES, lines("a", "clean", {study: image(NORMAL) for study in SAID})).clean("a").image
    for name in (
        "closed_questions.accuracy",
        "closed_questions.confidence",
        "closed_questions.ece",
        "closed_questions.auroc",
    ):
        assert math.isnan(found[name].value)
        assert found[name].n == 0
        assert math.isnan(found[name].estimate().low)


def test_a_model_that_writes_nothing_has_no_report_metrics() -> None:
    found = audit(STUDIES, lines("a", "clean", SAID)).clean("a").image
    for name in ("findings.f1", "errors.significant", "reports.accuracy", "report.confidence", "report.loss"):
        assert math.isnan(found[name].value)
        assert found[name].n == 0


def test_what_is_written_by_hand() -> None:
    """Labels read off two reports: right, wrong, right on what is known; confidence e^-0.5 and e^-1."""
    said = {
        "s1": image(NORMAL, labels={"pleural effusion": 1, "edema": 1}, mean_logprob=-0.5, loss=1.0),
        "s2": image(NORMAL, labels={"pleural effusion": 0, "edema": 1}, mean_logprob=-1.0, loss=2.0),
    }
    found = audit(STUDIES[:2], lines("a", "clean", said)).clean("a").image
    assert found["reports.accuracy"].value == pytest.approx(2 / 3)
    assert found["reports.accuracy"].n == 3
    assert found["report.confidence"].value == pytest.approx((math.exp(-0.5) + math.exp(-1)) / 2)
    assert found["report.loss"].value == pytest.approx(1.5)


def test_one_patient_gives_a_value_and_no_interval() -> None:
    both = [truth("s1", patient="p", e=1), truth("s2", patient="p", e=0)]
    said = lines("a", "clean", {"s1": image(e=0.9), "s2": image(e=0.9)})
    found = audit(both, said).clean("a").image["closed_questions.accuracy"]
    assert found.value == 0.5
    assert np.isnan(found.estimate().ends).all()
    assert found.to_json()["n"] == 2


def test_a_change_is_after_less_before_resample_by_resample() -> None:
    """Clean three of five right, attacked none: -0.6, and every resample of a fall everywhere is below 0."""
    turned = {"s1": image(e=0.1, o=0.9), "s2": image(e=0.7), "s3": image(e=0.2, o=0.1)}
    made = audit(STUDIES, lines("a", "clean", SAID), lines("a", "pgd@2/255", turned))
    before = made.clean("a").image["closed_questions.accuracy"]
    after = made.outcome(made.tables("a")["pgd@2/255"]).image["closed_questions.accuracy"]
    found = change(after, before)
    assert found.value == pytest.approx(-0.6)
    np.testing.assert_allclose(found.draws, after.resampled.draws - before.resampled.draws)
    assert change(before, before).draws.tolist() == [0.0] * 200


def test_confidence_is_better_neither_high_nor_low() -> None:
    kinds = {
        name: direction_of(name)
        for name in ("closed_questions.confidence", "closed_questions.accuracy", "flip_rate", "errors.added")
    }
    assert list(kinds.values()) == ["neither", "higher", "lower", "lower"]
