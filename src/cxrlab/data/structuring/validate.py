"""Does a rewritten report say the same of the film as its source? Judged by the findings reader.

Statements of both texts are merged into things, without how they changed, since taking out the
comparison is the purpose. Every thing must then stand on both sides with the same side, place, degree,
size and tip. What has resolved counts as absent, so `the effusion has resolved` may become `no effusion`.
Beside the reader stand tests of the words alone, for what no finding carries: a mention of an earlier film, age
and sex, advice, numbers, and sections that the source does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from cxrlab.core.records import Finding, Report
from cxrlab.data.structuring.patient import names_history, names_person
from cxrlab.data.structuring.patterns import ADVISES, SPEAKS_OF_EARLIER
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
HISTORY = "it tells a history beside the reason for the film"
NUMBER = "a number appears"
SPEAKS = "it speaks of a film of which the source says nothing"
NORMAL_APPEARS = "something is called normal"
NORMAL_DISAPPEARS = "what is called normal is left out"
ADVICE_APPEARS = "advice appears"
ADVICE_DISAPPEARS = "advice disappears"
SECTION = "a section appears of which the source says nothing"

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[^\W\d_]{3,}")
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
    found = [*differences(before, after), *faults(answer), *_elsewhere(source, answer)]
    normal, still = (_any(report, _calls_normal) for report in (source, answer))
    checks = (
        (SPEAKS, after.has_statements and not before.has_statements),
        (NORMAL_APPEARS, still and not _any(source, lambda sentence: bool(_read(sentence).normal))),
        (NORMAL_DISAPPEARS, normal and not still),
        (ADVICE_APPEARS, _any(answer, _advises) and not _any(source, _advises)),
        (ADVICE_DISAPPEARS, _any(source, _advises) and not _any(answer, _advises)),
        (NUMBER, bool(numbers(*answer.to_json().values()) - numbers(*source.to_json().values()))),
    )
    return tuple(dict.fromkeys((*found, *(kind for kind, holds in checks if holds))))


def faults(answer: Report) -> tuple[str, ...]:
    """What no structured report may hold, whatever its source: a comparison, or whom the film is of."""
    found = [f"{COMPARES}: {finding.observation}" for finding in reading_of(answer) if finding.change is not None]
    checks = (
        (COMPARES, not found and bool(comparing(answer))),
        (PATIENT, names_person(answer)),
        (HISTORY, names_history(answer)),
    )
    return tuple(dict.fromkeys((*found, *(kind for kind, holds in checks if holds))))


def comparing(report: Report) -> list[str]:
    """The sentences of findings and impression that speak of an earlier film; advice may."""
    return [one for one in _sentences(report) if compares(one)]


def compares(sentence: str) -> bool:
    """Whether a sentence speaks of an earlier film, to the reader or by its words alone."""
    if any(finding.change is not None for finding in _read(sentence)):
        return True
    return bool(SPEAKS_OF_EARLIER.search(sentence)) and not _advises(sentence)


def _sentences(report: Report) -> list[str]:
    return [one for text in (report.findings, report.impression) if text for one in split(text)]


def _any(report: Report, test: Callable[[str], bool]) -> bool:
    return any(map(test, _sentences(report)))


def _calls_normal(sentence: str) -> bool:
    """Whether it says of this film alone that something is normal: "no change" is no such word."""
    return bool(_read(sentence).normal) and not compares(sentence)


def _advises(sentence: str) -> bool:
    return bool(ADVISES.search(sentence))


def _elsewhere(source: Report, answer: Report) -> Iterable[str]:
    """What examination and indication say that the source does not: a finding, or a whole section."""
    known = {finding.observation for text in source.to_json().values() if text for finding in _read(text)}
    words = _words(*source.to_json().values())
    for name in ("examination", "indication"):
        text = answer.section(name)
        own = _words(text)
        if own <= words:
            continue  # nothing but words of the source
        for finding in _read(text or ""):
            if finding.present and finding.observation not in known:
                yield _named(APPEARS, finding)
        if not source.section(name) and 2 * len(own & words) < len(own):
            yield SECTION


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


def numbers(*texts: str | None) -> set[float]:
    """Every number of some texts, those of lists left out."""
    sentences = (one for text in texts if text for one in split(text))
    return {float(word) for sentence in sentences for word in _NUMBER.findall(sentence)}


def _words(*texts: str | None) -> set[str]:
    return {word for text in texts if text for word in _WORD.findall(text.lower())}
