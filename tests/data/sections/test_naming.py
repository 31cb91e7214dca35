"""What a header's name means, by the table, with a slip, or by a word that it holds."""

from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.core.records import SECTIONS
from cxrlab.data.section_headers import (
    BY_NAME,
    KEYWORDS,
    ROWS,
    SUMMARY,
    TECHNIQUE,
    in_capitals,
    is_one_typo,
    meaning,
    names_an_image,
    simple,
    spelled,
)
from cxrlab.data.sections import parse


def test_the_notation_of_a_row() -> None:
    """Two forms of one word and three of another are six names; an underscore is a blank."""
    assert spelled("a/b c/d/e_f; g") == ["a c", "a d", "a e f", "b c", "b d", "b e f", "g"]


def test_every_row_has_a_reason_and_every_name_is_simple() -> None:
    """A name that `simple` would change is never found."""
    assert all(row.reason and spelled(row.names) for row in ROWS)
    assert [name for name in BY_NAME if simple(name) != name] == []


@every_row("name", sorted(name for name, row in BY_NAME.items() if row.section in SECTIONS))
def test_every_name_heads_its_section(name: str) -> None:
    """In capitals and with a capital first letter, after another section and before the text."""
    row = BY_NAME[name]
    for spelling in (name.upper(), name.capitalize()):
        parsed = parse(f"DATE: today\n{spelling}: Some words.\n")
        assert parsed.section_text(row.section) == "Some words."
        assert parsed.merged == row.merged


@pytest.mark.parametrize(
    ("name", "simple_name"),
    [
        ("Findings / IMPRESSION (final)", "findings and impression"),
        ("RECOMMENDATION(S)", "recommendations"),
        ("I M P R E S S I O N", "impression"),
        ("Findings&Impression", "findings and impression"),
        ("ADDENDUM #2", "addendum"),
    ],
)
def test_a_name_is_made_simple(name: str, simple_name: str) -> None:
    """Case, brackets, numbers, signs for 'and' and letters set apart go."""
    assert simple(name) == simple_name


@pytest.mark.parametrize("slip", ["finding", "findigns", "fndings", "finddings", "fintings", "indings"])
def test_is_one_typo(slip: str) -> None:
    """A letter lost, swapped with the next, doubled or changed."""
    assert is_one_typo(slip, "findings")


@pytest.mark.parametrize("word", ["findings", "fundinqs", "funds", "ndings", ""])
def test_no_slip_or_more_than_one(word: str) -> None:
    """The word itself is no slip; two changes are another word."""
    assert not is_one_typo(word, "findings")


def test_a_slip_never_changes_a_word_of_the_table() -> None:
    """Each name of the table means what its row says and not what a neighbour's row says."""
    for name, row in BY_NAME.items():
        found = meaning(name)
        assert found is not None and found.row is row


@every_row(("word", "section"), KEYWORDS)
def test_capitals_that_hold_a_word(word: str, section: str) -> None:
    """Only in capitals, and not where they are a sentence."""
    found = meaning(f"GENERAL {word.upper()} TODAY")
    assert found is not None and found.row.section == section and not found.whole
    assert meaning(f"General {word} today") is None
    assert meaning(f"THERE IS NO {word.upper()} TODAY") is None


@every_row(
    ("name", "is_image"),
    [
        ("CHEST, TWO VIEWS", True),
        ("PA AND LATERAL CHEST", True),
        ("PORTABLE SEMI-UPRIGHT FILM AFTER INTUBATION", True),
        ("AP chest, 5:30 a.m.", True),
        ("Two views of the left ribs", True),
        ("Views", False),
        ("CHEST CT", False),
        ("Chest pain", False),
        ("NO CHEST FILM IS SEEN", False),
        ("Lungs", False),
        ("", False),
    ],
)
def test_names_of_images(name: str, is_image: bool) -> None:
    """In capitals one telling word will do; else every word must go with a film's name."""
    assert names_an_image(name) is is_image


def test_capitals() -> None:
    """A plural in brackets and small words between capitals do not count against them."""
    assert in_capitals("RECOMMENDATION(s)") and in_capitals("FINDINGS and IMPRESSION") and in_capitals("A")
    assert not in_capitals("Findings") and not in_capitals("12")


def test_sections_of_the_table_are_those_of_the_parser() -> None:
    """A misspelt section in a row would hide its text in `other`."""
    beside = {row.section for row in ROWS} - set(SECTIONS)
    assert beside == {
        TECHNIQUE, SUMMARY, "recommendation", "notification", "wet read", "addendum", "administration", "signature",
        "organ", "final report", "comment",
    }  # fmt: skip
