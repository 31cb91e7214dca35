"""Words, marks, spellings and typing errors."""

from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.findings.reading.phrases import load_matcher
from cxrlab.findings.reading.tokens import Spelling, tokenize


def words(text: str) -> list[str]:
    return [token.word for token in tokenize(text, load_matcher().spelling)]


@every_row(
    ("text", "expected"),
    [
        ("pneumothoraces", ["pneumothorax"]),
        ("opacities, masses", ["opacity", ",", "mass"]),
        ("oedema and haemothorax", ["edema", "and", "effusion"]),
        ("right-sided", ["right", "sided"]),
        ("2.3 x 1.4cm.", ["2.3", "x", "1.4", "cm", "."]),
        ("XXXX ___ xxx", ["xxxx", "xxxx", "xxxx"]),
        ("T9 fracture", ["vertebra", "fracture"]),
        ("A vs. B", ["a", "vs", "b"]),
        ("isn't any", ["not"]),
        ("patient’s heart", ["patient", "heart"]),
        ("the heart", ["heart"]),
        ("1.Left effusion2.Mass", ["1", ".", "left", "effusion", "2", ".", "mass"]),
    ],
)
def test_text_becomes_words_of_the_tables(text: str, expected: list[str]) -> None:
    """Plurals, British spelling, masks, vertebral levels, abbreviations, and words that are ignored."""
    assert words(text) == expected


def test_tokens_point_into_the_text() -> None:
    """Offsets are of the original characters, and line breaks before a word are counted up to two."""
    text = "Left\n\n\n effusion"
    first, second = tokenize(text, load_matcher().spelling)
    assert (text[first.start : first.end], text[second.start : second.end]) == ("Left", "effusion")
    assert (first.lines, second.lines) == (0, 2)


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("cardiomegally", "cardiomegaly"),
        ("cardiomegly", "cardiomegaly"),
        ("pnuemothorax", "pneumothorax"),
        ("consolodation", "consolidation"),
        ("atelectesis", "atelectasis"),
    ],
)
def test_one_typing_error_in_a_long_word_is_corrected(typed: str, word: str) -> None:
    """A letter more, less, changed, or two swapped."""
    assert words(typed) == [word]


@pytest.mark.parametrize("word", ["hypodense", "tibial", "noted", "sinus", "reflexion"])
def test_other_words_stay_what_they_are(word: str) -> None:
    """Short words, and words two letters away, are not bent to the tables; "noted" is not "not"."""
    assert words(word) in ([word], ["seen"])


def test_a_typing_error_that_could_be_two_words_is_left_alone() -> None:
    """Guessing between two would be worse than reading nothing."""
    spelling = Spelling({"abcdefgh", "abcdefgx"}, {}, frozenset(), {})
    assert spelling("abcdefg") == "abcdefg"


def test_memory_is_bounded() -> None:
    """Text without end must not fill the memory."""
    spelling = Spelling({"effusion"}, {}, frozenset(), {})
    spelling.MOST = 3
    for number in range(10):
        assert spelling(f"word{number}") == f"word{number}"
    assert len(spelling._memory) == 3
