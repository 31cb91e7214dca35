"""Two reports, finding by finding: what was matched, what is missing, what was made up, what is off.

The one comparison behind the twelve error counts, `green:rules`, `crimson:rules` and `clinical:rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from cxrlab.core.records import Finding, ReportError
from cxrlab.core.vocabulary import Change, ErrorKind, Severity, Side, observation
from cxrlab.findings.merge import same_place, side_by_side
from cxrlab.findings.planted_errors import AGREEING_TIPS
from cxrlab.findings.relatedness import implies, relatedness, restates
from cxrlab.findings.significance import MISPLACED, Urgency, urgency_of
from cxrlab.metrics.pairs import Context

if TYPE_CHECKING:
    from cxrlab.metrics.pairs import Batch

# What lies on the skin belongs to the monitor: naming it or not makes no report better or worse.
NOT_COMPARED = frozenset({"monitoring leads"})
# From this relatedness on, another name is a less exact word and not another finding.
SAME_THING = 0.5


@dataclass(frozen=True)
class Match:
    """A reference finding and the candidate finding that stands for it.

    Args:
        reference: What is right.
        candidate: What was said.
        credit: How far the one stands for the other, in (0, 1]: their relatedness.
        urgency: How much the reference finding matters.
        called: How much it would matter if it were what the candidate calls it.
        slips: What is wrong about the attributes.
        vague: How many attributes the reference gives and the candidate leaves out.
    """

    reference: Finding
    candidate: Finding
    credit: float
    urgency: Urgency
    called: Urgency
    slips: tuple[ReportError, ...] = ()
    vague: int = 0


@dataclass(frozen=True)
class UnmatchedFinding:
    """A finding of one report without a counterpart in the other.

    Args:
        finding: The finding.
        urgency: How much it matters.
        contradicted: The finding of the other report that denies it; None where the other is silent.
        nearest: Highest relatedness to a finding of the other report: below 0.5 a neighbour, but not the
            same thing; from 0.5 on (echoes only) the thing that it restates.
    """

    finding: Finding
    urgency: Urgency
    contradicted: Finding | None = None
    nearest: float = 0.0


@dataclass(frozen=True)
class Comparison:
    """A candidate against its reference.

    Args:
        matches: Each reference finding that the candidate names, with its counterpart.
        echoes: Further findings of either report that restate something of the other in another word
            ("opacity … may be atelectasis or pneumonia"): neither missing nor made up.
        missing: Reference findings without a counterpart.
        invented: Candidate findings without a counterpart.
        unspoken: Comparisons with the prior on which no present finding stands ("has resolved") and that are wrong.
        silent: True when the candidate says nothing of the image, neither a finding nor that something is
            normal, although the reference does: it makes no error, and is no report either.
    """

    matches: tuple[Match, ...] = ()
    echoes: tuple[UnmatchedFinding, ...] = ()
    missing: tuple[UnmatchedFinding, ...] = ()
    invented: tuple[UnmatchedFinding, ...] = ()
    unspoken: tuple[ReportError, ...] = ()
    silent: bool = False

    @cached_property
    def errors(self) -> tuple[ReportError, ...]:
        """Every error, each of one kind, with its place in both texts."""
        return tuple(self._errors())

    def _errors(self) -> Iterator[ReportError]:
        for lone in self.invented:
            said, denied = lone.finding, lone.contradicted
            detail = "denied by the reference" if denied else "not in the reference"
            span = denied.span if denied else None
            matters = lone.urgency.matters
            yield ReportError(ErrorKind.FALSE_FINDING, matters, said.observation, span, said.span, detail)
        for lone in self.missing:
            meant, denied = lone.finding, lone.contradicted
            detail = "denied by the candidate" if denied else "not in the candidate"
            span = denied.span if denied else None
            matters = lone.urgency.matters
            yield ReportError(ErrorKind.OMITTED_FINDING, matters, meant.observation, meant.span, span, detail)
        for match in self.matches:
            yield from match.slips
        yield from self.unspoken


def compare_pair(batch: Batch, index: int) -> Comparison | None:
    """The comparison of one pair of a batch; None where there is nothing to compare with."""
    pair = batch.pairs[index]
    if not pair.answerable:
        return None
    compared = compare_things(*batch.things[index], pair.context)
    told = pair.findings is not None or batch.read(batch.references[index]).has_statements
    return replace(compared, silent=told and not batch.read(batch.candidates[index]).has_statements)


def compare_findings(
    reference: Sequence[Finding], candidate: Sequence[Finding], context: Context | None = None
) -> Comparison:
    """Compare two lists of findings.

    Args:
        reference: What is right: present findings, and those stated to be absent.
        candidate: What was said.
        context: Age and indication, which can change how much a finding matters and what stands for it.
    """
    return compare_things(*side_by_side(reference, candidate), context or Context())


def compare_things(meant: Sequence[Finding], said: Sequence[Finding], context: Context) -> Comparison:
    """Compare what two reports say after repeats were merged (`findings.merge.side_by_side`)."""
    meant = [finding for finding in meant if finding.observation not in NOT_COMPARED]
    said = [finding for finding in said if finding.observation not in NOT_COMPARED]
    there, named = [f for f in meant if f.present], [f for f in said if f.present]
    matches = _matched(there, named, context)
    left = [f for f in there if not any(f is match.reference for match in matches)]
    over = [f for f in named if not any(f is match.candidate for match in matches)]
    echoes = [*_echoes(left, named, context), *_echoes(over, there, context)]
    known = {id(echo.finding) for echo in echoes}
    return Comparison(
        matches=tuple(matches),
        echoes=tuple(echoes),
        missing=tuple(_lone(f, said, named, context) for f in left if id(f) not in known),
        # The question asked makes an answer weigh more, not an invention.
        invented=tuple(_lone(f, meant, there, Context(context.age)) for f in over if id(f) not in known),
        unspoken=tuple(_resolutions(meant, said, context)),
    )


def _matched(there: Sequence[Finding], named: Sequence[Finding], context: Context) -> list[Match]:
    """One to one, the best counterparts first: the same observation before a related one, on the same side at least."""
    ranked = sorted(
        (
            (-_closeness(meant, said, credit), row, column, credit)
            for row, meant in enumerate(there)
            for column, said in enumerate(named)
            if (credit := _credit(meant, said, context)) >= SAME_THING
        ),
    )
    rows, columns, matches = set(), set(), []
    for _, row, column, credit in ranked:
        if row not in rows and column not in columns:
            rows.add(row)
            columns.add(column)
            meant, said = there[row], named[column]
            urgency = urgency_of(meant, context.age, context.indication)
            off = tuple(slips(meant, said, urgency))
            called = urgency_of(said, context.age)
            matches.append((row, Match(meant, said, credit, urgency, called, off, omitted_attributes(meant, said))))
    return [match for _, match in sorted(matches, key=lambda item: item[0])]


def _credit(meant: Finding, said: Finding, context: Context) -> float:
    """Relatedness; 0 for another observation on the other side or elsewhere, which is another thing."""
    credit = relatedness(meant.observation, said.observation, context.indication)
    if meant.observation != said.observation and not _overlap(meant, said):
        return 0.0
    return credit


def _overlap(one: Finding, other: Finding) -> bool:
    opposite = None not in (one.side, other.side) and one.side is not other.side
    bilateral = Side.BILATERAL in (one.side, other.side)
    return (not opposite or bilateral) and same_place(one.location, other.location)


def _closeness(meant: Finding, said: Finding, credit: float) -> float:
    """Which counterpart to take first: the name, then side, place, degree, in this order of weight."""
    value = 10.0 * credit
    value -= 4.0 * wrong_side(meant, said) + 2.0 * (not same_place(meant.location, said.location))
    value += 0.5 * (meant.location == said.location)
    if meant.severity and said.severity:
        value -= 0.3 * abs(meant.severity.rank - said.severity.rank)
    if meant.size_mm and said.size_mm:
        value -= abs(meant.size_mm - said.size_mm) / max(meant.size_mm, said.size_mm)
    return value


def _echoes(findings: Sequence[Finding], others: Sequence[Finding], context: Context) -> list[UnmatchedFinding]:
    """Findings that restate something which the other report says: in a related word, or one side of both."""
    found = []
    for finding in findings:
        near = max((_echoed(finding, other, context) for other in others), default=0.0)
        if near >= SAME_THING:
            found.append(UnmatchedFinding(finding, urgency_of(finding, context.age, context.indication), nearest=near))
    return found


def _echoed(finding: Finding, other: Finding, context: Context) -> float:
    """How far it is another word for the same thing (1 where the other says it as well), or one side of both."""
    if finding.observation == other.observation:
        return float(Side.BILATERAL in (finding.side, other.side) and _overlap(finding, other))
    if not restates(finding.observation, other.observation):
        return 0.0
    credit = _credit(finding, other, context)
    return 1.0 if credit >= SAME_THING and implies(other.observation, finding.observation) else credit


def _lone(finding: Finding, other: Sequence[Finding], present: Sequence[Finding], context: Context) -> UnmatchedFinding:
    denial = next((f for f in other if not f.present and f.observation == finding.observation), None)
    nearest = max((_credit(finding, f, context) for f in present), default=0.0)
    # Two of a kind where the other report has one: the second is not half there.
    nearest = nearest if nearest < SAME_THING else 0.0
    return UnmatchedFinding(finding, urgency_of(finding, context.age, context.indication), denial, nearest)


def _resolutions(meant: Sequence[Finding], said: Sequence[Finding], context: Context) -> Iterator[ReportError]:
    """A resolution that only one of the two reports tells of; what is still there counts as a finding instead."""
    gone = {f.observation: f for f in meant if not f.present and f.change is Change.RESOLVED}
    told = {f.observation: f for f in said if not f.present and f.change is Change.RESOLVED}
    still = {f.observation for f in (*meant, *said) if f.present}
    for name, finding in gone.items():
        if name not in told and name not in still:
            matters = urgency_of(finding, context.age, context.indication).matters
            detail = "none instead of resolved"
            yield ReportError(ErrorKind.OMITTED_COMPARISON, matters, name, finding.span, None, detail)
    for name, finding in told.items():
        if name not in gone and name not in still:
            matters = urgency_of(finding, context.age, context.indication).matters
            detail = "resolved instead of none"
            yield ReportError(ErrorKind.FALSE_COMPARISON, matters, name, None, finding.span, detail)


# A size may differ by this share, or by this many millimetres, before it is another size: two readers of one film do.
SIZE_SHARE, SIZE_MM = 0.25, 2.0
# From this ratio on, another size is another patient.
SIZE_SIGNIFICANT = 1.5
# Tips of a tube move with the neck by about this much between two films.
TIP_MM = 20.0
# Above the carina, outside these heights a tube is drawn back or pushed on.
SAFE_TIP_MM = (20.0, 70.0)
# Against "unchanged", leaving out or making up the comparison changes little.
STEADY = (Change.UNCHANGED, None)
WORSE = (Change.NEW, Change.INCREASED)
BETTER = (Change.DECREASED, Change.RESOLVED)


def slips(reference: Finding, candidate: Finding, urgency: Urgency) -> Iterator[ReportError]:
    """The errors of a candidate's finding about the reference's finding that it stands for.

    Args:
        reference: What is right.
        candidate: What was said; the same observation or a related one.
        urgency: How much the reference's finding matters.
    """
    yield from _place(reference, candidate, urgency)
    yield from _degree(reference, candidate, urgency)
    yield from _comparison(reference, candidate, urgency)


def _error(
    kind: ErrorKind, significant: bool, reference: Finding, candidate: Finding, said: object, meant: object
) -> ReportError:
    detail = f"{said} instead of {meant}"
    return ReportError(kind, significant, reference.observation, reference.span, candidate.span, detail)


def wrong_side(reference: Finding, candidate: Finding) -> bool:
    """Whether both state a side and the sides differ; one of two sides counts as different."""
    sided = observation(reference.observation).sided
    return sided and None not in (reference.side, candidate.side) and reference.side is not candidate.side


def _place(reference: Finding, candidate: Finding, urgency: Urgency) -> Iterator[ReportError]:
    """One error at most: the side, else the place, else the tip."""
    kind = ErrorKind.WRONG_LOCATION
    if wrong_side(reference, candidate):
        # One side of two is half right; the other side is wrong.
        opposite = Side.BILATERAL not in (reference.side, candidate.side)
        yield _error(kind, opposite or urgency.matters, reference, candidate, candidate.side, reference.side)
    elif not same_place(reference.location, candidate.location):
        yield _error(kind, False, reference, candidate, candidate.location, reference.location)
    elif (other := _tips(reference, candidate)) is not None:
        yield _error(kind, other, reference, candidate, candidate.tip or "no place", reference.tip or "no place")
    elif reference.tip_mm is not None and candidate.tip_mm is not None:
        said, meant = candidate.tip_mm, reference.tip_mm
        if abs(meant - said) > TIP_MM:
            astray = {not SAFE_TIP_MM[0] <= height <= SAFE_TIP_MM[1] for height in (said, meant)}
            yield _error(kind, True in astray, reference, candidate, f"{said:g} mm", f"{meant:g} mm")


def _tips(reference: Finding, candidate: Finding) -> bool | None:
    """None where the tips agree, else whether the error is significant.

    A device of which no more is said is taken to lie where it should, so that a misplaced tip cannot
    be passed over in silence.
    """
    tips = {reference.tip, candidate.tip}
    if len(tips) == 1 or tips == AGREEING_TIPS:
        return None
    if any((finding.observation, finding.tip) in MISPLACED for finding in (reference, candidate)):
        return True
    return None if None in tips else False


def _degree(reference: Finding, candidate: Finding, urgency: Urgency) -> Iterator[ReportError]:
    """One error at most: the size where both give one, else the degree."""
    kind = ErrorKind.WRONG_SEVERITY
    graver = urgency is not Urgency.BENIGN
    if reference.size_mm and candidate.size_mm:
        small, large = sorted((reference.size_mm, candidate.size_mm))
        if large - small > max(SIZE_MM, SIZE_SHARE * reference.size_mm):
            said, meant = f"{candidate.size_mm:g} mm", f"{reference.size_mm:g} mm"
            yield _error(kind, graver and large >= SIZE_SIGNIFICANT * small, reference, candidate, said, meant)
    elif reference.severity and candidate.severity and observation(reference.observation).graded:
        steps = abs(_step(reference.severity) - _step(candidate.severity))
        if steps:
            yield _error(kind, graver and steps >= 2, reference, candidate, candidate.severity, reference.severity)


def _step(severity: Severity) -> int:
    """Rank with trace and mild as one: "tiny" and "small" are said of the same image."""
    return max(severity.rank, Severity.MILD.rank)


def omitted_attributes(reference: Finding, candidate: Finding) -> int:
    """How many of side, place, degree and size the reference gives and the candidate leaves out; not an error."""
    row = observation(reference.observation)
    given = (
        (row.sided, reference.side, candidate.side),
        (bool(row.locations), reference.location, candidate.location),
        (row.graded, reference.severity, candidate.severity),
        (row.measured, reference.size_mm, candidate.size_mm),
    )
    return sum(asked and meant is not None and said is None for asked, meant, said in given)


def _comparison(reference: Finding, candidate: Finding, urgency: Urgency) -> Iterator[ReportError]:
    meant, said = reference.change, candidate.change
    if meant is said:
        return
    kind = ErrorKind.OMITTED_COMPARISON if said is None else ErrorKind.FALSE_COMPARISON
    steady = meant in STEADY and said in STEADY
    alike = (meant in WORSE and said in WORSE) or (meant in BETTER and said in BETTER)
    if not alike:
        yield _error(kind, not steady and urgency.matters, reference, candidate, said or "none", meant or "none")
