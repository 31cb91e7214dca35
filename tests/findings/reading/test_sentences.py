"""Where a sentence ends, and which sections are read."""

from __future__ import annotations

import pytest

from cxrlab.findings.reading.phrases import load
from cxrlab.findings.reading.sentences import sentences
from cxrlab.findings.reading.tokens import tokens


def split(text: str) -> list[str]:
    found = tokens(text, load().spelling)
    return [
        text[found[one.items[0].first].start : found[one.items[-1].last - 1].end]
        for one in sentences(found, load().find(found))
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No effusion. Mass.", ["No effusion", "Mass"]),
        ("No effusion.Mass", ["No effusion", "Mass"]),
        ("Nodule of 2.5 cm. Mass", ["Nodule of 2.5 cm", "Mass"]),
        ("Cardiomegaly\nEffusion", ["Cardiomegaly", "Effusion"]),
        ("Small left pleural\neffusion", ["Small left pleural\neffusion"]),
        ("No pneumothorax\nor effusion", ["No pneumothorax\nor effusion"]),
        ("No\neffusion", ["No\neffusion"]),
        ("Effusion and\n\nmass", ["Effusion and", "mass"]),
    ],
)
def test_sentences_end_at_stops_and_at_line_breaks_that_close(text: str, expected: list[str]) -> None:
    """A wrapped line goes on, a line of its own does not, an empty line always ends."""
    assert split(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INDICATION: effusion. FINDINGS: Mass.", ["Mass"]),
        ("Clinical history: effusion FINDINGS: Mass.", ["Mass"]),
        ("HISTORY: effusion.\nMass.", ["Mass"]),
        ("COMPARISON: effusion\n\nMass.", ["Mass"]),
        ("IMPRESSION: Mass.", ["Mass"]),
        ("Technique: portable. Impression: Mass. History: effusion.", ["Mass"]),
    ],
)
def test_sections_that_say_nothing_of_the_image_are_left_out(text: str, expected: list[str]) -> None:
    """Why and how the film was taken is no finding; findings and impression are."""
    assert split(text) == expected
