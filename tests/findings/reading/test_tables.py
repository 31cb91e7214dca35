"""The tables of the reader: no phrase claimed twice, words of the vocabulary, a reason a row."""

from __future__ import annotations

import pytest

from cxrlab.core.vocabulary import LOCATIONS, OBSERVATIONS, TIPS, Severity
from cxrlab.findings.reading import (
    anatomy,
    cues,
    degrees,
    joints,
    mentions_bone,
    mentions_devices,
    mentions_heart,
    mentions_lung,
    mentions_pleura,
    parts,
    predicates,
    statements,
    tips,
)
from cxrlab.findings.reading.phrases import Phrases, load
from cxrlab.findings.reading.rows import Cue, Kind, Mention, Word, spellings

MENTIONS = (
    *mentions_lung.ROWS,
    *mentions_pleura.ROWS,
    *mentions_heart.ROWS,
    *mentions_bone.ROWS,
    *mentions_devices.ROWS,
)
ROWS = (
    *MENTIONS,
    *anatomy.ROWS,
    *cues.ROWS,
    *degrees.ROWS,
    *joints.ROWS,
    *parts.SUBJECTS,
    *predicates.PREDICATES,
    *predicates.GENERICS,
    *tips.ROWS,
)


def test_no_line_of_words_stands_in_two_rows() -> None:
    """Which of two rows would be meant is not for the order of the tables to decide."""
    assert load().clashes == []


def test_a_line_in_two_rows_is_reported() -> None:
    """The check above can fail."""
    rows = (Word(Kind.DEGREE, "small", "a"), Word(Kind.SIDE, "small; left", "b"))
    assert Phrases(rows).clashes == ["small"]


def test_every_row_has_a_reason() -> None:
    """A table without reasons cannot be reviewed."""
    assert all(row.reason.strip() for row in (*ROWS, *statements.MEANINGS))


def test_every_observation_can_be_read() -> None:
    """Each of the vocabulary has a phrase of its own or a statement that means it."""
    named = {name for row in MENTIONS for name in row.observations}
    said = {name for row in statements.MEANINGS for name in row.observations if not row.absent}
    default = {name for row in predicates.PREDICATES for name in row.observations}
    assert named | said | default == set(OBSERVATIONS)


def test_places_and_tips_are_of_the_vocabulary() -> None:
    """A place that the vocabulary does not know would raise in the middle of a report."""
    places = {place for row in anatomy.ROWS if row.kind is Kind.PLACE for place in row.places}
    implied = {row.place for row in (*MENTIONS, *statements.MEANINGS) if row.place}
    assert places | implied <= set(LOCATIONS)
    ends = {row.tip for row in tips.ROWS if row.tip}
    assert ends | {"above carina", "apex", "base"} == {tip for group in TIPS.values() for tip in group}


def test_statements_use_names_that_exist() -> None:
    """A misspelt part or predicate would never be found."""
    said = {row.name for row in predicates.PREDICATES} | {row.said for row in degrees.ROWS if row.said}
    for meaning in statements.MEANINGS:
        assert set(meaning.subjects) <= {row.name for row in parts.SUBJECTS}
        assert set(meaning.predicates) <= said
        assert set(meaning.observations) <= set(OBSERVATIONS)


def test_plurals_are_not_written_beside_their_singular() -> None:
    """A plural in a table would keep its word from being read as the singular of other phrases."""
    known = load().spelling.known
    nouns = {word for row in (*MENTIONS, *parts.SUBJECTS) for line in spellings(row.phrases) for word in line}
    verbs = {"as", "gas", "lacks", "shifts"}  # words of their own
    assert {word for word in known if word.endswith("s") and word[:-1] in nouns} <= verbs


def test_no_mention_swallows_a_side_or_a_degree() -> None:
    """ "Large hiatal hernia" as one phrase would lose the size."""
    sides = {line for row in anatomy.ROWS if row.kind is Kind.SIDE for line in spellings(row.phrases) if len(line) == 1}
    grades = {line for row in degrees.ROWS if row.degree is Severity.SEVERE for line in spellings(row.phrases)}
    allowed = {"right heart catheter", "absent right breast", "absent left breast", "absent right breast shadow"}
    allowed |= {"absent left breast shadow", "left ventricular failure", "left ventricular dysfunction"}
    for row in MENTIONS:
        if row.side is not None:
            continue
        for line in spellings(row.phrases):
            swallowed = {(word,) for word in line if word != "densely"} & (sides | grades)
            chamber = bool({"atrium", "ventricle"} & set(line))  # the right ventricle is no side of the patient
            sized = row.observations in (("cardiomegaly",), ("hyperinflation",), ("central venous catheter",))
            assert not swallowed or " ".join(line) in allowed or (sized and "large" in line) or chamber, line


@pytest.mark.parametrize(
    ("phrase", "lines"),
    [
        ("a|b c", {("a", "c"), ("b", "c")}),
        ("a? b", {("a", "b"), ("b",)}),
        ("a; b\n c", {("a",), ("b",), ("c",)}),
        ("a|b? c", {("a", "c"), ("b", "c"), ("c",)}),
    ],
)
def test_the_notation(phrase: str, lines: set[tuple[str, ...]]) -> None:
    """Choices, optional choices, and phrases parted by semicolons or line ends."""
    assert set(spellings(phrase)) == lines


@pytest.mark.parametrize("phrase", ["a?|b", "a||b", "|a"])
def test_a_misplaced_mark_is_refused(phrase: str) -> None:
    """Only a whole choice can be optional; an empty choice is a slip of the pen."""
    with pytest.raises(ValueError, match="only a whole choice"):
        list(spellings(phrase))


def test_rows_of_one_kind_are_of_one_class() -> None:
    """Code that asks a row of a kind for its fields can rely on them."""
    kinds = {Kind.MENTION: Mention, Kind.SIDE: Word, Kind.PLACE: Word, Kind.TIP: Word, Kind.NEGATION: Cue}
    assert all(isinstance(row, kinds[row.kind]) for row in ROWS if row.kind in kinds)
