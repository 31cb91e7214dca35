"""Side, place, degree, size and change of each statement, and what neighbours share of them."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.vocabulary import OBSERVATIONS, Change, Group, Severity
from cxrlab.findings.reading.changes import early_change, late_change, of_change, size_of
from cxrlab.findings.reading.claims import Claim
from cxrlab.findings.reading.degrees import PREVIOUS
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.places import LIST, MODIFIERS, Where, completed, groups_of, merged
from cxrlab.findings.reading.rows import Kind

_EXPLAINS = frozenset({Kind.LINK, Kind.HEDGE_LINK, Kind.HEDGE_EITHER})


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
    order = (*reversed(before), *after)
    modifiers = [items[index] for index in order]
    own.previous = any(item.row is PREVIOUS[0] or item.row is PREVIOUS[1] for item in modifiers)
    late = late_change(items, claim, after)
    # What the verb says is the news: "the previously seen effusion has decreased", "smaller nodules are unchanged".
    own.late, own.change = late is not None, late or early_change(items, order)
    own.size = size_of(items, claim, order)
    used = [item for item in modifiers if item.kind in MODIFIERS]
    anchors = [items[index] for index in (claim.at, claim.part) if index >= 0]
    own.first = min(item.first for item in (*anchors, *used))
    own.last = max(item.last for item in (*anchors, *used))
    return own


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


def share(items: Sequence[Item], found: Sequence[Claim], all_traits: Sequence[Traits]) -> None:
    """What is joined with nothing between shares where it is ("left effusion and atelectasis"); so do explanations."""
    _share_change(items, found, all_traits)
    for index in range(1, len(found)):
        a, b, first, second = found[index - 1], found[index], all_traits[index - 1], all_traits[index]
        if not a.observations or not b.observations or a.at == b.at:
            continue
        kinds = [item.kind for item in items[a.end + 1 : b.start]]
        if (
            first.groups
            and not second.groups
            and _has_place(b)
            and b.side is None
            and (set(kinds) & _EXPLAINS or kinds == [Kind.PREPOSITION])
        ):
            if not set(kinds) & {Kind.WITH, Kind.BREAK, Kind.THERE}:
                second.groups = [_where(group) for group in first.groups]
            continue
        if not kinds or not all(kind in (Kind.AND, Kind.OR, Kind.VERSUS) for kind in kinds):
            continue
        if first.groups and not second.groups and _has_place(b) and b.side is None:
            second.groups = [_where(group) for group in first.groups]
        elif (
            second.groups and not first.groups and _has_place(a) and a.side is None and second.last > items[b.end].last
        ):
            first.groups = [_where(group) for group in second.groups]


def _share_change(items: Sequence[Item], found: Sequence[Claim], all_traits: Sequence[Traits]) -> None:
    """A change after the verb is of the whole list: "tube, line and drain are unchanged"."""
    for index in range(len(found) - 1, 0, -1):
        b, second, first = found[index], all_traits[index], all_traits[index - 1]
        kinds = {item.kind for item in items[found[index - 1].end + 1 : b.start]}
        listed = bool(kinds) and kinds <= MODIFIERS | LIST | {Kind.ARTICLE} and first.change is None
        if listed and second.late and not kinds & {Kind.CHANGE}:
            first.change, first.late = second.change, True


def _has_place(claim: Claim) -> bool:
    row = OBSERVATIONS[claim.observations[0]]
    return row.sided or bool(row.locations)


def _where(group: Where) -> Where:
    copy = Where()
    copy.side, copy.places = group.side, list(group.places)
    return copy
