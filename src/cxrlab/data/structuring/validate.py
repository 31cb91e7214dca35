"""Does a rewritten report say the same of the film as its source? Judged by the findings reader.

Statements of both texts are merged into things, without how they changed, since taking out the
comparison is the purpose. Every thing must then stand on both sides with the same side, place, degree,
size and tip. What has resolved counts as absent, so `the effusion has resolved` may become `no effusion`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from cxrlab.core.records import Finding, Report
from cxrlab.data.structuring.sentences import split
from cxrlab.findings.merge import same_place, same_side, side_by_side
from cxrlab.findings.reader import Reading, read

APPEARS = "a finding appears"
DISAPPEARS = "a finding disappears"
DENIAL_APPEARS = "a denial appears"
DENIAL_DISAPPEARS = "a denial disappears"
CERTAINTY = "the certainty differs"
SIDE = "the side differs"
PLACE = "the place differs"
DEGREE = "the degree differs"
SIZE = "the size differs"
TIP = "the tip of a device differs"
COMPARES = "it speaks of an earlier film"
PATIENT = "it speaks of age or sex"
NUMBER = "a number appears"
SPEAKS = "it speaks of a film of which the source says nothing"

_PERSON = re.compile(
    r"\b(?:years?|yrs?|months?|weeks?|days?)[ -]?old\b|\b\d+[ -]?(?:yo|y/o)\b|\baged? \d+\b|\b(?:wo)?man of \d+\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Sizes written in another unit or rounded on the way are the same below this, in millimetres.
_SAME_SIZE = 0.51


@lru_cache(maxsize=4096)
def _read(text: str) -> Reading:
    return read(text)


def reading_of(report: Report) -> Reading:
    """What findings and impression say, read as one text."""
    return _read("\n\n".join(text for text in (report.findings, report.impression) if text))


def violations(source: Report, answer: Report) -> tuple[str, ...]:
    """What is wrong with an answer, each a fixed kind with the observation that it is about; empty when nothing is.

    Args:
        source: The source's sections, slips of the pen mended.
        answer: The rewritten sections.

    What the vocabulary has no word for is not compared.
    """
    before, after = reading_of(source), reading_of(answer)
    found = [*differences(before, after), *faults(answer)]
    if after.speaks and not before.speaks:
        found.append(SPEAKS)
    if _numbers(answer) - _numbers(source):
        found.append(NUMBER)
    return tuple(dict.fromkeys(found))


def faults(answer: Report) -> tuple[str, ...]:
    """What no structured report may hold, whatever its source: a comparison, or whom the film is of."""
    found = [f"{COMPARES}: {finding.observation}" for finding in reading_of(answer) if finding.change is not None]
    if any(_PERSON.search(text) for text in answer.to_json().values() if text):
        found.append(PATIENT)
    return tuple(dict.fromkeys(found))


def differences(before: Iterable[Finding], after: Iterable[Finding]) -> tuple[str, ...]:
    """How two lists of statements differ, change left aside; empty when they say the same of the film."""
    ours, theirs = side_by_side(_timeless(before), _timeless(after))
    found: list[str] = []
    left = list(theirs)
    for thing in ours:
        twin = _twin(thing, left)
        if twin is None:
            found.append(_named(DISAPPEARS if thing.present else DENIAL_DISAPPEARS, thing))
        else:
            left.remove(twin)
            found.extend(_named(kind, thing) for kind in _attributes(thing, twin))
    found.extend(_named(APPEARS if thing.present else DENIAL_APPEARS, thing) for thing in left)
    return tuple(dict.fromkeys(found))


def _timeless(findings: Iterable[Finding]) -> list[Finding]:
    return [replace(finding, change=None, span=None) for finding in findings]


def _named(kind: str, thing: Finding) -> str:
    return f"{kind}: {thing.observation}"


def _twin(thing: Finding, others: Sequence[Finding]) -> Finding | None:
    """The other list's statement on the same thing: an equal one, else a near one, else one of the same observation."""
    same = [one for one in others if one.observation == thing.observation and one.presence is thing.presence]
    near = [one for one in same if same_side(one.side, thing.side) and same_place(one.location, thing.location)]
    equal = [one for one in same if not any(_attributes(thing, one))]
    return next(iter((*equal, *near, *same)), None)


def _attributes(one: Finding, other: Finding) -> Iterable[str]:
    """Kinds of attribute that differ between two statements on one thing."""
    if one.side is not other.side:
        yield SIDE
    if not one.present:
        return  # of what is absent, degree and place say nothing of the film
    if one.certainty is not other.certainty:
        yield CERTAINTY
    if (one.location is None) != (other.location is None) or not same_place(one.location, other.location):
        yield PLACE
    if one.severity is not other.severity:
        yield DEGREE
    if not _same_number(one.size_mm, other.size_mm):
        yield SIZE
    if one.tip != other.tip or not _same_number(one.tip_mm, other.tip_mm):
        yield TIP


def _same_number(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) < _SAME_SIZE


def _numbers(report: Report) -> set[float]:
    """Every number of a report's sections, those of lists left out."""
    sentences = (one for text in report.to_json().values() if text for one in split(text))
    return {float(word) for sentence in sentences for word in _NUMBER.findall(sentence)}
