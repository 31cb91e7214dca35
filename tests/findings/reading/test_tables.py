"""The reader's tables: no line of words in two rules, names that exist, a schema that names what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.vocabulary import OBSERVATIONS, TIPS, Severity
from cxrlab.findings.reading import phrase_tables
from cxrlab.findings.reading.phrase_tables import (
    RULE_TABLES,
    TABLES,
    Kind,
    Label,
    PhraseRule,
    choices,
    load_meanings,
    load_rules,
)
from cxrlab.findings.reading.phrases import PhraseMatcher, load_matcher

RULES = tuple(load_rules())
MENTIONS = tuple(rule for rule in RULES if rule.kind is Kind.MENTION)


def rule(kind: Kind = Kind.FILLER, *patterns: str, **fields: Any) -> PhraseRule:
    return PhraseRule(kind, "because", patterns, **fields)


def lines(rule: PhraseRule) -> set[tuple[str, ...]]:
    """Every line of words that the patterns of a rule stand for."""
    found: set[tuple[str, ...]] = set()
    for pattern in rule.patterns:
        partial: set[tuple[str, ...]] = {()}
        for place in choices(pattern):
            partial = {(*line, *([word] if word else [])) for line in partial for word in place}
        found |= partial - {()}
    return found


def test_no_line_of_words_stands_in_two_rules() -> None:
    """Which of two rules would be meant is not for the order of the tables to decide."""
    assert load_matcher().clashes == []


def test_a_line_in_two_rules_is_reported() -> None:
    """The check above can fail."""
    assert PhraseMatcher((rule(Kind.FILLER, "small"), rule(Kind.ARTICLE, "small", "left"))).clashes == ["small"]


def test_every_table_is_loaded_and_every_label_is_in_one() -> None:
    """A table that is not listed, or a label that no rule has, would do nothing."""
    names = {path.stem for path in TABLES.glob("*.json")}
    assert names == {*RULE_TABLES, "meanings", "spelling"}
    assert {one.label for one in RULES} == set(Label)


def test_every_observation_can_be_read() -> None:
    """Each of the vocabulary has a phrase of its own or a statement that means it."""
    named = {name for one in RULES for name in one.observations}
    stated = {name for meaning in load_meanings().values() for name in meaning.observations if not meaning.absent}
    assert named | stated == set(OBSERVATIONS)


def test_tips_are_of_the_vocabulary() -> None:
    ends = {one.tip for one in RULES if one.tip}
    assert ends | {"above carina", "apex", "base"} == {tip for group in TIPS.values() for tip in group}


def test_meanings_use_names_that_exist() -> None:
    """A misspelt body part or predicate would never be found."""
    parts = {one.name for one in RULES if one.kind is Kind.BODY_PART}
    predicates = {one.name for one in RULES if one.kind is Kind.PREDICATE} | {one.predicate for one in RULES}
    for part, predicate in load_meanings():
        assert part in parts and predicate in predicates, (part, predicate)


def test_plurals_are_not_written_beside_their_singular() -> None:
    """A plural in a table would keep its word from being read as the singular of other phrases."""
    known = load_matcher().spelling.known
    nouns = {
        word for one in RULES if one.kind in (Kind.MENTION, Kind.BODY_PART) for line in lines(one) for word in line
    }
    verbs = {"as", "gas", "lacks", "shifts"}  # words of their own
    assert {word for word in known if word.endswith("s") and word[:-1] in nouns} <= verbs


def test_no_mention_swallows_a_side_or_a_severity() -> None:
    """ "Large hiatal hernia" as one phrase would lose the size."""
    sides = {line for one in RULES if one.kind is Kind.SIDE for line in lines(one) if len(line) == 1}
    grades = {
        line
        for one in RULES
        if one.kind in (Kind.SEVERITY, Kind.CHANGE) and one.severity is Severity.SEVERE
        for line in lines(one)
    }
    allowed = {"right heart catheter", "absent right breast", "absent left breast", "absent right breast shadow"}
    allowed |= {"absent left breast shadow", "left ventricular failure", "left ventricular dysfunction"}
    for mention in MENTIONS:
        if mention.side is not None or not mention.observations:
            continue
        for line in lines(mention):
            swallowed = {(word,) for word in line if word != "densely"} & (sides | grades)
            chamber = bool({"atrium", "ventricle"} & set(line))  # the right ventricle is no side of the patient
            sized = mention.observations in (("cardiomegaly",), ("hyperinflation",), ("central venous catheter",))
            assert not swallowed or " ".join(line) in allowed or (sized and "large" in line) or chamber, line


def test_the_notation_of_patterns() -> None:
    """Choices, and choices that may be left out."""
    assert choices("a|b c") == [["a", "b"], ["c"]]
    assert choices("a? b|c?") == [["a", ""], ["b", "c", ""]]
    for pattern in ("a?|b", "a||b", "|a"):
        with pytest.raises(DataError, match="only a whole choice"):
            choices(pattern)


def test_a_wrong_entry_is_refused_with_its_file_and_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever edits a table learns which rule to correct."""
    right = {"reason": "so", "patterns": ["fluid"], "observations": ["pleural effusion"]}
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("mention", {**right, "observations": ["effusoin"]}, "effusoin"),
        ("mention", {**right, "sid": "left"}, "'sid'"),
        ("mention", {**right, "side": "both"}, "'side'.*both"),
        ("mention", {**right, "patterns": "fluid"}, "'patterns'"),
        ("mention", {**right, "number": 3}, "number"),
        ("mention", {"patterns": ["fluid"]}, "reason"),
        ("location", {"reason": "so", "patterns": ["apex"]}, "location"),
        ("location", {"reason": "so", "patterns": ["apex"], "location": "top"}, "top"),
        ("mentions", right, "'mentions'"),
    ]
    monkeypatch.setattr(phrase_tables, "TABLES", tmp_path)
    monkeypatch.setattr(phrase_tables, "RULE_TABLES", ("pleura",))
    for kind, entry, fault in wrong:
        (tmp_path / "pleura.json").write_text(json.dumps({"about": "…", kind: [entry]}), "utf-8")
        with pytest.raises(DataError, match=rf"pleura\.json.*{fault}"):
            list(load_rules())
    (tmp_path / "pleura.json").write_text('{"mention": [],}', "utf-8")
    with pytest.raises(DataError, match=r"pleura\.json"):
        list(load_rules())
