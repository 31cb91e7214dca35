"""One mistake about one finding: which can be made, and when it matters.

A mistake holds what the reference says and what the candidate says instead. Its kind says which of
the six counts it belongs to, and `significant` follows from the two findings by one table of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Change, ErrorKind, Severity, Side
from cxrlab.findings.courses import COURSES, SHAPES, TUBE_HEIGHT_MM, Shape
from cxrlab.findings.significance import MISPLACED, Urgency, urgency_of
from cxrlab.findings.words import kind_of

# A size is wrong to a significant degree from this ratio on: half again is a growth that follow-up rules act upon.
SIZE_MATTERS = 1.5
# What two readers differ by is no mistake: a quarter of the size, or five millimetres.
READERS_SHARE, READERS_MM = 0.25, 5.0
SIZE_FACTORS = (0.5, 0.7, 1.35, 2.0)
GRADES = (Severity.MILD, Severity.MODERATE, Severity.SEVERE)
# Statements of change that say the same direction: swapping them is a matter of words, not a mistake.
DIRECTIONS: Mapping[Change | None, str] = {
    None: "nothing",
    Change.UNCHANGED: "steady",
    Change.NEW: "worse",
    Change.INCREASED: "worse",
    Change.DECREASED: "better",
    Change.RESOLVED: "better",
}
OTHER_SIDE: Mapping[Side | None, Side] = {Side.LEFT: Side.RIGHT, Side.RIGHT: Side.LEFT}
# A tube that leaves the film may well end in the stomach: neither is wrong about the other.
AGREEING_TIPS = frozenset({"stomach", "beyond film"})


@dataclass(frozen=True)
class Mistake:
    """What the reference says of a thing and what the candidate says.

    Args:
        kind: One of the six kinds.
        was: The finding of the reference; None for what the candidate invents.
        told: The finding of the candidate; None for what it leaves out.
    """

    kind: ErrorKind
    was: Finding | None
    told: Finding | None

    @property
    def finding(self) -> Finding:
        """The reference's finding, or the invented one."""
        finding = self.was or self.told
        assert finding is not None, "a mistake is about something"
        return finding

    @property
    def detail(self) -> str:
        """What was said against what should have been, in a few words."""
        if self.was is None or self.told is None:
            return "left out" if self.told is None else "not in the reference"
        keys = ("side", "location", "tip", "severity", "size_mm", "change")
        pairs = [(getattr(self.told, key), getattr(self.was, key)) for key in keys]
        return ", ".join(f"{said or 'nothing'} instead of {true or 'nothing'}" for said, true in pairs if said != true)


# ── when a mistake matters ────────────────────────────────────────────────────────────────────────

Rule = Callable[[Finding | None, Finding | None, Urgency], bool]


def _of_class(was: Finding | None, told: Finding | None, urgency: Urgency) -> bool:
    return urgency.matters


def _of_place(was: Finding | None, told: Finding | None, urgency: Urgency) -> bool:
    if was is None or told is None:
        return False
    tips = {(finding.observation, finding.tip or "") for finding in (was, told)}
    return was.side is not told.side or bool(tips & set(MISPLACED))


def _of_degree(was: Finding | None, told: Finding | None, urgency: Urgency) -> bool:
    if was is None or told is None or urgency is Urgency.BENIGN:
        return False
    if was.severity and told.severity:
        return abs(was.severity.rank - told.severity.rank) >= 2
    return size_ratio(was.size_mm or 1.0, told.size_mm or 1.0) >= SIZE_MATTERS


def _of_course(was: Finding | None, told: Finding | None, urgency: Urgency) -> bool:
    said = {DIRECTIONS[finding.change if finding else None] for finding in (was, told)}
    return urgency.matters and not said <= {"nothing", "steady"}


