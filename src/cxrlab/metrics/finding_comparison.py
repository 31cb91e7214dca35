"""Compare two reports finding by finding: matches, omissions, false findings and wrong attributes.

Behind the twelve error counts, `green:rules`, `crimson:rules` and `clinical:rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from cxrlab.core.records import Finding, ReportError
from cxrlab.core.vocabulary import Change, ErrorKind, Severity, Side, observation
from cxrlab.findings.merge_statements import same_place
from cxrlab.findings.planted_errors import AGREEING_TIPS
from cxrlab.findings.relatedness import implies, relatedness, restates
from cxrlab.findings.significance import MISPLACED, Urgency, urgency_of
from cxrlab.metrics.report_pairs import Context

if TYPE_CHECKING:
    from cxrlab.metrics.report_pairs import Batch

# On the skin and not in the patient: naming them or not makes no report better or worse.
NOT_COMPARED = frozenset({"monitoring leads"})
# From this relatedness on, another name is a less exact word for the same finding.
SAME_THING = 0.5


@dataclass(frozen=True)
class Match:
    """A reference finding and its counterpart in the candidate."""

    reference: Finding
    candidate: Finding
    credit: float  # their relatedness, in (0, 1]
    urgency: Urgency  # of the reference finding
    candidate_urgency: Urgency  # of the candidate's name for it
    mismatches: tuple[ReportError, ...] = ()  # errors in the attributes
    omitted_attributes: int = 0  # how many attributes the reference gives and the candidate omits


@dataclass(frozen=True)
class UnmatchedFinding:
    """A finding of one report without a counterpart in the other."""

    finding: Finding
    urgency: Urgency
    # The finding of the other report that denies it; None where the other does not mention it.
    contradicted: Finding | None = None
    # Highest relatedness to a finding of the other report: below 0.5 a related finding; from 0.5 on (repetitions only)
    # the finding that it restates.
    nearest: float = 0.0


@dataclass(frozen=True)
class Comparison:
    """A candidate against its reference."""

    matches: tuple[Match, ...] = ()  # each reference finding that the candidate names, with its counterpart
    # Further findings of either report that restate one of the other in another word ("opacity … may be atelectasis or
    # pneumonia"): neither omitted nor false.
    repetitions: tuple[UnmatchedFinding, ...] = ()
    missing: tuple[UnmatchedFinding, ...] = ()  # reference findings without a counterpart
    invented: tuple[UnmatchedFinding, ...] = ()  # candidate findings without a counterpart
    # Wrong comparisons with the prior without a present finding ("has resolved").
    wrong_resolutions: tuple[ReportError, ...] = ()
    # True when the candidate states neither a finding nor that anything is normal, although the reference does: it
    # makes no error, but is no report.
    states_nothing: bool = False

    @cached_property
    def errors(self) -> tuple[ReportError, ...]:
        """Every error, each of one kind, with its place in both texts."""
        errors = []
        for unmatched in self.invented:
            finding, denied = unmatched.finding, unmatched.contradicted
            detail = "denied by the reference" if denied else "not in the reference"
            spans = denied.span if denied else None, finding.span
            matters = unmatched.urgency.matters
            errors.append(ReportError(ErrorKind.FALSE_FINDING, matters, finding.observation, *spans, detail))
        for unmatched in self.missing:
            finding, denied = unmatched.finding, unmatched.contradicted
            detail = "denied by the candidate" if denied else "not in the candidate"
            spans = finding.span, denied.span if denied else None
            matters = unmatched.urgency.matters
            errors.append(ReportError(ErrorKind.OMITTED_FINDING, matters, finding.observation, *spans, detail))
        mismatches = (mismatch for match in self.matches for mismatch in match.mismatches)
        return (*errors, *mismatches, *self.wrong_resolutions)


def compare_pair(batch: Batch, index: int) -> Comparison | None:
    """The comparison of one pair of a batch; None where there is nothing to compare with."""
    pair = batch.pairs[index]
    if not pair.answerable:
        return None
    compared = compare_merged_findings(*batch.merged_findings[index], pair.context)
    stated = pair.findings is not None or batch.read(batch.references[index]).has_statements
    return replace(compared, states_nothing=stated and not batch.read(batch.candidates[index]).has_statements)


def compare_merged_findings(reference: Sequence[Finding], candidate: Sequence[Finding], context: Context) -> Comparison:
    """Compare the findings of two reports after repeats were merged (`findings.merge_statements.side_by_side`)."""
    reference = [finding for finding in reference if finding.observation not in NOT_COMPARED]
    candidate = [finding for finding in candidate if finding.observation not in NOT_COMPARED]
    true, claimed = [f for f in reference if f.present], [f for f in candidate if f.present]
    matches = _match(true, claimed, context)
    omitted = [f for f in true if not any(f is match.reference for match in matches)]
    extra = [f for f in claimed if not any(f is match.candidate for match in matches)]
    repetitions = [*_find_repetitions(omitted, claimed, context), *_find_repetitions(extra, true, context)]
    repeated = {id(repetition.finding) for repetition in repetitions}
    missing = (_unmatched(f, candidate, claimed, context) for f in omitted if id(f) not in repeated)
    # The indication makes an omission weigh more, but not a false finding.
    invented = (_unmatched(f, reference, true, Context(context.age)) for f in extra if id(f) not in repeated)
    return Comparison(
        matches=tuple(matches),
        repetitions=tuple(repetitions),
        missing=tuple(missing),
        invented=tuple(invented),
        wrong_resolutions=tuple(_wrong_resolutions(reference, candidate, context)),
    )


# What makes a candidate's finding the best counterpart of a reference finding: its name, then the attributes.
NAME_WEIGHT, WRONG_SIDE_WEIGHT, WRONG_LOCATION_WEIGHT, EQUAL_LOCATION_WEIGHT, SEVERITY_WEIGHT = 10.0, 4.0, 2.0, 0.5, 0.3


def _match(references: Sequence[Finding], candidates: Sequence[Finding], context: Context) -> list[Match]:
    """One to one, the best counterparts first."""
    ranked = []
    for row, reference in enumerate(references):
        for column, candidate in enumerate(candidates):
            if (credit := _credit(reference, candidate, context)) < SAME_THING:
                continue
            value = NAME_WEIGHT * credit
            same_location = same_place(reference.location, candidate.location)
            value -= WRONG_SIDE_WEIGHT * wrong_side(reference, candidate) + WRONG_LOCATION_WEIGHT * (not same_location)
            value += EQUAL_LOCATION_WEIGHT * (reference.location == candidate.location)
            if reference.severity and candidate.severity:
                value -= SEVERITY_WEIGHT * abs(reference.severity.rank - candidate.severity.rank)
            if reference.size_mm and candidate.size_mm:
                larger = max(reference.size_mm, candidate.size_mm)
                value -= abs(reference.size_mm - candidate.size_mm) / larger
            ranked.append((-value, row, column, credit))
    rows, columns, matches = set(), set(), []
    for _, row, column, credit in sorted(ranked):
        if row not in rows and column not in columns:
            rows.add(row)
            columns.add(column)
            reference, candidate = references[row], candidates[column]
            urgency = urgency_of(reference, context.age, context.indication)
            candidate_urgency = urgency_of(candidate, context.age)
            mismatches = tuple(find_mismatches(reference, candidate, urgency))
            omitted = count_omitted_attributes(reference, candidate)
            match = Match(reference, candidate, credit, urgency, candidate_urgency, mismatches, omitted)
            matches.append((row, match))
    return [found for _, found in sorted(matches, key=lambda item: item[0])]


def _credit(reference: Finding, candidate: Finding, context: Context) -> float:
    """Relatedness; 0 for another observation on the other side or at another location."""
    credit = relatedness(reference.observation, candidate.observation, context.indication)
    if reference.observation != candidate.observation and not _overlap(reference, candidate):
        return 0.0
    return credit


def _overlap(one: Finding, other: Finding) -> bool:
    opposite = None not in (one.side, other.side) and one.side is not other.side
    bilateral = Side.BILATERAL in (one.side, other.side)
    return (not opposite or bilateral) and same_place(one.location, other.location)


def _find_repetitions(
    findings: Sequence[Finding], others: Sequence[Finding], context: Context
) -> list[UnmatchedFinding]:
    """Findings that restate one of the other report: in a related word (1 where it is implied), or one side of both."""
    repetitions = []
    for finding in findings:
        nearest = 0.0
        for other in others:
            if finding.observation == other.observation:
                near = float(Side.BILATERAL in (finding.side, other.side) and _overlap(finding, other))
            elif restates(finding.observation, other.observation):
                near = _credit(finding, other, context)
                near = 1.0 if near >= SAME_THING and implies(other.observation, finding.observation) else near
            else:
                continue
            nearest = max(nearest, near)
        if nearest >= SAME_THING:
            urgency = urgency_of(finding, context.age, context.indication)
            repetitions.append(UnmatchedFinding(finding, urgency, nearest=nearest))
    return repetitions


def _unmatched(
    finding: Finding, other: Sequence[Finding], present: Sequence[Finding], context: Context
) -> UnmatchedFinding:
    denial = next((f for f in other if not f.present and f.observation == finding.observation), None)
    nearest = max((_credit(finding, f, context) for f in present), default=0.0)
    # Two of a kind where the other report has one: no partial credit for the second.
    nearest = nearest if nearest < SAME_THING else 0.0
    return UnmatchedFinding(finding, urgency_of(finding, context.age, context.indication), denial, nearest)


def _wrong_resolutions(
    reference: Sequence[Finding], candidate: Sequence[Finding], context: Context
) -> Iterator[ReportError]:
    """Resolutions that only one of the reports states; a finding that is still present is compared as such instead."""
    right = {f.observation: f for f in reference if not f.present and f.change is Change.RESOLVED}
    claimed = {f.observation: f for f in candidate if not f.present and f.change is Change.RESOLVED}
    still = {f.observation for f in (*reference, *candidate) if f.present}
    for name, finding in right.items():
        if name not in claimed and name not in still:
            matters = urgency_of(finding, context.age, context.indication).matters
            detail = "none instead of resolved"
            yield ReportError(ErrorKind.OMITTED_COMPARISON, matters, name, finding.span, None, detail)
    for name, finding in claimed.items():
        if name not in right and name not in still:
            matters = urgency_of(finding, context.age, context.indication).matters
            detail = "resolved instead of none"
            yield ReportError(ErrorKind.FALSE_COMPARISON, matters, name, None, finding.span, detail)


# Sizes that differ by no more than this share, or this many millimetres, agree, as two readers of one image do.
SIZE_SHARE, SIZE_MM = 0.25, 2.0
# From this ratio on, a wrong size is significant.
SIZE_SIGNIFICANT = 1.5
# The tip of a tube moves with the neck by about this much between two images.
TIP_MM = 20.0
# A tube whose tip is outside these heights above the carina is repositioned.
SAFE_TIP_MM = (20.0, 70.0)
# An omitted or false comparison with "unchanged" is not significant.
STEADY = (Change.UNCHANGED, None)
WORSE = (Change.NEW, Change.INCREASED)
BETTER = (Change.DECREASED, Change.RESOLVED)


def find_mismatches(reference: Finding, candidate: Finding, urgency: Urgency) -> Iterator[ReportError]:
    """The errors in the attributes of a candidate's finding, given the urgency of its counterpart in the reference."""
    yield from _location_error(reference, candidate, urgency)
    yield from _severity_error(reference, candidate, urgency)
    true, stated = reference.change, candidate.change
    if true is stated or (true in WORSE and stated in WORSE) or (true in BETTER and stated in BETTER):
        return
    kind = ErrorKind.OMITTED_COMPARISON if stated is None else ErrorKind.FALSE_COMPARISON
    steady = true in STEADY and stated in STEADY
    yield _error(kind, not steady and urgency.matters, reference, candidate, stated or "none", true or "none")


