import pytest

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Severity, Side
from cxrlab.findings.progression import ASSOCIATED_FINDINGS, order, side_beside

TUBE = ASSOCIATED_FINDINGS["chest tube"]


def air(severity=Severity.MILD, side=Side.LEFT):
    return Finding("pneumothorax", side=side, location="apex", severity=severity)


def test_more_air_brings_a_drain_more_often_and_a_small_effusion_none():
    chances = [TUBE.chance(air(grade)) for grade in (Severity.MILD, Severity.MODERATE, Severity.SEVERE)]
    assert chances == sorted(chances) and chances[-1] > 0.8
    assert TUBE.chance(Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)) == 0.0
    assert TUBE.chance(Finding("cardiomegaly", severity=Severity.SEVERE)) == 0.0


@pytest.mark.parametrize(("side", "explained"), [(Side.LEFT, True), (Side.RIGHT, False), (Side.BILATERAL, True)])
def test_a_drain_is_explained_by_air_on_its_own_side(side, explained):
    assert TUBE.accompanied(Finding("chest tube", side=Side.LEFT, tip="apex"), [air(side=side)]) is explained


def test_an_associated_finding_takes_the_side_of_its_cause():
    """A drain has one side: of two, the worse one."""
    assert side_beside(air(side=Side.RIGHT), 0.0, Side.LEFT) is Side.RIGHT
    assert side_beside(air(side=Side.BILATERAL), 0.0, Side.LEFT) is Side.LEFT
    assert side_beside(air(side=Side.BILATERAL), 0.2, Side.LEFT) is Side.BILATERAL


def test_drains_come_before_the_air_they_bring():
    assert order("pneumothorax") == 0 < order("chest tube") < order("subcutaneous emphysema")


def test_a_large_pneumothorax_keeps_its_drain():
    tube = Finding("chest tube", side=Side.LEFT, tip="apex")
    assert TUBE.held(tube, [air(Severity.SEVERE)]) and not TUBE.held(tube, [air(Severity.SEVERE, Side.RIGHT)])
    assert not TUBE.held(tube, [air(Severity.MILD)])