# When a mistake of each kind is significant: the rule and the same in words. `urgency` is the class of the
# reference's finding, or of the invented one; urgent and actionable ones matter.
RULES: Mapping[ErrorKind, tuple[Rule, str]] = {
    ErrorKind.FALSE_FINDING: (_of_class, "what is invented matters"),
    ErrorKind.OMITTED_FINDING: (_of_class, "what is left out matters"),
    ErrorKind.WRONG_LOCATION: (
        _of_place,
        "the other side, of whatever it is; or a tip that is, or is falsely said to be, where it must not be. "
        "A wrong zone or rib alone is not significant",
    ),
    ErrorKind.WRONG_SEVERITY: (
        _of_degree,
        "two steps of degree or half the size again, unless the finding is benign. One step is not significant",
    ),
    ErrorKind.FALSE_COMPARISON: (
        _of_course,
        "the finding matters and one of the two reports says new, larger, smaller or gone. "
        "Adding 'unchanged' where nothing was compared is not significant",
    ),
    ErrorKind.OMITTED_COMPARISON: (
        _of_course,
        "the finding matters and the change left out is new, larger, smaller or gone. "
        "Leaving out 'unchanged' is not significant",
    ),
}


def significant(mistake: Mistake, age: float | None = None, indication: str | None = None) -> bool:
    """Whether the mistake is likely to change what is done for a patient of this age, filmed for this reason."""
    rule, _ = RULES[mistake.kind]
    return rule(mistake.was, mistake.told, urgency_of(mistake.finding, age, indication))


def size_ratio(first: float, second: float) -> float:
    """How many times the larger of two sizes exceeds the smaller, at least 1."""
    return max(first, second) / max(1e-9, min(first, second))


# ── which mistakes can be made about a finding ────────────────────────────────────────────────────


def slips(finding: Finding) -> Iterator[Mistake]:
    """Every mistake about one finding of a reference that leaves no doubt which kind it is.

    A side is only swapped: both sides for one could also be read as a finding too many.
    """
    if not finding.present:
        # All that is said of a resolved finding is its change.
        yield Mistake(ErrorKind.OMITTED_COMPARISON, finding, None)
        return
    yield Mistake(ErrorKind.OMITTED_FINDING, finding, None)
    for told in _elsewhere(finding):
        yield Mistake(ErrorKind.WRONG_LOCATION, finding, told)
    for told in _other_degrees(finding):
        yield Mistake(ErrorKind.WRONG_SEVERITY, finding, told)
    for change in changes_of(finding):
        if DIRECTIONS[change] != DIRECTIONS[finding.change]:
            yield Mistake(ErrorKind.FALSE_COMPARISON, finding, replace(finding, change=change))
    if finding.change is not None:
        yield Mistake(ErrorKind.OMITTED_COMPARISON, finding, replace(finding, change=None))


def changes_of(finding: Finding) -> tuple[Change, ...]:
    """What may be said of its course while it is there: a tube or a break does not grow, a scoliosis stays."""
    course = COURSES[finding.observation]
    if kind_of(finding) in ("device", "bone") or not (course.worse or course.better):
        return Change.NEW, Change.UNCHANGED
    return Change.NEW, Change.INCREASED, Change.UNCHANGED, Change.DECREASED


def _elsewhere(finding: Finding) -> Iterator[Finding]:
    shape = SHAPES.get(finding.observation, Shape())
    if finding.side in OTHER_SIDE:
        yield replace(finding, side=OTHER_SIDE[finding.side])
    for place in shape.places or ():
        if place != finding.location:
            yield replace(finding, location=place)
    for tip in shape.tips or ():
        if tip != finding.tip and {tip, finding.tip} != AGREEING_TIPS:
            low, high = TUBE_HEIGHT_MM.get(tip, (0, 0)) if finding.observation == "endotracheal tube" else (0, 0)
            yield replace(finding, tip=tip, tip_mm=float(round((low + high) / 2)) if high else None)


def _other_degrees(finding: Finding) -> Iterator[Finding]:
    if finding.severity is not None:
        yield from (replace(finding, severity=grade) for grade in GRADES if grade is not finding.severity)
    limits = SHAPES.get(finding.observation, Shape()).size_mm
    if finding.size_mm is None or limits is None:
        return
    for size in (float(round(finding.size_mm * factor)) for factor in SIZE_FACTORS):
        beyond = max(READERS_MM, READERS_SHARE * max(size, finding.size_mm))
        if limits[0] <= size <= limits[1] and abs(size - finding.size_mm) > beyond:
            yield replace(finding, size_mm=size)
