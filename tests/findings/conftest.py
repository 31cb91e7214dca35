"""Drawn visits that the tests of this room read; drawn once, since drawing is deterministic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import DRAWN, Certainty, View
from cxrlab.findings.simulated_patients import PatientCase, Visit, draw_patient

PATIENTS = 4000


@pytest.fixture(scope="session")
def patients() -> list[PatientCase]:
    return [draw_patient(5, f"p{number:05d}") for number in range(PATIENTS)]


@pytest.fixture(scope="session")
def visits(patients: list[PatientCase]) -> list[Visit]:
    return [visit for patient in patients for visit in patient.visits]


@pytest.fixture(scope="session")
def examples(visits: list[Visit]) -> dict[str, list[Finding]]:
    """One complete finding for each side, place, grade and tip of each drawn observation, certain, without change."""
    found: dict[str, dict[object, Finding]] = {name: {} for name in DRAWN}
    for visit in visits:
        for finding in visit.present:
            key = (finding.side, finding.location, finding.severity, finding.tip)
            plain = replace(finding, change=None, certainty=Certainty.CERTAIN)
            found[finding.observation].setdefault(key, plain)
    return {name: list(rows.values()) for name, rows in found.items()}


@pytest.fixture
def image() -> type[Visit]:
    """A visit of a plain patient with the given findings."""

    def make(*findings: Finding, days: int | None = None, view: View = View.PA) -> Visit:
        return Visit(1 if days is None else 2, 60, "F", view, "routine", days, findings)

    return make  # type: ignore[return-value]
