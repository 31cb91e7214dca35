"""Writes a candidate report with known errors: how many, of which kind, and where they are stated.

The reference reports a visit in one lexicon; the candidate reports the same visit, with a planned number
of mistakes in it, in the other. Since the candidate is written from the mistaken visit, everything
it denies agrees with what it asserts. A finding takes one mistake at most, so that no part of a plan
undoes another, and the plan is exactly the difference of the two finding lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding, ReportError
from cxrlab.core.vocabulary import Change, ErrorKind, Severity, Side
from cxrlab.findings.disease_models import CONTEXTS, COURSES, SHAPES, TUBE_HEIGHT_MM, Shape, fits
from cxrlab.findings.narrator import Narration, narrate
from cxrlab.findings.progression import MOST_FINDINGS, Radiograph, resolved
from cxrlab.findings.realiser import kind_of
from cxrlab.findings.relatedness import relatedness
from cxrlab.findings.significance import MISPLACED, Urgency, urgency_of
from cxrlab.findings.simulated_patients import Visit

# The most mistakes that a drawn plan holds; how many is drawn evenly from none to this.
MOST_MISTAKES = 8
# Contexts from which inventions are drawn: enough to offer both what matters and what does not.
POOL_CONTEXTS = 6
# Days to the earlier radiograph that a candidate claims when it speaks of change and the reference has no prior.
CLAIMED_DAYS = 30

# What a plan may invent at most: present findings, and resolved ones that never were.
MOST_INVENTED: Mapping[ErrorKind, int] = {ErrorKind.FALSE_FINDING: 3, ErrorKind.FALSE_COMPARISON: 1}


@dataclass(frozen=True)
class Plan:
    """The mistakes that a candidate will make; each about another finding."""

    mistakes: tuple[PlantedError, ...] = ()

    def count(self, kind: ErrorKind) -> int:
        """How many mistakes are of this kind."""
        return sum(mistake.kind is kind for mistake in self.mistakes)


@dataclass(frozen=True)
class ReportPair:
    """Two reports on one visit and exactly what the second gets wrong."""

    reference: Narration  # the truth in words
    candidate: Narration  # the mistaken visit in words, with the findings that it states
    errors: tuple[ReportError, ...]  # one for each mistake, with its spans in the findings sections of both reports


def draw_error_plan(rng: np.random.Generator, visit: Visit, count: int | None = None) -> Plan:
    """Mistakes about this visit, spread evenly over the six kinds and over significant and not.

    Args:
        count: How many mistakes to make; None draws 0 to `MOST_MISTAKES`. A visit that offers fewer
            gets fewer: a normal radiograph offers little but inventions.
    """
    wanted = int(rng.integers(0, MOST_MISTAKES + 1)) if count is None else count
    names = [finding.observation for finding in visit.findings]
    # Of a thing that is there twice only omissions: a changed one could be either.
    options = [
        mistake
        for finding in visit.findings
        for mistake in possible_errors(finding)
        if names.count(finding.observation) == 1 or mistake.kind is ErrorKind.OMITTED_FINDING
    ]
    options += _inventions(rng, visit)
    chosen: list[PlantedError] = []
    for _ in range(wanted):
        options = [option for option in options if _joins(option, chosen, visit)]
        if not options:
            break
        kinds = sorted({option.kind for option in options})
        kind = kinds[int(rng.integers(len(kinds)))]
        of_kind = [option for option in options if option.kind is kind]
        matters = rng.random() < 0.5
        fitting = [option for option in of_kind if significant(option, visit.age) == matters] or of_kind
        chosen.append(fitting[int(rng.integers(len(fitting)))])
    return Plan(tuple(chosen))


def mistaken(
    visit: Visit, seed: int, name: str, plan: Plan | None = None, lexicons: tuple[str, str] = ("A", "B")
) -> ReportPair:
    """Write the two reports of one visit.

    Args:
        name: Id of the case; it picks the words and, without a plan, the mistakes.
        plan: What the candidate gets wrong; None to draw it.
        lexicons: Of the reference and of the candidate.
    """
    plan = draw_error_plan(generator(seed, "mistakes", name), visit) if plan is None else plan
    wrong = replace(visit, findings=apply(plan, visit.findings))
    if visit.days_since_prior is None and any(finding.change for finding in wrong.findings):
        wrong = replace(wrong, days_since_prior=CLAIMED_DAYS)
    reference = narrate(visit, seed, f"{name}/reference", lexicons[0])
    candidate = narrate(wrong, seed, f"{name}/candidate", lexicons[1])
    reference_spans, candidate_spans = _spans(visit, reference), _spans(wrong, candidate)
    errors = tuple(
        ReportError(
            mistake.kind,
            significant(mistake, visit.age, reference.report.indication),
            mistake.finding.observation,
            reference_spans[mistake.reference] if mistake.reference else None,
            candidate_spans[mistake.candidate] if mistake.candidate else None,
            mistake.detail,
        )
        for mistake in plan.mistakes
    )
    return ReportPair(reference, candidate, errors)


def apply(plan: Plan, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings with the plan's mistakes made, present ones first."""
    instead = {mistake.reference: mistake.candidate for mistake in plan.mistakes if mistake.reference is not None}
    if missing := set(instead) - set(findings):
        names = ", ".join(sorted(finding.observation for finding in missing))
        raise DataError(f"the plan is of another visit: it changes {names}, which this visit does not show.")
    if len(instead) < sum(mistake.reference is not None for mistake in plan.mistakes):
        raise DataError("the plan makes two mistakes about one finding; one could undo the other.")
    kept = [instead.get(finding, finding) for finding in findings]
    invented = [mistake.candidate for mistake in plan.mistakes if mistake.reference is None]
    stated = [finding for finding in (*kept, *invented) if finding is not None]
    return tuple(sorted(stated, key=lambda finding: not finding.present))


