"""One list of counts found in an answer, and whether it is the judge's own or a copy of a report's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.parsing.parsed import Cell
from cxrlab.metrics.judging.parsing.totals import Total


@dataclass(frozen=True)
class Unit:
    """Counts that stand together under one heading, in one object or in one table.

    Args:
        start: Where it begins in its region.
        end: Where it ends.
        about: The weights (or "matched") that it tells; one that tells the same again begins another answer.
        counts: What was read.
        matched: The number of matched findings; None where it does not tell.
        problems: What could not be read, in words.
        parts: Heading and entries as they stand there; a unit whose parts are all a report's is a copy.
        clash: Why it contradicts itself; None where it does not.
        totals: Sums that it states, each with the weight that it is of; None where it does not tell.
    """

    start: int
    end: int
    about: frozenset[str]
    counts: Mapping[Cell, float] = field(default_factory=dict)
    matched: float | None = None
    problems: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    clash: str | None = None
    totals: tuple[Total, ...] = ()

    @property
    def tells(self) -> bool:
        """Whether anything was read at all."""
        return bool(self.counts) or self.matched is not None


@dataclass(frozen=True)
class Found:
    """A unit, and whether a report has it too."""

    unit: Unit
    copy: bool


def found_in(units: Sequence[Unit], text: str, answer: Answer) -> list[Found]:
    """The units that tell something, in order, each with whether it is a copy."""
    telling = sorted((unit for unit in units if unit.tells), key=lambda unit: unit.start)
    return [
        Found(unit, answer.copied(text[unit.start : unit.end]) or answer.copied_in_order(unit.parts))
        for unit in telling
    ]


def own_units(found: Sequence[Found], text: str, *, marked: bool) -> list[Unit]:
    """What the judge says itself: every unit that is no copy, and those that belong to one.

    What follows the mark at once the judge says, also where a report says the same: else a report that guesses the
    counts would have them struck out, and whatever is said later would count. What an answer without a mark begins with
    may be either, and must agree with the rest.

    A list of zeros that a report has too may still be the judge's own. It is taken for that where it stands beside
    a list that no report has, without a word or a quotation mark between them, and where no list that is surely the
    judge's tells the same.
    """
    sure = frozenset().union(*(item.unit.about for item in found if not item.copy))
    led = [_leads(item.unit, found, text) and (marked or bool(item.unit.about & sure)) for item in found]
    found = [replace(item, copy=item.copy and not leads) for item, leads in zip(found, led, strict=True)]
    sure = sure.union(*(item.unit.about for item in found if not item.copy))
    own = [item.unit for item in found if not item.copy]
    for place, item in enumerate(found):
        if item.copy and not item.unit.about & sure:
            beside = [other for other in found[max(0, place - 2) : place + 3] if not other.copy]
            own += [item.unit] if any(_touch(item.unit, other.unit, found, text) for other in beside) else []
    return own


def _leads(unit: Unit, found: Sequence[Found], text: str) -> bool:
    """Whether nothing but units about other things stands before a unit, and no sign of a quotation."""
    gap, at = "", 0
    for item in found:
        if item.unit.start < unit.start:
            if item.unit.about & unit.about:
                return False
            gap, at = gap + text[at : item.unit.start], item.unit.end
    return not any(sign.isalnum() or sign in "\"'`>" for sign in gap + text[at : unit.start])


def _touch(unit: Unit, other: Unit, found: Sequence[Found], text: str) -> bool:
    """Whether nothing but other units stands between two units."""
    first, last = sorted((unit, other), key=lambda one: one.start)
    between = [item.unit for item in found if first.end <= item.unit.start and item.unit.end <= last.start]
    gap, at = "", first.end
    for inner in between:
        gap, at = gap + text[at : inner.start], inner.end
    gap += text[at : last.start]
    return not any(sign.isalnum() or sign in "\"'`>" for sign in gap)
