import pytest

from cxrlab.core.vocabulary import DRAWN, OBSERVATIONS
from cxrlab.findings.negatives import ALSO_DENIED, CALM, NORMAL, PERTINENT, REGIONS, deniable, region_of


def test_tables_name_drawn_observations_only():
    names = {*ALSO_DENIED, *CALM, *PERTINENT, *(n for rows in ALSO_DENIED.values() for n in rows)}
    names |= {n for row in NORMAL.values() for n in (*row.requires, *row.states)}
    assert names == set(DRAWN)


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