def _spans(visit: Visit, narration: Narration) -> dict[Finding, tuple[int, int] | None]:
    """Where the narration states each finding of the visit."""
    return {finding: stated.span for finding, stated in zip(visit.findings, narration.findings, strict=False)}


def _inventions(rng: np.random.Generator, visit: Visit) -> Iterable[PlantedError]:
    """Findings of other patients of this age, present (a false finding) or resolved (a false comparison)."""
    lean = Side.LEFT if rng.random() < 0.5 else Side.RIGHT
    names = [name for name, row in CONTEXTS.items() if row.suits(visit.age)]
    for name in rng.permutation(names)[:POOL_CONTEXTS]:
        for finding in Radiograph(rng, str(name), lean, age=visit.age, first=True).abnormal(()):
            gone = resolved(finding)
            yield PlantedError(ErrorKind.FALSE_FINDING, None, finding)
            yield PlantedError(ErrorKind.FALSE_COMPARISON, None, gone)


def _joins(option: PlantedError, chosen: Sequence[PlantedError], visit: Visit) -> bool:
    """Whether the mistake can be made beside those already chosen, without touching or contradicting them."""
    names = [mistake.finding.observation for mistake in chosen]
    if option.reference is None:
        invented = sum(mistake.reference is None and mistake.kind is option.kind for mistake in chosen)
        names += [finding.observation for finding in visit.findings]
        # An opacity invented beside a pneumonia would be another word for it, not a finding too many.
        if invented == MOST_INVENTED[option.kind] or any(relatedness(option.finding.observation, n) for n in names):
            return False
    elif any(mistake.reference == option.reference for mistake in chosen):
        return False
    elif option.candidate is not None and option.reference.observation in names:
        return False
    after = apply(Plan((*chosen, option)), visit.findings)
    candidate = option.candidate
    rest = [finding for finding in after if finding.present and finding != candidate]
    return len(after) <= MOST_FINDINGS and (candidate is None or not candidate.present or fits(candidate, rest))


# A size is wrong to a significant degree from this ratio on: half again is a growth that follow-up rules act upon.
SIZE_MATTERS = 1.5
# Two readers may differ by this much without an error: a quarter of the size, or five millimetres.
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
# A tube that leaves the radiograph may well end in the stomach: neither is wrong about the other.
AGREEING_TIPS = frozenset({"stomach", "beyond image"})


@dataclass(frozen=True)
class PlantedError:
    """One error: the finding of the reference and that of the candidate."""

    kind: ErrorKind  # one of the six kinds
    reference: Finding | None  # the finding of the reference; None for what the candidate invents
    candidate: Finding | None  # the finding of the candidate; None for what it leaves out

    @property
    def finding(self) -> Finding:
        """The reference's finding, or the invented one."""
        finding = self.reference or self.candidate
        assert finding is not None, "a mistake is about something"
        return finding

    @property
    def detail(self) -> str:
        """What the candidate states against what it should state, in a few words."""
        if self.reference is None or self.candidate is None:
            return "left out" if self.candidate is None else "not in the reference"
        keys = ("side", "location", "tip", "severity", "size_mm", "change")
        pairs = [(getattr(self.candidate, key), getattr(self.reference, key)) for key in keys]
        return ", ".join(
            f"{stated or 'nothing'} instead of {true or 'nothing'}" for stated, true in pairs if stated != true
        )


