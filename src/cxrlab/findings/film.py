"""The findings of one film, drawn from those of the film before.

What was there moves on by its course, on the same side and at the same place; new findings join it
by the chances of the clinical context, unless they contradict what is already there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Change, Presence, Severity, Side, observation
from cxrlab.findings.contexts import EXTRA_CHANCE, EXTRAS, Context
from cxrlab.findings.contradictions import SELDOM, fits
from cxrlab.findings.courses import COURSES, GRADES, SHAPES, TUBE_HEIGHT_MM, Shape

MOST_FINDINGS = 9
# Share of the context's chances that applies again at a later visit in the same context.
AGAIN = 0.35
# Chance that a finding which leans is on the patient's diseased side.
LEANING = 0.85
_GRADED = (Severity.MILD, Severity.MODERATE, Severity.SEVERE)


class Film:
    """Draws the findings of one visit from those of the visit before."""

    def __init__(
        self,
        rng: np.random.Generator,
        context: Context,
        lean: Side,
        *,
        days: int,
        first: bool,
        recovers: bool,
        again: bool,
    ) -> None:
        self.rng = rng
        self.context = context
        self.lean = lean
        self.days = days
        self.first = first
        self.recovers = recovers
        self.again = again

    def normal(self, before: Sequence[Finding]) -> tuple[Finding, ...]:
        """Nothing is left of what was there."""
        return tuple(resolved(finding) for finding in before)

    def abnormal(self, before: Sequence[Finding]) -> tuple[Finding, ...]:
        """What was there moves on, new findings join; at least one is present."""
        present: list[Finding] = []
        gone: list[Finding] = []
        for finding in before:
            later = self._later(finding, [*present, *before])
            (present if later.present else gone).append(later)
        closed = {finding.observation for finding in before}
        for name in self._wanted():
            if name not in closed:
                closed.add(name)
                self._add(name, present, room=MOST_FINDINGS - len(gone))
        if not present and gone:  # not everything may go: the first stays as it was
            present.append(replace(before[0], change=Change.UNCHANGED))
            del gone[0]
        elif not present:
            self._add(pick(self.rng, self._chances()), present, room=MOST_FINDINGS)
        return (*present, *gone)

    def _chances(self) -> Mapping[str, float]:
        """The context's chances for what may appear at this visit; never empty."""
        return {name: chance for name, chance in self.context.chances.items() if self._may_appear(name)}

    def _may_appear(self, name: str) -> bool:
        course = COURSES[name]
        return not (self.recovers and course.lasting) and (self.first or course.may_appear)

    def _wanted(self) -> Iterator[str]:
        factor = AGAIN if self.again else 1.0
        for name, chance in self.context.chances.items():
            if self.rng.random() < chance * factor and self._may_appear(name):
                yield name
        if self.rng.random() < EXTRA_CHANCE * factor:
            name = pick(self.rng, EXTRAS)
            if self._may_appear(name):
                yield name

    def _add(self, name: str, present: list[Finding], room: int) -> None:
        shape = SHAPES.get(name, Shape())
        for attempt in range(3):
            if attempt and self.rng.random() >= shape.again:
                return
            candidate = self._draw(name, shape)
            if len(present) < room and fits(candidate, present) and not self._seldom(name, present):
                present.append(candidate)

    def _seldom(self, name: str, present: Sequence[Finding]) -> bool:
        keep = min((SELDOM.get(frozenset({name, other.observation}), 1.0) for other in present), default=1.0)
        return keep < 1.0 and self.rng.random() >= keep

    def _draw(self, name: str, shape: Shape) -> Finding:
        row = observation(name)
        rng = self.rng
        tip = pick(rng, shape.tips) if shape.tips else None
        height = TUBE_HEIGHT_MM.get(tip or "") if name == "endotracheal tube" else None
        return Finding(
            name,
            side=self._side(shape) if row.sided else None,
            location=pick(rng, shape.places) if shape.places else None,
            severity=Severity(pick(rng, GRADES)) if row.graded else None,
            size_mm=float(between(rng, shape.size_mm)) if shape.size_mm else None,
            change=None if self.first else Change.NEW,
            tip=tip,
            tip_mm=float(between(rng, height)) if height else None,
        )

    def _side(self, shape: Shape) -> Side:
        if self.rng.random() < shape.both:
            return Side.BILATERAL
        if shape.only:
            return Side(shape.only)
        towards = LEANING if shape.leans else 0.5
        other = Side.RIGHT if self.lean is Side.LEFT else Side.LEFT
        return self.lean if self.rng.random() < towards else other

    def _later(self, finding: Finding, others: Sequence[Finding]) -> Finding:
        """The same lesion at this visit, on the same side and at the same place."""
        course = COURSES[finding.observation]
        u = self.rng.random()
        if u < course.gone and self.days >= course.after_days:
            return resolved(finding)
        same = replace(finding, change=Change.UNCHANGED)
        step = 1 if u < course.gone + course.worse else -1 if u < course.gone + course.worse + course.better else 0
        moved = self._moved(same, step) if step else same
        rest = [other for other in others if not _same_lesion(other, moved)]
        return moved if fits(moved, rest) else same

    def _moved(self, finding: Finding, step: int) -> Finding:
        """One grade or a fifth to a half in size up or down; unchanged where the scale ends."""
        change = Change.INCREASED if step > 0 else Change.DECREASED
        if finding.severity is not None:
            index = _GRADED.index(finding.severity) + step
            return replace(finding, severity=_GRADED[index], change=change) if 0 <= index < len(_GRADED) else finding
        limits = SHAPES[finding.observation].size_mm if finding.size_mm is not None else None
        if limits is None or finding.size_mm is None:
            return finding
        low, high = limits
        size = round(finding.size_mm * (1 + step * (0.2 + 0.3 * self.rng.random())))
        return replace(finding, size_mm=float(size), change=change) if low <= size <= high else finding


def _same_lesion(first: Finding, second: Finding) -> bool:
    keys = ((f.observation, f.side, f.location) for f in (first, second))
    return next(keys) == next(keys)


def resolved(finding: Finding) -> Finding:
    """What is told of a finding that is gone: its side and place, no degree, size or tip."""
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
