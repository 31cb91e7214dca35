"""Statements of one sentence: what is named, and what is said of the parts of the body."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from cxrlab.core.vocabulary import OBSERVATIONS, Change, Group, Severity, Side
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.rows import Kind
from cxrlab.findings.reading.statements import Meaning, meanings

# What may stand between an adjective and its part ("mild enlargement of the left hilum"), and between a part and what
# is said of it ("the left hilum is again mildly enlarged").
_BEFORE_PART = frozenset(
    {
        Kind.SIDE, Kind.PLACE, Kind.LEVEL, Kind.DEGREE, Kind.PREPOSITION, Kind.CHANGE, Kind.ORDINAL, Kind.ARTICLE,
        Kind.FILLER, Kind.PRONOUN, Kind.END, Kind.SERIES,
    }
)  # fmt: skip
_AFTER_PART = _BEFORE_PART | {
    Kind.VERB, Kind.COLON, Kind.NEGATION, Kind.HEDGE, Kind.HEDGE_EITHER, Kind.HEDGE_LINK, Kind.COMMA, Kind.AND,
    Kind.PREDICATE, Kind.UNLIKELY, Kind.OR, Kind.BREAK, Kind.END, Kind.THERE,
}  # fmt: skip
_FINITE = frozenset({Kind.VERB, Kind.COLON})
_JOINS = frozenset({Kind.AND, Kind.OR, Kind.COMMA})
_LISTS = _JOINS | {Kind.VERSUS}
_NAMES = frozenset({Kind.SUBJECT, Kind.MENTION, Kind.ALARM})
_WHOLE = frozenset({"normal", "clear"})
_GOES_ON = frozenset({Kind.PREDICATE, Kind.ORDINAL, Kind.SIDE, Kind.LEVEL, Kind.AND, Kind.DEGREE})


class Claim:
    """One statement while it is being worked out.

    Attributes:
        observations: What it is about; empty for a statement that something is normal or wrong.
        start: Index of its first item in the sentence.
        at: Index of the item that says it: a mention or a predicate.
        part: Index of the part of the body, or -1.
        absent: Denied; `normal` when the words themselves deny ("normal heart size").
        possible: Hedged.
        predicative: Part, verb, predicate: a sentence of its own.
        change: Where the words that make the statement say it; the rest are attributes.
        dropped: Not a finding after all.
    """

    __slots__ = (
        "absent", "at", "change", "degree", "dropped", "normal", "observations", "part", "place", "possible",
        "predicative", "side", "start",
    )  # fmt: skip

    def __init__(self, observations: tuple[str, ...], at: int, part: int = -1, absent: bool = False) -> None:
        self.observations = observations
        self.start = min(at, part) if part >= 0 else at
        self.at = at
        self.part = part
        self.absent = self.normal = absent
        self.predicative = False
        self.possible = False
        self.dropped = False
        self.change: Change | None = None
        self.side: Side | None = None
        self.place: str | None = None
        self.degree: Severity | None = None

    @property
    def end(self) -> int:
        """Index of its last item."""
        return max(self.at, self.part)


def claims(items: Sequence[Item]) -> list[Claim]:
    """Statements in the order of the items that say them."""
    found: list[Claim] = []
    told: set[int] = set()  # parts of which something was said already
    for at, item in enumerate(items):
        kind = item.kind
        if kind is Kind.MENTION:
            claim = Claim(item.row.observations, at)
            row = item.row
            claim.side, claim.place, claim.degree, claim.possible = row.side, row.place, row.degree, row.possible
            if row.gone:
                claim.absent, claim.change = True, Change.RESOLVED
            found.append(claim)
        elif kind is Kind.PREDICATE or (kind in _SAID and item.row.said):
            new = _statement(items, at, told)
            for claim in found:  # "vascular engorgement is within limits of normal" takes back what its noun says
                taken = not claim.predicative and any(one.normal and one.part == claim.part >= 0 for one in new)
                claim.dropped |= taken
            found += new
    return found


_SAID = (Kind.DEGREE, Kind.CHANGE)


@functools.cache
def _meanings() -> dict[tuple[str, str], Meaning]:
    return meanings()


def _statement(items: Sequence[Item], at: int, told: set[int]) -> list[Claim]:
    row = items[at].row
    loose = items[at].kind is not Kind.PREDICATE
    said = row.said if loose else row.name
    table = _meanings()
    before = _fitting(items, _part_before(items, at, loose), said)
    after = _fitting(items, _part_after(items, at, loose), said)
    if after >= 0 and (items[at + 1].kind is Kind.PREPOSITION or _headed(items, before, at)):
        before = -1  # "widening of the mediastinum" under the heading "Hila:"; "… of the left and a high right dome"
    if before >= 0 and (after < 0 or before not in told):
        parts = _joined(items, before, -1, said, told)
    elif after >= 0:
        parts = _joined(items, after, 1, said, told)
    else:
        return [] if loose else _partless(items, at)
    told.update(parts)
    statements = []
    for part in sorted(parts):
        meaning = table[items[part].row.name, said]
        claim = Claim(meaning.observations, at, part, meaning.absent)
        claim.possible, claim.place, claim.degree = meaning.possible, meaning.place, row.degree if row.graded else None
        claim.side = items[part].row.side
        if loose and said == "grown":
            claim.change = row.change  # "larger than before" compares by itself
        claim.predicative = part < at and (meaning.absent or any(one.kind in _FINITE for one in items[part + 1 : at]))
        statements.append(claim)
    return statements


def _fitting(items: Sequence[Item], part: int, said: str) -> int:
    return part if part >= 0 and (items[part].row.name, said) in _meanings() else -1


def _partless(items: Sequence[Item], at: int) -> list[Claim]:
    """A predicate without a part beside it: of a part farther off, of one that a mention implies, or on its own."""
    row = items[at].row
    part, named = _implied_part(items, at)
    if (part, row.name) in _meanings():
        meant = _meanings()[part, row.name].observations
        return [Claim(meant, at)] if meant != named else []  # "plaques, some calcified" says it once
    if row.name in _WHOLE and not any(item.kind in _NAMES for item in items):
        return [Claim((), at, absent=True)]  # "Normal." says it of everything
    if not row.observations or _of_device(items, at):
        return []
    for part in (*range(at + 1, len(items)), *range(at - 1, -1, -1)):
        if items[part].kind in (Kind.BREAK, Kind.MENTION):
            if part > at:
                continue
            break
        if items[part].kind is Kind.SUBJECT and (items[part].row.name, row.name) in _meanings():
            meaning = _meanings()[items[part].row.name, row.name]
            return [Claim(meaning.observations, at, part if part > at else -1)]
    return [Claim(row.observations, at)]


def _implied_part(items: Sequence[Item], at: int) -> tuple[str, tuple[str, ...]]:
    """The part of a mention that a list joins to this predicate, and what it names: "effusion versus thickening"."""
    index = at - 1
    while index >= 0 and (items[index].kind in _LISTS or items[index].kind in (Kind.DEGREE, Kind.SIDE)):
        index -= 1
    if index in (-1, at - 1) or items[index].kind is not Kind.MENTION or not items[index].row.observations:
        return "", ()
    names: tuple[str, ...] = items[index].row.observations
    part = "aorta" if "aort" in names[0] else "pleura" if OBSERVATIONS[names[0]].group is Group.PLEURA else ""
    return part, names


def _of_device(items: Sequence[Item], at: int) -> bool:
    """Whether a break is of a device: "fracture of a sternal wire"."""
    for index in range(at + 1, len(items)):
        if items[index].kind is Kind.MENTION and items[index].row.observations:
            return OBSERVATIONS[items[index].row.observations[0]].group is Group.DEVICE
        if items[index].kind not in _BEFORE_PART:
            return False
    return False


def _headed(items: Sequence[Item], before: int, at: int) -> bool:
    """Whether something new begins between a part and what is said: a colon, or an article."""
    return any(item.kind in (Kind.COLON, Kind.ARTICLE) for item in items[before + 1 : at])


def _part_before(items: Sequence[Item], at: int, loose: bool) -> int:
    if loose and _adjective(items, at):
        return -1  # "the interstitium is mildly edematous": the degree is of what follows
    for index in range(at - 1, -1, -1):
        kind = items[index].kind
        if kind is Kind.SUBJECT:
            return index
        if kind is Kind.BREAK and not loose and items[at].row.observations:
            return -1  # "…in the spine, but no fracture": the noun needs no part
        if kind is Kind.UNSEEN and items[index + 1].kind is Kind.BREAK:
            continue  # "the heart is poorly seen but seems normal"
        if kind is Kind.MENTION and items[at - 1].kind is Kind.BREAK and not loose and items[at].row.name in _WHOLE:
            continue  # "the lungs are hypoinflated but clear"
        if kind not in _AFTER_PART or (loose and kind not in (Kind.VERB, Kind.CHANGE, Kind.DEGREE, Kind.NEGATION)):
            return -1
    return -1


def _part_after(items: Sequence[Item], at: int, loose: bool) -> int:
    for index in range(at + 1, len(items)):
        kind = items[index].kind
        if kind is Kind.SUBJECT:
            return -1 if _adjective(items, index) else index
        if loose and kind not in (Kind.SIDE, Kind.PLACE, Kind.FILLER):
            return -1
        if kind is Kind.PREDICATE or (kind in _JOINS and index + 1 < len(items) and items[index + 1].kind in _GOES_ON):
            continue
        if kind not in _BEFORE_PART:
            return -1
    return -1


def _adjective(items: Sequence[Item], index: int) -> bool:
    """Whether a phrase only describes what it stands before: "calcified mediastinal granulomas"."""
    following = items[index + 1] if index + 1 < len(items) else None
    if following is None or following.first != items[index].last:
        return False
    described = (Kind.MENTION,) if items[index].kind is Kind.SUBJECT else (Kind.MENTION, Kind.PREDICATE)
    return following.kind in described


def _joined(items: Sequence[Item], part: int, step: int, said: str, told: set[int]) -> list[int]:
    """The part and those joined to it by "and" or commas in one direction, as far as the predicate fits them."""
    parts, index, table = [part], part + step, _meanings()
    while 0 <= index < len(items):
        kind = items[index].kind
        if kind is Kind.SUBJECT:
            noun = step < 0 and items[index + 1].kind is Kind.PREDICATE  # "vascular engorgement"
            if (index in told and not noun) or (items[index].row.name, said) not in table:
                break
            if step > 0 and index + 1 < len(items) and items[index + 1].kind in (Kind.VERB, Kind.PREDICATE):
                break  # it has a predicate of its own
            parts.append(index)
        elif step < 0 and kind is Kind.PREDICATE and items[index].row.name == "congested":
            pass  # "vascular engorgement and heart size are normal"
        elif kind not in _JOINS and kind not in (Kind.SIDE, Kind.PREPOSITION, Kind.ARTICLE, Kind.FILLER, Kind.ORDINAL):
            break
        index += step
    return parts
