"""Draws the findings of one radiograph from those of the radiograph before.

Previous findings change by their course, on the same side and at the same place; new findings join it
by the chances of the clinical context, unless they contradict what is already there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Change, Group, Presence, Severity, Side, observation
from cxrlab.findings.disease_models import (
    CONTEXTS,
    COURSES,
    EXTRA_CHANCE,
    EXTRAS,
    FAINT_GRADES,
    GRADES,
    RESHAPING,
    SELDOM,
    SHAPES,
    TUBE_HEIGHT_MM,
    Shape,
    days_to_clear,
    fits,
    sides_meet,
)

# One fewer than a visit may list, so that a new finding fits when all others have resolved.
MOST_FINDINGS, MOST_PRESENT = 9, 8
# Share of the context's chances that applies again at a later visit in the same context.
AGAIN = 0.35
# Chance that a finding which leans is on the patient's diseased side.
LEANING = 0.85
# Part of its diameter by which a lesion changes in one step: least, and how much more after half a year.
GROWTH, MORE_GROWTH, SLOW_DAYS = 0.15, 0.35, 180
_GRADED = (Severity.MILD, Severity.MODERATE, Severity.SEVERE)
_FRESH = (None, Change.NEW, Change.INCREASED)

Lesion = tuple[str, Side | None, str | None]


def lesion(finding: Finding) -> Lesion:
    """Identity of a finding across visits: kind, side and place."""
    return finding.observation, finding.side, finding.location


@dataclass(frozen=True)
class Radiograph:
    """Draws the findings of one visit from those of the visit before."""

    rng: np.random.Generator  # source of every choice
    context: str  # why the radiograph was taken, a key of `disease_models.CONTEXTS`
    lean: Side  # the patient's diseased or injured side
    age: float = 60.0  # years at this visit
    days: int = 0  # days since the radiograph before; 0 on the first
    first: bool = False  # whether there is no radiograph before
    recovers: bool = False  # whether a normal radiograph follows, which rules out everything that lasts
    entered: bool = False  # whether the radiograph before was taken for another reason
    faint: float = 0.0  # share of new findings that are faint, and hence only possible
    seen: Mapping[Lesion, int] = field(default_factory=dict)  # days since each lesion was first seen

    def normal(self, before: Sequence[Finding]) -> tuple[Finding, ...]:
        """A normal radiograph: every previous finding has resolved."""
        return tuple(resolved(finding) for finding in before)

    def abnormal(self, before: Sequence[Finding]) -> tuple[Finding, ...]:
        """Previous findings change, new ones join; at least one is present."""
        present: list[Finding] = []
        gone: list[Finding] = []
        for finding in sorted(before, key=lambda finding: order(finding.observation)):
            later = self._later(finding, present, before)
            (present if later.present else gone).append(later)
        room = min(MOST_PRESENT, MOST_FINDINGS - len(gone))
        known = {finding.observation for finding in before}
        factor = AGAIN if before and not self.entered else 1.0
        for name in self._wanted(factor):
            if name not in known and name not in ASSOCIATED_FINDINGS:
                known.add(name)
                self._add(name, present, room)
        self._add_associated(present, gone, room, factor)
        if not present:
            self._never_empty(before, present, gone)
        return (*present, *gone)

    def _never_empty(self, before: Sequence[Finding], present: list[Finding], gone: list[Finding]) -> None:
        """Keep the first thing that may stay, else let something new appear."""
        kept = next((f for f in before if not self._overdue(f) and f.observation not in ASSOCIATED_FINDINGS), None)
        if kept:
            present.append(replace(kept, change=Change.UNCHANGED))
            gone[:] = [finding for finding in gone if lesion(finding) != lesion(kept)]
            return
        known = {finding.observation for finding in before} | set(ASSOCIATED_FINDINGS)
        for table in (CONTEXTS[self.context].chances, EXTRAS):
            open_names = {
                name: chance for name, chance in table.items() if name not in known and self._may_appear(name)
            }
            if open_names:
                self._add(pick(self.rng, open_names), present, MOST_FINDINGS - len(gone))
                return

    def _may_appear(self, name: str) -> bool:
        course = COURSES[name]
        if (self.recovers and course.lasting) or self.age < course.least_age:
            return False
        if self.first:
            return True
        in_time = course.appears is not None and self.days >= course.appears
        return in_time and (course.arises is None or (self.entered and course.arises == self.context))

    def _wanted(self, factor: float) -> Iterator[str]:
        for name, chance in CONTEXTS[self.context].chances.items():
            if self.rng.random() < chance * factor and self._may_appear(name):
                yield name
        if self.rng.random() < EXTRA_CHANCE * factor:
            name = pick(self.rng, EXTRAS)
            if self._may_appear(name):
                yield name

    def _add_associated(self, present: list[Finding], gone: Sequence[Finding], room: int, factor: float) -> None:
        """Add what comes with the findings of this radiograph; what has just gone does not come back."""
        for name, row in ASSOCIATED_FINDINGS.items():
            if name in {finding.observation for finding in gone} or not self._may_appear(name):
                continue
            causes = [finding for finding in present if finding.observation in row.causes]
            for cause in causes:
                if (cause.change in _FRESH or not row.fresh) and self.rng.random() < row.chance(cause):
                    self._add(name, present, room, cause)
            alone = CONTEXTS[self.context].chances.get(name, 0.0) * factor if self.context in row.alone_in else 0.0
            if not causes and self.rng.random() < alone:
                self._add(name, present, room)

    def _add(self, name: str, present: list[Finding], room: int, cause: Finding | None = None) -> None:
        shape = SHAPES.get(name, Shape())
        for attempt in range(3):
            if attempt and self.rng.random() >= shape.again:
                return
            candidate = self._draw(name, shape, cause)
            if len(present) < room and fits(candidate, present) and not self._seldom(name, present):
                present.append(candidate)

    def _seldom(self, name: str, present: Sequence[Finding]) -> bool:
        keep = min((SELDOM.get(frozenset({name, other.observation}), 1.0) for other in present), default=1.0)
        return keep < 1.0 and self.rng.random() >= keep

    def _draw(self, name: str, shape: Shape, cause: Finding | None) -> Finding:
        row = observation(name)
        rng = self.rng
        tip = pick(rng, shape.tips) if shape.tips else None
        height = TUBE_HEIGHT_MM.get(tip or "") if name == "endotracheal tube" else None
        faint = row.group is not Group.DEVICE and rng.random() < self.faint
        side = side_beside(cause, shape.both, self.lean) if cause else self._side(shape)
        return Finding(
            name,
            certainty=Certainty.POSSIBLE if faint else Certainty.CERTAIN,
            side=side if row.sided else None,
            location=pick(rng, shape.places) if shape.places else None,
            severity=self._grade(name, faint) if row.graded else None,
            size_mm=float(between(rng, shape.size_mm)) if shape.size_mm else None,
            change=None if self.first else Change.NEW,
            tip=tip,
            tip_mm=float(between(rng, height)) if height else None,
        )

    def _grade(self, name: str, faint: bool) -> Severity:
        if faint and name in RESHAPING:
            return Severity.MILD
        return Severity(pick(self.rng, FAINT_GRADES if faint else GRADES))

    def _side(self, shape: Shape) -> Side:
        if self.rng.random() < shape.both:
            return Side.BILATERAL
        if shape.only:
            return Side(shape.only)
        diseased = LEANING if shape.leans else 0.5
        other = Side.RIGHT if self.lean is Side.LEFT else Side.LEFT
        return self.lean if self.rng.random() < diseased else other

    def _later(self, finding: Finding, present: Sequence[Finding], before: Sequence[Finding]) -> Finding:
        """The same lesion at this visit, on the same side and at the same place."""
        course, row = COURSES[finding.observation], ASSOCIATED_FINDINGS.get(finding.observation)
        u = self.rng.random()
        if self._overdue(finding) or self._cause_absent(finding, [*present, *before]):
            return resolved(finding)
        held = row is not None and row.held(finding, present)
        if u < course.gone and self.days >= days_to_clear(finding) and not held:
            return resolved(finding)
        same = replace(finding, change=Change.UNCHANGED)
        step = 1 if u < course.gone + course.worse else -1 if u < course.gone + course.worse + course.better else 0
        if u < course.gone or self.days < (course.grows if step > 0 else course.eases):
            return same
        moved = self._moved(same, step) if step else same
        rest = [other for other in (*present, *before) if lesion(other) != lesion(moved)]
        return moved if fits(moved, rest) else same

    def _overdue(self, finding: Finding) -> bool:
        """Whether it has been present for longer than such a finding stays."""
        stays = COURSES[finding.observation].stays
        return stays is not None and self.seen.get(lesion(finding), self.days) > stays

    def _cause_absent(self, finding: Finding, others: Sequence[Finding]) -> bool:
        """Whether its cause is on neither this radiograph nor the one before."""
        row = ASSOCIATED_FINDINGS.get(finding.observation)
        return row is not None and self.context not in row.alone_in and not row.accompanied(finding, others)

    def _moved(self, finding: Finding, step: int) -> Finding:
        """One grade or some millimetres up or down; unchanged where the scale ends.

        What has grown is no longer only possible.
        """
        change = Change.INCREASED if step > 0 else Change.DECREASED
        certainty = Certainty.CERTAIN if step > 0 else finding.certainty
        if finding.severity is not None:
            index = _GRADED.index(finding.severity) + step
            if not 0 <= index < len(_GRADED):
                return finding
            return replace(finding, severity=_GRADED[index], change=change, certainty=certainty)
        limits = SHAPES[finding.observation].size_mm if finding.size_mm is not None else None
        if limits is None or finding.size_mm is None:
            return finding
        part = GROWTH + MORE_GROWTH * min(1.0, self.days / SLOW_DAYS) * self.rng.random()
        size = round(finding.size_mm * (1 + step * part))
        if size == finding.size_mm or not limits[0] <= size <= limits[1]:
            return finding
        return replace(finding, size_mm=float(size), change=change, certainty=certainty)


def resolved(finding: Finding) -> Finding:
    """A resolved finding keeps its side and place, and has no degree, size or tip."""
    return Finding(
        finding.observation,
        presence=Presence.ABSENT,
        side=finding.side,
        location=finding.location,
        change=Change.RESOLVED,
    )


def pick(rng: np.random.Generator, weights: Mapping[str, float]) -> str:
    """One key with probability proportional to its weight."""
    sums = list(accumulate(weights.values()))
    u = rng.random() * sums[-1]
    return next((name for name, total in zip(weights, sums, strict=True) if u < total), next(reversed(list(weights))))


def between(rng: np.random.Generator, limits: tuple[int, int]) -> int:
    """A whole number from the first limit to the last, both included."""
    low, high = limits
    return low + int(rng.random() * (high - low + 1))


# A cause with at least this chance of an associated finding also keeps it present.
HELD = 0.5
Grades = Mapping[Severity | None, float]


@dataclass(frozen=True)
class AssociatedFinding:
    """A finding that occurs with others, its causes."""

    # Observation → grade → chance that the finding joins it; the key None is for what has no grade. A grade that is not
    # listed has none.
    causes: Mapping[str, Grades]
    fresh: bool = False  # whether only a new or growing cause brings it
    # Contexts in which it may also stand without a cause, by the context's own chance.
    alone_in: frozenset[str] = frozenset()

    def chance(self, cause: Finding) -> float:
        """Chance that this cause brings the associated finding."""
        return self.causes.get(cause.observation, {}).get(cause.severity, 0.0)

    def accompanied(self, finding: Finding, others: Iterable[Finding]) -> bool:
        """Whether one of `others` is a cause of it on its side."""
        return any(other.observation in self.causes and sides_meet(other.side, finding.side) for other in others)

    def held(self, finding: Finding, others: Iterable[Finding]) -> bool:
        """Whether one of `others` on its side still requires it: a drain stays while the pneumothorax is large."""
        beside = (other for other in others if sides_meet(other.side, finding.side))
        return any(self.chance(other) >= HELD for other in beside)


# In this order: a drain may itself bring air under the skin.
ASSOCIATED_FINDINGS: Mapping[str, AssociatedFinding] = {
    "chest tube": AssociatedFinding(
        {
            "pneumothorax": {Severity.MILD: 0.2, Severity.MODERATE: 0.55, Severity.SEVERE: 0.9},
            "pleural effusion": {Severity.MODERATE: 0.1, Severity.SEVERE: 0.35},
        },
        alone_in=frozenset({"after surgery"}),
    ),
    "subcutaneous emphysema": AssociatedFinding(
        {
            "pneumothorax": {Severity.MILD: 0.15, Severity.MODERATE: 0.3, Severity.SEVERE: 0.45},
            "rib fracture": {None: 0.15},
            "chest tube": {None: 0.2},
        },
        fresh=True,
    ),
}


def order(name: str) -> int:
    """0 for a finding without a cause, then associated findings in the order in which they are drawn."""
    return list(ASSOCIATED_FINDINGS).index(name) + 1 if name in ASSOCIATED_FINDINGS else 0


def side_beside(cause: Finding, both: float, lean: Side) -> Side | None:
    """The cause's side; if the cause is bilateral and the finding never is, the patient's worse side."""
    return lean if cause.side is Side.BILATERAL and not both else cause.side
