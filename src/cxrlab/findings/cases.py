"""Plausible cases from a seed: patients, their visits, and what is on each film.

A patient's visits are drawn in order. Whether a film is normal comes first, so that the share of
normal studies is what the settings ask for; then the clinical context; then each finding of the
previous film moves on by its course and new ones join it by the chances of the context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cxrlab.core.randomness import fraction, generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Group, Side, View, observation
from cxrlab.findings.config import CaseConfig
from cxrlab.findings.contexts import CONTEXTS
from cxrlab.findings.film import Film, between, pick

# Cumulative shares of patients with one, two, three and four visits.
VISITS = (0.50, 0.76, 0.91, 1.00)
# Chance that a visit keeps the previous one's state (normal or not) without drawing it afresh. The
# share of normal visits is `normal` at every visit whatever this value.
STEADY = 0.6
# Chance that a visit has the context of the one before.
SAME_CONTEXT = 0.8


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
            age = between(rng, row.ages)
        else:
            days = _interval(rng, CONTEXTS[context].days)
        age += days / 365
        again = bool(findings) and new_context == context
        film = Film(rng, row, lean, days=days, first=index == 0, recovers=recovers, again=again)
        findings = film.normal(findings) if is_normal else film.abnormal(findings)
        findings = tuple(_maybe_faint(rng, finding, config.faint) for finding in findings)
        view = View.AP if rng.random() < row.ap else View.PA
        prior = days if index else None
        visits.append(Visit(index + 1, int(age), sex, view, new_context, prior, findings))
        context = new_context
        findings = visits[-1].present
    return PatientCase(patient, tuple(visits))


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
        return pick(rng, {name: row.normal for name, row in CONTEXTS.items()})
    return pick(rng, {name: row.weight for name, row in CONTEXTS.items() if row.acute or not recovers})


def _interval(rng: np.random.Generator, limits: tuple[int, int]) -> int:
    """Days, even on a logarithmic scale: follow-up films crowd near the first."""
    low, high = math.log(limits[0]), math.log(limits[1])
    return round(math.exp(low + (high - low) * rng.random()))