def _error(
    kind: ErrorKind, significant: bool, reference: Finding, candidate: Finding, stated: object, true: object
) -> ReportError:
    detail = f"{stated} instead of {true}"
    return ReportError(kind, significant, reference.observation, reference.span, candidate.span, detail)


def wrong_side(reference: Finding, candidate: Finding) -> bool:
    """Whether both state a side and the sides differ; one of two sides counts as different."""
    sided = observation(reference.observation).sided
    return sided and None not in (reference.side, candidate.side) and reference.side is not candidate.side


def _location_error(reference: Finding, candidate: Finding, urgency: Urgency) -> Iterator[ReportError]:
    """At most one error: the side, else the location, else the tip."""
    kind = ErrorKind.WRONG_LOCATION
    if wrong_side(reference, candidate):
        # One of two sides is half right.
        opposite = Side.BILATERAL not in (reference.side, candidate.side)
        yield _error(kind, opposite or urgency.matters, reference, candidate, candidate.side, reference.side)
    elif not same_place(reference.location, candidate.location):
        yield _error(kind, False, reference, candidate, candidate.location, reference.location)
    elif (significant := _compare_tips(reference, candidate)) is not None:
        stated, true = candidate.tip or "no place", reference.tip or "no place"
        yield _error(kind, significant, reference, candidate, stated, true)
    elif reference.tip_mm is not None and candidate.tip_mm is not None:
        heights = candidate.tip_mm, reference.tip_mm
        if abs(heights[1] - heights[0]) > TIP_MM:
            unsafe = any(not SAFE_TIP_MM[0] <= height <= SAFE_TIP_MM[1] for height in heights)
            yield _error(kind, unsafe, reference, candidate, f"{heights[0]:g} mm", f"{heights[1]:g} mm")


