"""Two reports, finding by finding: what was matched, what is missing, what was made up, what is off.

The one comparison behind the twelve error counts, `green:rules`, `crimson:rules` and `clinical:rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from cxrlab.core.records import Finding, ReportError
from cxrlab.core.vocabulary import Change, ErrorKind, Side
from cxrlab.findings.merge import same_place, side_by_side
from cxrlab.findings.relatedness import relatedness
from cxrlab.findings.significance import Urgency, urgency_of
from cxrlab.metrics.attributes import slips, vagueness, wrong_side
from cxrlab.metrics.pairs import Context, Status

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
        slips: What is wrong about the attributes.
        vague: How many attributes the reference gives and the candidate leaves out.
    """

    reference: Finding
    candidate: Finding
    credit: float
    urgency: Urgency
    slips: tuple[ReportError, ...] = ()
    vague: int = 0


@dataclass(frozen=True)
class Lone:
    """A finding of one report without a counterpart in the other.

    Args:
        finding: The finding.
        urgency: How much it matters.
        contradicted: The finding of the other report that denies it; None where the other is silent.
        nearest: Highest relatedness to a finding of the other report, in [0, 0.5): a neighbour, but not the same thing.
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
        echoes: Further findings of either report that restate a matched thing in other words
            ("opacity … may be atelectasis or pneumonia"): neither missing nor made up.
        missing: Reference findings without a counterpart.
        invented: Candidate findings without a counterpart.
        unspoken: Comparisons with the prior on which no present finding stands ("has resolved") and that are wrong.
        silent: True when the candidate says nothing of the film, neither a finding nor that something is
            normal, although the reference does: it makes no error, and is no report either.
    """

    matches: tuple[Match, ...] = ()
    echoes: tuple[Match, ...] = ()
    missing: tuple[Lone, ...] = ()
    invented: tuple[Lone, ...] = ()
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
    """The comparison of one pair of a batch; None where the reference has no word to compare with."""
    if batch.statuses[index] in (Status.NO_REFERENCE, Status.EMPTY_REFERENCE):
        return None
    compared = compare_things(*batch.things[index], batch.pairs[index].context)
    if batch.read(batch.candidates[index]).speaks or not batch.read(batch.references[index]).speaks:
        return compared
    return replace(compared, silent=True)


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
    echoes = [*_echoes(left, named, context), *_mirrored(_echoes(over, there, context))]
    known = {id(f) for match in echoes for f in (match.reference, match.candidate)}
    return Comparison(
        matches=tuple(matches),
        echoes=tuple(echoes),
        missing=tuple(_lone(f, said, named, context) for f in left if id(f) not in known),
        # The question asked makes an answer weigh more, not an invention.
        invented=tuple(_lone(f, meant, there, Context(context.age)) for f in over if id(f) not in known),
        unspoken=tuple(_resolutions(meant, said, context)),
    )


def _matched(there: Sequence[Finding], named: Sequence[Finding], context: Context) -> list[Match]:
    """One to one, the best counterparts first; the same observation always goes before a related one."""
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
            matches.append((row, Match(meant, said, credit, urgency, off, vagueness(meant, said))))
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


def _echoes(findings: Sequence[Finding], others: Sequence[Finding], context: Context) -> list[Match]:
    """Findings that restate something which the other report says: in a related word, or one side of both."""
    found = []
    for finding in findings:
        near = [(credit, other) for other in others if (credit := _credit(finding, other, context)) >= SAME_THING]
        near = [(credit, other) for credit, other in near if _restates(finding, other)]
        if near:
            credit, other = max(near, key=lambda item: item[0])
            found.append(Match(finding, other, credit, urgency_of(finding, context.age, context.indication)))
    return found


def _restates(finding: Finding, other: Finding) -> bool:
    """Whether it may be another word for the same thing, or one side of what the other report says of both."""
    if finding.observation != other.observation:
        return True
    return Side.BILATERAL in (finding.side, other.side) and _overlap(finding, other)


def _mirrored(echoes: Sequence[Match]) -> list[Match]:
    """Echoes found from the candidate's side, with reference and candidate in their places."""
    return [replace(echo, reference=echo.candidate, candidate=echo.reference) for echo in echoes]


def _lone(finding: Finding, other: Sequence[Finding], present: Sequence[Finding], context: Context) -> Lone:
    denial = next((f for f in other if not f.present and f.observation == finding.observation), None)
    nearest = max((_credit(finding, f, context) for f in present), default=0.0)
    # Two of a kind where the other report has one: the second is not half there.
    nearest = nearest if nearest < SAME_THING else 0.0
    return Lone(finding, urgency_of(finding, context.age, context.indication), denial, nearest)


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
