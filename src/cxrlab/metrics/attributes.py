"""What can be wrong about a finding that both reports name: its place, degree, size, tip or change.

Only what both reports state can disagree. A side, place or degree that one of them leaves out is
less precise, not wrong. Two things are different: a comparison that is left out, or made up, is an
error of its own kind; and the tip of a device that only one report calls misplaced is misplaced or not.
"""

from __future__ import annotations

from collections.abc import Iterator

from cxrlab.core.records import Finding, ReportError
from cxrlab.core.vocabulary import Change, ErrorKind, Severity, Side, observation
from cxrlab.findings.merge import same_place
from cxrlab.findings.planted_errors import AGREEING_TIPS
from cxrlab.findings.significance import MISPLACED, Urgency

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


def vagueness(reference: Finding, candidate: Finding) -> int:
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