def _compare_tips(reference: Finding, candidate: Finding) -> bool | None:
    """None where the tips agree, else whether the error is significant.

    A device without a stated tip counts as well placed, so that omitting a misplaced tip is an error.
    """
    tips = {reference.tip, candidate.tip}
    if len(tips) == 1 or tips == AGREEING_TIPS:
        return None
    if any((finding.observation, finding.tip) in MISPLACED for finding in (reference, candidate)):
        return True
    return None if None in tips else False


def _severity_error(reference: Finding, candidate: Finding, urgency: Urgency) -> Iterator[ReportError]:
    """At most one error: the size where both give one, else the severity."""
    kind = ErrorKind.WRONG_SEVERITY
    above_benign = urgency is not Urgency.BENIGN
    if reference.size_mm and candidate.size_mm:
        small, large = sorted((reference.size_mm, candidate.size_mm))
        if large - small > max(SIZE_MM, SIZE_SHARE * reference.size_mm):
            significant = above_benign and large >= SIZE_SIGNIFICANT * small
            sizes = f"{candidate.size_mm:g} mm", f"{reference.size_mm:g} mm"
            yield _error(kind, significant, reference, candidate, *sizes)
    elif reference.severity and candidate.severity and observation(reference.observation).graded:
        # Trace and mild are one step: "tiny" and "small" are used for the same image.
        mild = Severity.MILD.rank
        if steps := abs(max(reference.severity.rank, mild) - max(candidate.severity.rank, mild)):
            yield _error(
                kind, above_benign and steps >= 2, reference, candidate, candidate.severity, reference.severity
            )


def count_omitted_attributes(reference: Finding, candidate: Finding) -> int:
    """How many of side, location, severity and size the reference gives and the candidate omits; not an error."""
    row = observation(reference.observation)
    given = (
        (row.sided, reference.side, candidate.side),
        (bool(row.locations), reference.location, candidate.location),
        (row.graded, reference.severity, candidate.severity),
        (row.measured, reference.size_mm, candidate.size_mm),
    )
    return sum(expected and true is not None and stated is None for expected, true, stated in given)
