from __future__ import annotations

import pytest

from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import draw_patient


def _narrated(lexicon: str, patients: int) -> list[str]:
    cases = [draw_patient(3, f"p{number}") for number in range(patients)]
    narrated = [narrate(visit, 3, f"{case.patient}-{visit.number}", lexicon) for case in cases for visit in case.visits]
    return [narration.report.findings or "" for narration in narrated]


@pytest.fixture(scope="session")
def reports() -> list[str]:
    """Findings sections of some 100 visits in the words that models are trained on."""
    return _narrated("A", 60)


@pytest.fixture(scope="session")
def other_words() -> list[str]:
    """The same kind of reports in the words of the other lexicon."""
    return _narrated("B", 30)
