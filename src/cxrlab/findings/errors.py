"""A report with known mistakes: the truth of how many errors a candidate holds, and of which kind.

The reference tells a visit in one lexicon; the candidate tells the same visit, with a planned number
of mistakes in it, in the other. Since the candidate is written from the mistaken visit, everything
it denies agrees with what it asserts. A finding takes one mistake at most, so that no part of a plan
undoes another, and the plan is exactly the difference of the two finding lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding, ReportError
from cxrlab.core.vocabulary import ErrorKind, Side
from cxrlab.findings.cases import Visit
from cxrlab.findings.contexts import CONTEXTS
from cxrlab.findings.contradictions import fits
from cxrlab.findings.image import MOST_FINDINGS, Radiograph, resolved
from cxrlab.findings.mistakes import Mistake, significant, slips
from cxrlab.findings.narrator import Narration, narrate
from cxrlab.findings.relatedness import relatedness

# The most mistakes that a drawn plan holds; how many is drawn evenly from none to this.
MOST_MISTAKES = 8
# Contexts from which inventions are drawn: enough to offer both what matters and what does not.
POOL_CONTEXTS = 6
# Days to the earlier film that a candidate claims when it speaks of change and the reference has no prior.
CLAIMED_DAYS = 30

# What a plan may invent at most: present findings, and resolved ones that never were.
MOST_INVENTED: Mapping[ErrorKind, int] = {ErrorKind.FALSE_FINDING: 3, ErrorKind.FALSE_COMPARISON: 1}


@dataclass(frozen=True)
class Plan:
    """The mistakes that a candidate will make; each about another finding."""

    mistakes: tuple[Mistake, ...] = ()

    def count(self, kind: ErrorKind) -> int:
        """How many mistakes are of this kind."""
        return sum(mistake.kind is kind for mistake in self.mistakes)


@dataclass(frozen=True)
class Mistaken:
    """Two reports on one visit and exactly what the second gets wrong.

    Args:
        reference: The truth in words.
        candidate: The mistaken visit in words; its findings are what it says.
        errors: One for each mistake, with its spans in the findings sections of both reports.
    """

    reference: Narration
    candidate: Narration
    errors: tuple[ReportError, ...]


def draw_plan(rng: np.random.Generator, visit: Visit, count: int | None = None) -> Plan:
    """Mistakes about this visit, spread evenly over the six kinds and over significant and not.

    Args:
        rng: Source of every choice.
        visit: The truth.
        count: How many mistakes to make; None draws 0 to `MOST_MISTAKES`. A visit that offers fewer
            gets fewer: of a normal film there is little to get wrong but to invent.
    """
    wanted = int(rng.integers(0, MOST_MISTAKES + 1)) if count is None else count
    options = [*_slips_of(visit), *_inventions(rng, visit)]
    chosen: list[Mistake] = []
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
) -> Mistaken:
    """Write the two reports of one visit.

    Args:
        visit: The truth.
        seed: Seed of the benchmark.
        name: Id of the case; it picks the words and, without a plan, the mistakes.
        plan: What the candidate gets wrong; None to draw it.
        lexicons: Of the reference and of the candidate.
    """
    plan = draw_plan(generator(seed, "mistakes", name), visit) if plan is None else plan
    wrong = replace(visit, findings=apply(plan, visit.findings))
    if visit.days_since_prior is None and any(finding.change for finding in wrong.findings):
        wrong = replace(wrong, days_since_prior=CLAIMED_DAYS)
    reference = narrate(visit, seed, f"{name}/reference", lexicons[0])
    candidate = narrate(wrong, seed, f"{name}/candidate", lexicons[1])
    told, said = _spans(visit, reference), _spans(wrong, candidate)
    errors = tuple(
        ReportError(
            mistake.kind,
            significant(mistake, visit.age, reference.report.indication),
            mistake.finding.observation,
            told[mistake.was] if mistake.was else None,
            said[mistake.told] if mistake.told else None,
            mistake.detail,
        )
        for mistake in plan.mistakes
    )
    return Mistaken(reference, candidate, errors)


def apply(plan: Plan, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings with the plan's mistakes made, present ones first."""
    instead = {mistake.was: mistake.told for mistake in plan.mistakes if mistake.was is not None}
    if missing := set(instead) - set(findings):
        names = ", ".join(sorted(finding.observation for finding in missing))
        raise DataError(f"the plan is of another visit: it changes {names}, which this visit does not show.")
    if len(instead) < sum(mistake.was is not None for mistake in plan.mistakes):
        raise DataError("the plan makes two mistakes about one finding; one could undo the other.")
    kept = [instead.get(finding, finding) for finding in findings]
    invented = [mistake.told for mistake in plan.mistakes if mistake.was is None]
    told = [finding for finding in (*kept, *invented) if finding is not None]
    return tuple(sorted(told, key=lambda finding: not finding.present))


def _spans(visit: Visit, narration: Narration) -> dict[Finding, tuple[int, int] | None]:
    """Where the narration tells each finding of the visit."""
    return {finding: told.span for finding, told in zip(visit.findings, narration.findings, strict=False)}


def _slips_of(visit: Visit) -> Iterable[Mistake]:
    """Mistakes about what is there; of a thing that is there twice only omissions: a changed one could be either."""
    names = [finding.observation for finding in visit.findings]
    for finding in visit.findings:
        for mistake in slips(finding):
            if names.count(finding.observation) == 1 or mistake.kind is ErrorKind.OMITTED_FINDING:
                yield mistake


def _inventions(rng: np.random.Generator, visit: Visit) -> Iterable[Mistake]:
    """Findings of other patients of this age, present (a false finding) or resolved (a false comparison)."""
    lean = Side.LEFT if rng.random() < 0.5 else Side.RIGHT
    names = [name for name, row in CONTEXTS.items() if row.suits(visit.age)]
    for name in rng.permutation(names)[:POOL_CONTEXTS]:
        for finding in Radiograph(rng, str(name), lean, age=visit.age, first=True).abnormal(()):
            gone = resolved(finding)
            yield Mistake(ErrorKind.FALSE_FINDING, None, finding)
            yield Mistake(ErrorKind.FALSE_COMPARISON, None, gone)


def _joins(option: Mistake, chosen: Sequence[Mistake], visit: Visit) -> bool:
    """Whether the mistake can be made beside those already chosen, without touching or contradicting them."""
    names = [mistake.finding.observation for mistake in chosen]
    if option.was is None:
        invented = sum(mistake.was is None and mistake.kind is option.kind for mistake in chosen)
        names += [finding.observation for finding in visit.findings]
        # An opacity invented beside a pneumonia would be another word for it, not a finding too many.
        if invented == MOST_INVENTED[option.kind] or any(relatedness(option.finding.observation, n) for n in names):
            return False
    elif any(mistake.was == option.was for mistake in chosen):
        return False
    elif option.told is not None and option.was.observation in names:
        return False
    after = apply(Plan((*chosen, option)), visit.findings)
    told = option.told
    rest = [finding for finding in after if finding.present and finding != told]
    return len(after) <= MOST_FINDINGS and (told is None or not told.present or fits(told, rest))
