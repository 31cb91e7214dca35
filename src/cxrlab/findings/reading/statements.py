"""Finds the statements of a sentence: mentions of observations, and predicates about parts of the body."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.vocabulary import OBSERVATIONS, Change, Group, Severity, Side
from cxrlab.findings.reading.phrase_tables import Kind, load_meanings
from cxrlab.findings.reading.phrases import Phrase

# What may stand between an adjective and its body part ("mild enlargement of the left hilum"), and between a body part
# and its predicate ("the left hilum is again mildly enlarged").
_BEFORE_PART = frozenset(
    {
        Kind.SIDE, Kind.LOCATION, Kind.LEVEL, Kind.SEVERITY, Kind.PREPOSITION, Kind.CHANGE, Kind.ORDINAL, Kind.ARTICLE,
        Kind.FILLER, Kind.PRONOUN, Kind.DEVICE_END, Kind.SERIES,
    }
)  # fmt: skip
_AFTER_PART = _BEFORE_PART | {
    Kind.VERB, Kind.COLON, Kind.NEGATION, Kind.HEDGE, Kind.HEDGE_EITHER, Kind.HEDGED_EXPLANATION, Kind.COMMA, Kind.AND,
    Kind.PREDICATE, Kind.UNLIKELY, Kind.OR, Kind.TERMINATION, Kind.EXISTENTIAL,
}  # fmt: skip
_PREDICATE_KINDS = (Kind.SEVERITY, Kind.CHANGE)  # can be predicates of a body part: "the heart is large"
_JOINS = frozenset({Kind.AND, Kind.OR, Kind.COMMA})
_LISTS = _JOINS | {Kind.VERSUS}
_CONTINUES = frozenset({Kind.PREDICATE, Kind.ORDINAL, Kind.SIDE, Kind.LEVEL, Kind.AND, Kind.SEVERITY})
_NORMAL = frozenset({"normal", "clear"})


class Statement:
    """One statement while it is being worked out.

    Attributes:
        observations: What it is about; empty for a statement that something is normal or wrong.
        start: Index of its first phrase in the sentence.
        anchor: Index of the phrase that makes it: a mention or a predicate.
        part: Index of the body part, or -1.
        absent: Whether it is denied.
        normal: Whether the words themselves deny ("normal heart size").
        possible: Whether it is hedged.
        predicative: Whether it is a clause of its own: body part, verb, predicate.
        change: Where the words of the statement say it; other changes are attributes.
        dropped: Whether it turned out to be no finding.
    """

    __slots__ = (
        "absent", "anchor", "change", "dropped", "location", "normal", "observations", "part", "possible",
        "predicative", "severity", "side", "start",
    )  # fmt: skip

    def __init__(self, observations: tuple[str, ...], anchor: int, part: int = -1, absent: bool = False) -> None:
        self.observations = observations
        self.start = min(anchor, part) if part >= 0 else anchor
        self.anchor = anchor
        self.part = part
        self.absent = self.normal = absent
        self.predicative = False
        self.possible = False
        self.dropped = False
        self.change: Change | None = None
        self.side: Side | None = None
        self.location: str | None = None
        self.severity: Severity | None = None

    @property
    def end(self) -> int:
        """Index of its last phrase."""
        return max(self.anchor, self.part)


def find_statements(phrases: Sequence[Phrase]) -> list[Statement]:
    """Statements in the order of the phrases that make them."""
    statements: list[Statement] = []
    covered: set[int] = set()  # body parts of which something was said already
    for index, phrase in enumerate(phrases):
        if phrase.kind is Kind.MENTION:
            rule = phrase.rule
            statement = Statement(rule.observations, index)
            statement.side, statement.location, statement.severity = rule.side, rule.location, rule.severity
            statement.possible = rule.possible
            if rule.resolved:
                statement.absent, statement.change = True, Change.RESOLVED
            statements.append(statement)
        elif phrase.kind is Kind.PREDICATE or (phrase.kind in _PREDICATE_KINDS and phrase.rule.predicate):
            new = _predications(phrases, index, covered)
            # "vascular engorgement is within limits of normal" takes back what its noun says.
            for earlier in statements:
                if not earlier.predicative and any(one.normal and one.part == earlier.part >= 0 for one in new):
                    earlier.dropped = True
            statements += new
    return statements


def _predications(phrases: Sequence[Phrase], at: int, covered: set[int]) -> list[Statement]:
    """The statements that the predicate at this index makes about the body parts before or after it."""
    rule = phrases[at].rule
    loose = phrases[at].kind is not Kind.PREDICATE  # a severity or change, which need not be a predicate
    predicate = rule.predicate if loose else rule.name
    before = _fitting(phrases, _part_before(phrases, at, loose), predicate)
    after = _fitting(phrases, _part_after(phrases, at, loose), predicate)
    if after >= 0 and (
        phrases[at + 1].kind is Kind.PREPOSITION
        or any(phrase.kind in (Kind.COLON, Kind.ARTICLE) for phrase in phrases[before + 1 : at])
    ):
        before = -1  # "widening of the mediastinum" under the heading "Hila:"; "… of the left and a high right dome"
    if before >= 0 and (after < 0 or before not in covered):
        parts = _joined_parts(phrases, before, -1, predicate, covered)
    elif after >= 0:
        parts = _joined_parts(phrases, after, 1, predicate, covered)
    else:
        return [] if loose else _without_part(phrases, at)
    covered.update(parts)
    statements = []
    for part in sorted(parts):
        meaning = load_meanings()[phrases[part].rule.name, predicate]
        statement = Statement(meaning.observations, at, part, meaning.absent)
        statement.possible, statement.location = meaning.possible, meaning.location
        statement.severity = rule.severity if rule.graded else None
        statement.side = phrases[part].rule.side
        if loose and predicate == "grown":
            statement.change = rule.change  # "larger than before" compares by itself
        has_verb = any(phrase.kind in (Kind.VERB, Kind.COLON) for phrase in phrases[part + 1 : at])
        statement.predicative = part < at and (meaning.absent or has_verb)
        statements.append(statement)
    return statements


def _fitting(phrases: Sequence[Phrase], part: int, predicate: str) -> int:
    """The index of the body part where the predicate means something of it, else -1."""
    return part if part >= 0 and (phrases[part].rule.name, predicate) in load_meanings() else -1


def _part_before(phrases: Sequence[Phrase], at: int, loose: bool) -> int:
    if loose and _is_adjective(phrases, at):
        return -1  # "the interstitium is mildly edematous": the severity is of what follows
    for index in range(at - 1, -1, -1):
        kind = phrases[index].kind
        if kind is Kind.BODY_PART:
            return index
        if kind is Kind.TERMINATION and not loose and phrases[at].rule.observations:
            return -1  # "…in the spine, but no fracture": the noun needs no body part
        if kind is Kind.NOT_ASSESSABLE and phrases[index + 1].kind is Kind.TERMINATION:
            continue  # "the heart is poorly seen but seems normal"
        contrasted = phrases[at - 1].kind is Kind.TERMINATION and not loose and phrases[at].rule.name in _NORMAL
        if kind is Kind.MENTION and contrasted:
            continue  # "the lungs are hypoinflated but clear"
        if kind not in _AFTER_PART or (loose and kind not in (Kind.VERB, Kind.CHANGE, Kind.SEVERITY, Kind.NEGATION)):
            return -1
    return -1


def _part_after(phrases: Sequence[Phrase], at: int, loose: bool) -> int:
    for index in range(at + 1, len(phrases)):
        kind = phrases[index].kind
        if kind is Kind.BODY_PART:
            return -1 if _is_adjective(phrases, index) else index
        if loose and kind not in (Kind.SIDE, Kind.LOCATION, Kind.FILLER):
            return -1
        continues = index + 1 < len(phrases) and phrases[index + 1].kind in _CONTINUES
        if kind is Kind.PREDICATE or (kind in _JOINS and continues):
            continue
        if kind not in _BEFORE_PART:
            return -1
    return -1


def _is_adjective(phrases: Sequence[Phrase], index: int) -> bool:
    """Whether a phrase only describes the next one: "calcified mediastinal granulomas"."""
    following = phrases[index + 1] if index + 1 < len(phrases) else None
    if following is None or following.first != phrases[index].last:
        return False
    of_part = phrases[index].kind is Kind.BODY_PART
    return following.kind is Kind.MENTION or (following.kind is Kind.PREDICATE and not of_part)


def _joined_parts(phrases: Sequence[Phrase], part: int, step: int, predicate: str, covered: set[int]) -> list[int]:
    """The body part and those joined to it by "and" or commas in one direction, as far as the predicate fits them."""
    parts, index = [part], part + step
    while 0 <= index < len(phrases):
        kind = phrases[index].kind
        if kind is Kind.BODY_PART:
            noun = step < 0 and phrases[index + 1].kind is Kind.PREDICATE  # "vascular engorgement"
            if (index in covered and not noun) or _fitting(phrases, index, predicate) < 0:
                break
            if step > 0 and index + 1 < len(phrases) and phrases[index + 1].kind in (Kind.VERB, Kind.PREDICATE):
                break  # it has a predicate of its own
            parts.append(index)
        elif step < 0 and kind is Kind.PREDICATE and phrases[index].rule.name == "congested":
            pass  # "vascular engorgement and heart size are normal"
        elif kind not in _JOINS and kind not in (Kind.SIDE, Kind.PREPOSITION, Kind.ARTICLE, Kind.FILLER, Kind.ORDINAL):
            break
        index += step
    return parts


def _without_part(phrases: Sequence[Phrase], at: int) -> list[Statement]:
    """A predicate without a body part beside it: of a more distant part, of one that a mention implies, or alone."""
    rule, meanings = phrases[at].rule, load_meanings()
    part, named = _implied_part(phrases, at)
    if (part, rule.name) in meanings:
        meant = meanings[part, rule.name].observations
        return [Statement(meant, at)] if meant != named else []  # "plaques, some calcified" says it once
    names = (Kind.BODY_PART, Kind.MENTION, Kind.OUT_OF_VOCABULARY)
    if rule.name in _NORMAL and not any(phrase.kind in names for phrase in phrases):
        return [Statement((), at, absent=True)]  # "Normal." says it of everything
    if not rule.observations or _of_device(phrases, at):
        return []
    for index in (*range(at + 1, len(phrases)), *range(at - 1, -1, -1)):
        if phrases[index].kind in (Kind.TERMINATION, Kind.MENTION):
            if index > at:
                continue
            break
        if phrases[index].kind is Kind.BODY_PART and _fitting(phrases, index, rule.name) >= 0:
            meaning = meanings[phrases[index].rule.name, rule.name]
            return [Statement(meaning.observations, at, index if index > at else -1)]
    return [Statement(rule.observations, at)]


def _implied_part(phrases: Sequence[Phrase], at: int) -> tuple[str, tuple[str, ...]]:
    """The body part of a mention that a list joins to this predicate ("effusion versus thickening"), and its names."""
    index = at - 1
    while index >= 0 and (phrases[index].kind in _LISTS or phrases[index].kind in (Kind.SEVERITY, Kind.SIDE)):
        index -= 1
    if index in (-1, at - 1) or phrases[index].kind is not Kind.MENTION or not phrases[index].rule.observations:
        return "", ()
    names = phrases[index].rule.observations
    part = "aorta" if "aort" in names[0] else "pleura" if OBSERVATIONS[names[0]].group is Group.PLEURA else ""
    return part, names


def _of_device(phrases: Sequence[Phrase], at: int) -> bool:
    """Whether a break is of a device: "fracture of a sternal wire"."""
    for phrase in phrases[at + 1 :]:
        if phrase.kind is Kind.MENTION and phrase.rule.observations:
            return OBSERVATIONS[phrase.rule.observations[0]].group is Group.DEVICE
        if phrase.kind not in _BEFORE_PART:
            return False
    return False
