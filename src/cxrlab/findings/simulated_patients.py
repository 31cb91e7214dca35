"""Draws plausible cases from a seed: patients, their visits, and what is on each radiograph.

A patient's visits are drawn in order, and each visit in three steps:

1. whether the radiograph is normal, so that the share of normal studies is that of the settings;
2. the clinical context and the days since the previous radiograph, in which findings can clear;
3. the findings: those of the previous radiograph change by their course, new ones join by the chances of the context.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cxrlab.core.errors import ConfigError
from cxrlab.core.randomness import generator, uniform
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Side, View
from cxrlab.findings.disease_models import CONTEXTS, days_to_clear
from cxrlab.findings.progression import Lesion, Radiograph, between, lesion, pick

# Cumulative shares of patients with one, two, three and four visits.
VISITS = (0.50, 0.76, 0.91, 1.00)
# Chance that a visit keeps the previous one's state (normal or not) without drawing it afresh. The
# share of normal visits is `normal` at every visit whatever this value.
STEADY = 0.6
# Chance that a visit has the context of the one before.
SAME_CONTEXT = 0.8
# A patient with one of these is imaged in bed.
BEDSIDE = frozenset({"endotracheal tube"})


@dataclass(frozen=True)
class Visit:
    """One study of a patient, without pixels and words."""

    number: int  # 1 for the first visit
    age: int  # years at this visit
    sex: str  # "F" or "M"
    view: View  # PA or AP
    context: str  # a key of `disease_models.CONTEXTS`
    days_since_prior: int | None  # None on the first visit
    # Every present finding, then those resolved since the prior (presence absent, change resolved); at most nine
    # together.
    findings: tuple[Finding, ...]

    @property
    def present(self) -> tuple[Finding, ...]:
        """Present findings; empty for a normal radiograph."""
        return tuple(finding for finding in self.findings if finding.present)


@dataclass(frozen=True)
class PatientCase:
    """A patient and one to four visits in order of time."""

    patient: str
    visits: tuple[Visit, ...]


def visit_count(seed: int, patient: str) -> int:
    """How many visits `draw_patient` gives this patient, 1 to 4, without drawing them."""
    u = uniform(seed, "visits", patient)
    return next(number for number, share in enumerate(VISITS, start=1) if u < share)


def draw_patient(seed: int, patient: str, config: CaseConfig | None = None) -> PatientCase:
    """One patient's visits; the same for the same arguments, whatever else was drawn."""
    config = config or CaseConfig()
    rng = generator(seed, "case", patient)
    normal = [rng.random() < config.normal]  # a chain whose every link is normal with this probability
    for _ in range(visit_count(seed, patient) - 1):
        normal.append(rng.random() < config.normal if rng.random() >= STEADY else normal[-1])
    sex = "F" if rng.random() < 0.5 else "M"
    lean = Side.LEFT if rng.random() < 0.5 else Side.RIGHT
    visits: list[Visit] = []
    first_day: dict[Lesion, int] = {}
    day, first_age = 0, 0
    for index, is_normal in enumerate(normal):
        before = visits[-1] if visits else None
        context, days = _occasion(rng, before, is_normal, recovers=any(normal[index + 1 :]))
        if before is None:
            first_age = between(rng, CONTEXTS[context].ages)
        day += days
        image = Radiograph(
            rng,
            context,
            lean,
            age=first_age + day / 365,
            days=days,
            first=before is None,
            recovers=any(normal[index + 1 :]),
            entered=before is None or before.context != context,
            faint=config.faint,
            seen={key: day - since for key, since in first_day.items()},
        )
        findings = (image.normal if is_normal else image.abnormal)(before.present if before else ())
        first_day = {lesion(f): first_day.get(lesion(f), day) for f in findings if f.present}
        prior = days if before else None
        # AP by the share of the context, and always for patients who cannot be brought to the stand.
        bedside = rng.random() < CONTEXTS[context].ap
        visits.append(
            Visit(
                index + 1,
                int(image.age),
                sex,
                View.AP if bedside or any(f.present and f.observation in BEDSIDE for f in findings) else View.PA,
                context,
                prior,
                findings,
            )
        )
    return PatientCase(patient, tuple(visits))


def _occasion(rng: np.random.Generator, before: Visit | None, is_normal: bool, *, recovers: bool) -> tuple[str, int]:
    """The clinical context of this visit and the days since the one before.

    A normal radiograph comes late enough for everything on the one before to have gone, and where the
    context has no such long intervals, for another reason.
    """
    if before is None:
        return _context(rng, None, is_normal, recovers), 0
    row = CONTEXTS[before.context]
    clear = max((days_to_clear(finding) for finding in before.present), default=0) if is_normal else 0
    stays = rng.random() < SAME_CONTEXT and clear <= row.days[1] and (row.acute or not recovers)
    context = before.context if stays else _context(rng, before, is_normal, recovers)
    low, high = (max(limits) for limits in zip(row.days, CONTEXTS[context].days, strict=True))
    # Even on a logarithmic scale: follow-up radiographs crowd near the first.
    days = round(math.exp(math.log(low) + (math.log(high) - math.log(low)) * rng.random()))
    return context, days if days >= clear else round(clear * (1 + rng.random() / 2))


def _context(rng: np.random.Generator, before: Visit | None, is_normal: bool, recovers: bool) -> str:
    """A context that suits the patient's age; one to recover from when a normal radiograph is still to come."""
    rows = {name: row for name, row in CONTEXTS.items() if before is None or row.suits(before.age)}
    if is_normal:
        weights = {name: row.normal for name, row in rows.items()}
    else:
        weights = {name: row.weight for name, row in rows.items() if row.acute or not recovers}
    return pick(rng, weights) if weights or before is None else before.context


@dataclass(frozen=True)
class CaseConfig:
    """How many studies are normal and how many findings are hard to see.

    Args:
        normal: Share of studies without any present finding, 0 to 1.
        faint: Share of findings (devices apart) that are faint when they are first seen, 0 to 1; they
            carry the certainty `possible` and are hedged in the text until they grow.
    """

    normal: float = 0.25
    faint: float = 0.05

    def __post_init__(self) -> None:
        for name in ("normal", "faint"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name}={value} is not usable; give a fraction from 0 to 1.")
