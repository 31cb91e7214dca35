"""Side, place, degree, size and change of each statement."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cxrlab.core.vocabulary import OBSERVATIONS, Change, Group, Severity
from cxrlab.findings.reading.changes import early_change, late_change, of_change, size_of
from cxrlab.findings.reading.claims import Claim
from cxrlab.findings.reading.degrees import PREVIOUS
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.places import MODIFIERS, Where, completed, groups_of, merged
from cxrlab.findings.reading.rows import Kind


class Traits:
    """The attributes of one statement; `groups` has one entry for each finding that it makes."""

    __slots__ = ("change", "degree", "first", "groups", "last", "late", "previous", "size")

    def __init__(self) -> None:
        self.groups: list[Where] = []
        self.degree: Severity | None = None
        self.change: Change | None = None
        self.size: float | None = None
        self.previous = False  # said to have been seen before
        self.late = False  # the change stands after a verb
        self.first = self.last = 0


def traits(items: Sequence[Item], claim: Claim, left: dict[int, list[int]], right: dict[int, list[int]]) -> Traits:
    """What the modifiers of a statement say."""
    own = Traits()
    before, after = list(left.get(claim.at, ())), list(right.get(claim.at, ()))
    if claim.part >= 0:
        before = sorted({*left.get(claim.part, ()), *before}) if claim.part < claim.at else before
        after = sorted(
            {*after, *right.get(claim.part, ()), *(left.get(claim.part, ()) if claim.part > claim.at else ())}
        )
    unfit = _unfit(claim)
    before, after = (
        [
            at
            for at in side
            if (kind := items[at].kind) not in unfit and not (kind is Kind.DEGREE and of_change(items, at))
        ]
        for side in (before, after)
    )
    one, two = groups_of(items, before), groups_of(items, after)
    where_one, where_two = [g for g in one if g.somewhere], [g for g in two if g.somewhere]
    degrees = [g.degree for g in (*reversed(one), *two) if g.degree is not None]
    own.groups = merged(_combined(completed(where_one), completed(where_two)))
    own.degree = degrees[0] if degrees else None
    late_degree = _late_degree(items, after) if len(degrees) > 1 and not where_two else None
    order = (*reversed(before), *after)
    modifiers = [items[index] for index in order]
    own.previous = any(item.row is PREVIOUS[0] or item.row is PREVIOUS[1] for item in modifiers)
    late = late_change(items, claim, after)
    # What the verb says is the news: "the previously seen effusion has decreased", "smaller nodules are unchanged".
    own.late, own.change = late is not None, late or early_change(items, order)
    if late_degree is not None and own.degree is not None:
        if own.change is None and late_degree is not own.degree:
            own.change = Change.DECREASED if late_degree.rank < own.degree.rank else Change.INCREASED
        own.degree = late_degree
        for group in own.groups:
            group.degree = None
    own.size = size_of(items, claim, order)
    used = [items[index] for index in order if items[index].kind in MODIFIERS and not _far(items, index, claim)]
    anchors = [items[index] for index in (claim.at, claim.part) if index >= 0]
    own.first = min(item.first for item in (*anchors, *used))
    own.last = max(item.last for item in (*anchors, *used))
    return own


def _far(items: Sequence[Item], index: int, claim: Claim) -> bool:
    """Whether a change opens the sentence and the name comes later: "Again, as on the last film, there is …"."""
    opens = items[index].kind is Kind.CHANGE and index < claim.start
    return opens and any(item.kind in (Kind.THERE, Kind.COMMA) for item in items[index + 1 : claim.start])


def _late_degree(items: Sequence[Item], after: Sequence[int]) -> Severity | None:
    """The degree of this film where two are named: "the large effusion is now small", "moderate edema, now mild"."""
    for before, index in pairwise(after):
        item, following = items[index], items[index + 1] if index + 1 < len(items) else None
        news = items[before].kind in (Kind.VERB, Kind.COMMA) and before == index - 1
        if item.kind is Kind.DEGREE and news and not item.row.adverb:
            if following is None or following.kind in (Kind.COMMA, Kind.AND, Kind.BREAK, Kind.CHANGE):
                degree: Severity = item.row.degree
                return degree
    return None


def _unfit(claim: Claim) -> frozenset[Kind]:
    """Modifiers that cannot be of this statement: ribs have numbers and no levels, lungs have no numbers."""
    names = set(claim.observations)
    if names and OBSERVATIONS[claim.observations[0]].group is Group.BONE:
        ribs = names & {"rib fracture", "bone deformity"}
        return frozenset({Kind.LEVEL}) if ribs else frozenset({Kind.LEVEL, Kind.ORDINAL})
    if names and OBSERVATIONS[claim.observations[0]].group is Group.DEVICE:
        return frozenset({Kind.LEVEL, Kind.ORDINAL})
    return frozenset({Kind.ORDINAL})


def _combined(one: list[Where], two: list[Where]) -> list[Where]:
    if not one or not two:
        return one or two
    many, few = (two, one) if len(two) > 1 else (one, two)
    for group in many:
        group.side = group.side or few[0].side
        group.places = group.places or few[0].places
        group.degree = group.degree or few[0].degree
    return many
