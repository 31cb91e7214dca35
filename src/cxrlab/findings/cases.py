"""Plausible cases from a seed: patients, their visits, and what is on each film.

A patient's visits are drawn in order. Whether a film is normal comes first, so that the share of
normal studies is what the settings ask for; then the clinical context; then each finding of the
previous film moves on by its course and new ones join it by the chances of the context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from cxrlab.core.randomness import fraction, generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Change, Group, Presence, Severity, Side, View, observation
from cxrlab.findings.config import CaseConfig
from cxrlab.findings.contexts import CONTEXTS, EXTRA_CHANCE, EXTRAS, Context
from cxrlab.findings.contradictions import SELDOM, fits
from cxrlab.findings.courses import COURSES, GRADES, SHAPES, TUBE_HEIGHT_MM, Shape

MOST_FINDINGS = 9
# Cumulative shares of patients with one, two, three and four visits.
VISITS = (0.50, 0.76, 0.91, 1.00)
# Chance that a visit keeps the previous one's state (normal or not) without drawing it afresh. The
# share of normal visits is `normal` at every visit whatever this value.
STEADY = 0.6
SAME_CONTEXT = 0.8
# Share of the context's chances that applies again at a later visit in the same context.
AGAIN = 0.35
LEANING = 0.85
_GRADED = (Severity.MILD, Severity.MODERATE, Severity.SEVERE)


@dataclass(frozen=True)
class Visit:
    """One study of a patient, without pixels and words.

    Args:
        number: 1 for the first visit.
        age: Years at this visit.
        sex: "F" or "M".
        view: PA or AP.
        context: A key of `contexts.CONTEXTS`.
        days_since_prior: None on the first visit.
        findings: Every present finding, then those resolved since the prior (presence absent,
            change resolved); at most nine together.
    """

    number: int
    age: int
    sex: str
    view: View
    context: str
    days_since_prior: int | None
    findings: tuple[Finding, ...]

    @property
    def present(self) -> tuple[Finding, ...]:
        """What is on the film; empty for a normal one."""
        return tuple(finding for finding in self.findings if finding.present)


@dataclass(frozen=True)
class PatientCase:
    """A patient and one to four visits in order of time."""

    patient: str
    visits: tuple[Visit, ...]


def visit_count(seed: int, patient: str, config: CaseConfig | None = None) -> int:
    """How many visits `draw_patient` gives this patient, 1 to 4, without drawing them."""
    del config  # the number of visits does not depend on the settings
    u = fraction(seed, "visits", patient)
    return next(number for number, share in enumerate(VISITS, start=1) if u < share)


def draw_patient(seed: int, patient: str, config: CaseConfig | None = None) -> PatientCase:
    """One patient's visits; the same for the same arguments, whatever else was drawn."""
    config = config or CaseConfig()
    rng = generator(seed, "case", patient)
    normal = list(_normal_flags(rng, visit_count(seed, patient), config.normal))
    sex = "F" if rng.random() < 0.5 else "M"
    lean = Side.LEFT if rng.random() < 0.5 else Side.RIGHT
    visits: list[Visit] = []
    findings: tuple[Finding, ...] = ()
    context, age, days = "", 0.0, 0
    for index, is_normal in enumerate(normal):
        recovers = any(normal[index + 1 :])
        new_context = _next_context(rng, context, is_normal, recovers)
        row = CONTEXTS[new_context]
        if index == 0:
            age = _between(rng, row.ages)
        else:
            days = _interval(rng, CONTEXTS[context].days)
        age += days / 365
        again = bool(findings) and new_context == context
        film = _Film(rng, row, lean, days=days, first=index == 0, recovers=recovers, again=again)
        findings = film.normal(findings) if is_normal else film.abnormal(findings)
        findings = tuple(_maybe_faint(rng, finding, config.faint) for finding in findings)
        view = View.AP if rng.random() < row.ap else View.PA
        prior = days if index else None
        visits.append(Visit(index + 1, int(age), sex, view, new_context, prior, findings))
        context = new_context
        findings = visits[-1].present
    return PatientCase(patient, tuple(visits))


class _Film:
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
        return tuple(_resolved(finding) for finding in before)

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
        while not present:
            self._add(_pick(self.rng, self._chances()), present, room=MOST_FINDINGS)
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
            name = _pick(self.rng, EXTRAS)
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
        tip = _pick(rng, shape.tips) if shape.tips else None
        height = TUBE_HEIGHT_MM.get(tip or "") if name == "endotracheal tube" else None
        return Finding(
            name,
            side=self._side(shape) if row.sided else None,
            location=_pick(rng, shape.places) if shape.places else None,
            severity=Severity(_pick(rng, GRADES)) if row.graded else None,
            size_mm=float(_between(rng, shape.size_mm)) if shape.size_mm else None,
            change=None if self.first else Change.NEW,
            tip=tip,
            tip_mm=float(_between(rng, height)) if height else None,
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
            return _resolved(finding)
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


def _resolved(finding: Finding) -> Finding:
    return Finding(
        finding.observation,
        presence=Presence.ABSENT,
        side=finding.side,
        location=finding.location,
        change=Change.RESOLVED,
    )


def _maybe_faint(rng: np.random.Generator, finding: Finding, share: float) -> Finding:
    faint = rng.random() < share
    if not finding.present or observation(finding.observation).group is Group.DEVICE:
        return finding
    return replace(finding, certainty=Certainty.POSSIBLE if faint else Certainty.CERTAIN)


def _normal_flags(rng: np.random.Generator, count: int, share: float) -> Iterator[bool]:
    """A chain whose every link is normal with probability `share`."""
    flag = rng.random() < share
    for index in range(count):
        if index and rng.random() >= STEADY:
            flag = rng.random() < share
        yield flag


def _next_context(rng: np.random.Generator, before: str, is_normal: bool, recovers: bool) -> str:
    """The context of this visit; one to recover from when a normal film is still to come."""
    if before and rng.random() < SAME_CONTEXT and not (recovers and not CONTEXTS[before].acute):
        return before
    if is_normal:
        return _pick(rng, {name: row.normal for name, row in CONTEXTS.items()})
    return _pick(rng, {name: row.weight for name, row in CONTEXTS.items() if row.acute or not recovers})


def _pick(rng: np.random.Generator, weights: Mapping[str, float]) -> str:
    """One key with probability proportional to its weight."""
    sums = list(accumulate(weights.values()))
    u = rng.random() * sums[-1]
    return next((name for name, total in zip(weights, sums, strict=True) if u < total), next(reversed(list(weights))))


def _between(rng: np.random.Generator, limits: tuple[int, int]) -> int:
    """A whole number from the first limit to the last, both included."""
    low, high = limits
    return low + int(rng.random() * (high - low + 1))


def _interval(rng: np.random.Generator, limits: tuple[int, int]) -> int:
    """Days, even on a logarithmic scale: follow-up films crowd near the first."""
    low, high = math.log(limits[0]), math.log(limits[1])
    return round(math.exp(low + (high - low) * rng.random()))
