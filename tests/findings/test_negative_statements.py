import pytest
from tables import every_row

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import DRAWN, OBSERVATIONS, Severity, Side
from cxrlab.findings.negative_statements import (
    ALSO_DENIED,
    CHRONIC,
    CONDITIONS,
    NORMAL,
    PERTINENT,
    REGIONS,
    circumstances,
    deniable,
    region_of,
)


def test_registries_name_drawn_observations_only():
    names = {*ALSO_DENIED, *CHRONIC, *PERTINENT, *(n for rows in ALSO_DENIED.values() for n in rows)}
    names |= {n for row in NORMAL.values() for n in (*row.requires, *row.states)}
    assert names == {*DRAWN, *CONDITIONS}
    assert {n for row in CONDITIONS.values() for n in row.names} <= set(DRAWN)


def test_a_normal_statement_is_refused_beside_what_it_denies():
    assert all(set(row.states) <= set(row.requires) for row in NORMAL.values())
    assert {row.region for row in NORMAL.values()} == set(REGIONS.values())


@pytest.mark.parametrize(
    ("denied", "present"),
    [
        ("consolidation", "pneumonia"), ("consolidation", "lung opacity"), ("consolidation", "consolidation"),
        ("rib fracture", "clavicle fracture"), ("nodule", "mass"), ("emphysema", "subcutaneous emphysema"),
        ("lung opacity", "atelectasis"),
    ],
)  # fmt: skip
def test_misleading_denials_are_held_back(denied, present):
    assert not deniable(denied, frozenset({present}))
    assert deniable(denied, frozenset({"sternal wires"}))


def test_every_observation_has_a_region():
    assert {region_of(name) for name in OBSERVATIONS} == set(REGIONS.values())


def effusion(severity, side=Side.LEFT):
    return Finding("pleural effusion", side=side, severity=severity)


def base(name, severity=None, place="lower zone"):
    return Finding(name, side=Side.RIGHT, location=place, severity=severity)


MILD, MODERATE, SEVERE = Severity.MILD, Severity.MODERATE, Severity.SEVERE


@every_row(
    ("kind", "finding", "allowed"),
    [
        ("diaphragm", effusion(MILD), False), ("diaphragm", effusion(SEVERE), False),
        ("diaphragm", base("consolidation", SEVERE), False), ("diaphragm", base("consolidation", MILD), True),
        ("heart", effusion(SEVERE), False), ("heart", effusion(SEVERE, Side.BILATERAL), False),
        ("heart", effusion(SEVERE, Side.RIGHT), True), ("heart", effusion(MODERATE), True),
        ("angles", base("pneumonia", SEVERE), False), ("angles", base("lung opacity", SEVERE), False),
        ("angles", base("mass"), False), ("angles", base("mass", place="upper zone"), True),
        ("angles", base("pneumonia", MODERATE), True), ("angles", base("pneumonia", SEVERE, "mid zone"), True),
    ],
)  # fmt: skip
def test_what_is_hidden_is_not_called_normal(kind, finding, allowed):
    """A dome under fluid, a heart behind it and an angle behind dense lung cannot be judged."""
    assert circumstances([finding]).isdisjoint(NORMAL[kind].requires) is allowed


@pytest.mark.parametrize(
    ("denied", "finding"),
    [
        ("elevated hemidiaphragm", Finding("low lung volumes", severity=MILD)),
        ("elevated hemidiaphragm", effusion(MODERATE)),
        ("cardiomegaly", effusion(SEVERE)),
        ("atelectasis", effusion(SEVERE)),
    ],
)
def test_what_is_hidden_is_not_denied(denied, finding):
    assert not deniable(denied, circumstances([finding]))
    assert deniable(denied, circumstances([effusion(MILD)]))
