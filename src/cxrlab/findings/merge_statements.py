"""Merges repeated statements of a report into one finding, and left and right into a bilateral one.

A reading is a list of statements. Before two reports can be compared, repeated statements about the
same thing are merged, so that a finding stated in the findings and again in the impression counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Side

# Places that different reporters use for the same part of the lung; a place is near itself.
NEIGHBOURHOODS: tuple[frozenset[str], ...] = (
    frozenset({"lower zone", "lower lobe", "base", "retrocardiac", "costophrenic angle"}),
    frozenset({"mid zone", "middle lobe", "lingula", "perihilar"}),
    frozenset({"upper zone", "upper lobe", "apex"}),
    frozenset({"lower zone", "base", "middle lobe", "lingula"}),
    frozenset({"mid zone", "perihilar", "fissure"}),
    frozenset({"upper lobe", "mid zone"}),
    frozenset({"lower lobe", "mid zone"}),
)
# Words for a place that hold anywhere along the chest wall, so that they contradict no zone.
ANYWHERE = frozenset({"peripheral", "chest wall", "fissure"})


def same_place(one: str | None, other: str | None) -> bool:
    """Whether two places may be the same: equal, near, or one of them not given."""
    if one is None or other is None or one == other or one in ANYWHERE or other in ANYWHERE:
        return True
    return any(one in near and other in near for near in NEIGHBOURHOODS)


def same_side(one: Side | None, other: Side | None) -> bool:
    """Whether two sides may be the same: equal, or one of them not given or both-sided."""
    return one is None or other is None or one is other or Side.BILATERAL in (one, other)


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """One finding for each thing that is stated as present or absent, in the order of first mention.

    Statements about one observation are the same thing when their sides and places may be the same;
    one side and both sides only where they do not differ in degree or change ("the right one is larger").
    The merged one keeps the first side, place, degree, size, change and tip that were given, is
    certain if any of them is, and has the span of the first. An absence is dropped where the same
    thing is also stated as present: "no large effusion … small effusion".
    """
    things: list[Finding] = []
    for finding in findings:
        for index, thing in enumerate(things):
            if _same(thing, finding):
                things[index] = _united(thing, finding)
                break
        else:
            things.append(finding)
    present = [thing for thing in things if thing.present]
    return tuple(
        thing
        for thing in things
        if thing.present
        or not any(one.observation == thing.observation and same_side(one.side, thing.side) for one in present)
    )


def _same(one: Finding, other: Finding) -> bool:
    if one.observation != other.observation or one.presence is not other.presence:
        return False  # most pairs end here
    graded = ((one.severity, other.severity), (one.change, other.change))
    agree = all(None in pair or pair[0] is pair[1] for pair in graded)
    return (
        same_side(one.side, other.side)
        and same_place(one.location, other.location)
        and (one.side is other.side or Side.BILATERAL not in (one.side, other.side) or agree)
    )


def _united(one: Finding, other: Finding) -> Finding:
    """The first statement, completed by the second."""
    side = Side.BILATERAL if Side.BILATERAL in (one.side, other.side) else one.side or other.side
    certain = Certainty.CERTAIN in (one.certainty, other.certainty)
    return replace(
        one,
        certainty=Certainty.CERTAIN if certain else Certainty.POSSIBLE,
        side=side,
        location=one.location or other.location,
        severity=one.severity or other.severity,
        size_mm=one.size_mm if one.size_mm is not None else other.size_mm,
        change=one.change or other.change,
        tip=one.tip or other.tip,
        tip_mm=one.tip_mm if one.tip_mm is not None else other.tip_mm,
    )


def paired(findings: Sequence[Finding], beside: Sequence[Finding]) -> tuple[Finding, ...]:
    """Left and right of the same thing as one bilateral finding where the other report (`beside`) states it so.

    The bilateral one takes the place of the left or right one that came first, with the higher degree of the two.
    """
    both = {thing.observation for thing in beside if thing.present and thing.side is Side.BILATERAL}
    kept: list[Finding] = []
    for finding in findings:
        for k, thing in enumerate(kept if finding.observation in both and finding.present else ()):
            mirrored = thing.present and {thing.side, finding.side} == {Side.LEFT, Side.RIGHT}
            same = thing.observation == finding.observation and same_place(thing.location, finding.location)
            if mirrored and same:
                degrees = [one.severity for one in (thing, finding) if one.severity]
                worst = max(degrees, key=lambda degree: degree.rank, default=None)
                kept[k] = replace(_united(thing, finding), side=Side.BILATERAL, severity=worst)
                break
        else:
            kept.append(finding)
    return tuple(kept)


def side_by_side(one: Sequence[Finding], other: Sequence[Finding]) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Two lists of statements as two lists of things that can be compared."""
    left, right = merged(one), merged(other)
    return paired(left, right), paired(right, left)
