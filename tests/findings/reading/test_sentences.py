"""Where a sentence ends, and which sections are read."""

from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.findings.reading.phrases import load_matcher
from cxrlab.findings.reading.sentences import split_sentences
from cxrlab.findings.reading.tokens import tokenize


def split(text: str) -> list[str]:
    matcher = load_matcher()
    tokens = tokenize(text, matcher.spelling)
    return [
        text[tokens[sentence.phrases[0].first].start : tokens[sentence.phrases[-1].last - 1].end]
        for sentence in split_sentences(tokens, matcher.find(tokens))
    ]


@every_row(
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
    """A wrapped line continues, a line of its own does not, an empty line always ends."""
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
def test_sections_without_findings_are_left_out(text: str, expected: list[str]) -> None:
    """Why and how the image was taken is no finding; findings and impression are."""
    assert split(text) == expected
