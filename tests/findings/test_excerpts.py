from __future__ import annotations

import pytest

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Presence, Severity, Side
from cxrlab.findings.finding_sentences import NOTHING_PRESENT, listed, present_sentences
from cxrlab.findings.narrator import narrate
from cxrlab.findings.reader import read
from cxrlab.findings.simulated_patients import draw_patient


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("The heart is normal. Small left effusion. No pneumothorax.", "Small left effusion."),
        ("Possible right lower lobe pneumonia; the bones are intact.", "Possible right lower lobe pneumonia;"),
        ("Small left effusion. Lungs clear. Pacemaker in place.", "Small left effusion. Pacemaker in place."),
        ("The lungs are clear. No effusion.", NOTHING_PRESENT),
        ("", NOTHING_PRESENT),
    ],
)
def test_sentences_that_deny_or_call_normal_are_left_out(text: str, kept: str) -> None:
    assert present_sentences(text) == kept


def test_what_is_kept_says_the_same_things_are_there() -> None:
    """The reader finds the same present things in the kept sentences as in the whole report."""
    reports = [
        narrate(visit, 3, f"{number}/{visit.number}").report.findings or ""
        for number in range(60)
        for visit in draw_patient(3, f"p{number}").visits
    ]

    def present(text: str) -> set[tuple[str, str]]:
        return {(one.observation, str(one.side)) for one in read(text) if one.present}

    assert sum(bool(present(text)) for text in reports) > 40
    different = [text for text in reports if present(present_sentences(text)) != present(text)]
    assert len(different) <= 0.02 * len(reports)  # a side said in the sentence before may be lost


def test_what_is_present_is_listed_in_terms_of_the_vocabulary() -> None:
    effusion = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)
    edema = Finding("edema", certainty=Certainty.POSSIBLE)
    catheter = Finding("central venous catheter", side=Side.RIGHT, tip="superior vena cava")
    absent = Finding("pneumothorax", presence=Presence.ABSENT)
    assert listed([effusion, absent, edema]) == "mild left pleural effusion; possible edema"
    assert listed([catheter]) == "right central venous catheter superior vena cava"
    assert listed([absent]) == NOTHING_PRESENT