# ── when a mistake matters ────────────────────────────────────────────────────────────────────────

Rule = Callable[[Finding | None, Finding | None, Urgency], bool]


def _of_class(reference: Finding | None, candidate: Finding | None, urgency: Urgency) -> bool:
    return urgency.matters


def _of_place(reference: Finding | None, candidate: Finding | None, urgency: Urgency) -> bool:
    if reference is None or candidate is None:
        return False
    tips = {(finding.observation, finding.tip or "") for finding in (reference, candidate)}
    return reference.side is not candidate.side or bool(tips & set(MISPLACED))


def _of_degree(reference: Finding | None, candidate: Finding | None, urgency: Urgency) -> bool:
    if reference is None or candidate is None or urgency is Urgency.BENIGN:
        return False
    if reference.severity and candidate.severity:
        return abs(reference.severity.rank - candidate.severity.rank) >= 2
    return size_ratio(reference.size_mm or 1.0, candidate.size_mm or 1.0) >= SIZE_MATTERS


def _of_course(reference: Finding | None, candidate: Finding | None, urgency: Urgency) -> bool:
    stated = {DIRECTIONS[finding.change if finding else None] for finding in (reference, candidate)}
    return urgency.matters and not stated <= {"nothing", "steady"}


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


def significant(mistake: PlantedError, age: float | None = None, indication: str | None = None) -> bool:
    """Whether the mistake is likely to change what is done for a patient of this age, imaged for this reason."""
    rule, _ = RULES[mistake.kind]
    return rule(mistake.reference, mistake.candidate, urgency_of(mistake.finding, age, indication))


def size_ratio(first: float, second: float) -> float:
    """How many times the larger of two sizes exceeds the smaller, at least 1."""
    return max(first, second) / max(1e-9, min(first, second))


# ── which mistakes can be made about a finding ────────────────────────────────────────────────────


def possible_errors(finding: Finding) -> Iterator[PlantedError]:
    """Every error about one finding of a reference whose kind is unambiguous.

    A side is only swapped: both sides for one could also be read as a finding too many.
    """
    if not finding.present:
        # Of a resolved finding only the change is stated.
        yield PlantedError(ErrorKind.OMITTED_COMPARISON, finding, None)
        return
    yield PlantedError(ErrorKind.OMITTED_FINDING, finding, None)
    shape = SHAPES.get(finding.observation, Shape())
    elsewhere: list[Finding] = []
    if finding.side in OTHER_SIDE:
        elsewhere.append(replace(finding, side=OTHER_SIDE[finding.side]))
    elsewhere += [replace(finding, location=place) for place in shape.places or () if place != finding.location]
    for tip in shape.tips or ():
        if tip != finding.tip and {tip, finding.tip} != AGREEING_TIPS:
            low, high = TUBE_HEIGHT_MM.get(tip, (0, 0)) if finding.observation == "endotracheal tube" else (0, 0)
            elsewhere.append(replace(finding, tip=tip, tip_mm=float(round((low + high) / 2)) if high else None))
    yield from (PlantedError(ErrorKind.WRONG_LOCATION, finding, candidate) for candidate in elsewhere)
    degrees: list[Finding] = []
    if finding.severity is not None:
        degrees += [replace(finding, severity=grade) for grade in GRADES if grade is not finding.severity]
    if finding.size_mm is not None and shape.size_mm is not None:
        for size in (float(round(finding.size_mm * factor)) for factor in SIZE_FACTORS):
            beyond = max(READERS_MM, READERS_SHARE * max(size, finding.size_mm))
            if shape.size_mm[0] <= size <= shape.size_mm[1] and abs(size - finding.size_mm) > beyond:
                degrees.append(replace(finding, size_mm=size))
    yield from (PlantedError(ErrorKind.WRONG_SEVERITY, finding, candidate) for candidate in degrees)
    for change in changes_of(finding):
        if DIRECTIONS[change] != DIRECTIONS[finding.change]:
            yield PlantedError(ErrorKind.FALSE_COMPARISON, finding, replace(finding, change=change))
    if finding.change is not None:
        yield PlantedError(ErrorKind.OMITTED_COMPARISON, finding, replace(finding, change=None))


def changes_of(finding: Finding) -> tuple[Change, ...]:
    """The changes that fit the finding: a tube or a fracture does not grow, a scoliosis stays."""
    course = COURSES[finding.observation]
    if kind_of(finding) in ("device", "bone") or not (course.worse or course.better):
        return Change.NEW, Change.UNCHANGED
    return Change.NEW, Change.INCREASED, Change.UNCHANGED, Change.DECREASED
