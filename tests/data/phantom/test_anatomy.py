"""Bodies from a generator, and the findings that change their shape."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from complete_findings import GRADES, complete

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Presence, Severity, Side, View
from cxrlab.data.phantom.acquisition_presets import PRESETS
from cxrlab.data.phantom.anatomy import RESHAPES, Anatomy, at_visit, draw_anatomy, grade, reshape
from cxrlab.findings.disease_models import RESHAPING


def bodies(count: int = 60) -> list[Anatomy]:
    """Healthy chests of both sexes."""
    return [draw_anatomy(np.random.default_rng(k), "FM"[k % 2], 20.0 + k, PRESETS["standard"]) for k in range(count)]


@pytest.mark.parametrize("view", [View.PA, View.AP])
def test_a_healthy_heart_is_under_half_the_chest_and_a_large_one_over(view: View) -> None:
    """The cardiothoracic ratio that radiologists use: 0.5 divides the two without exception."""
    for k, body in enumerate(bodies()):
        healthy = at_visit(body, np.random.default_rng(k), view)
        assert healthy.heart_ratio < 0.5
        large = reshape(healthy, [Finding("cardiomegaly", severity=Severity.MILD)])
        assert large.heart_ratio > 0.5


@pytest.mark.parametrize("name", sorted(RESHAPES))
def test_more_severe_means_further_from_healthy(name: str) -> None:
    """Each grade moves the chest further; a faint finding moves it less than a clear one."""
    healthy = Anatomy()

    def distance(finding: Finding) -> float:
        changed = asdict(reshape(healthy, [finding]))
        return sum(abs(changed[key] - value) for key, value in asdict(healthy).items())

    side = complete(name).side
    steps = [distance(Finding(name, severity=grade_, side=side)) for grade_ in GRADES]
    assert 0 < steps[0] < steps[1] < steps[2]
    assert distance(Finding(name, severity=GRADES[0], side=side, certainty=Certainty.POSSIBLE)) < steps[0]


def test_an_absent_finding_reshapes_nothing() -> None:
    """What has resolved is gone from the image."""
    gone = Finding("cardiomegaly", presence=Presence.ABSENT, severity=Severity.SEVERE)
    assert reshape(Anatomy(), [gone]) == Anatomy()


def test_a_raised_dome_is_on_its_own_side() -> None:
    """Left means the patient's left."""
    raised = reshape(Anatomy(), [Finding("elevated hemidiaphragm", side=Side.LEFT, severity=Severity.MILD)])
    assert raised.dome_left < Anatomy().dome_left
    assert raised.dome_right == Anatomy().dome_right


def test_grade_without_severity_is_the_middle() -> None:
    """Some observations carry no severity."""
    assert grade(Finding("nodule"), 1.0, 2.0, 3.0) == 2.0


def test_women_are_smaller_on_average_and_have_breast_shadows() -> None:
    """Sex shows on the image."""
    women, men = bodies()[0::2], bodies()[1::2]
    assert np.mean([b.cage for b in women]) < np.mean([b.cage for b in men])
    assert all(b.breast > 0 for b in women) and all(b.breast == 0 for b in men)


def test_cases_and_drawing_agree_on_what_reshapes_a_chest() -> None:
    """Cases keep such findings mild while they are only possible; the two lists are in two packages."""
    assert set(RESHAPING) == set(RESHAPES)
