"""What the statements of one sentence share: where they are, and how they changed."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.vocabulary import OBSERVATIONS
from cxrlab.findings.reading.attributes import Traits
from cxrlab.findings.reading.claims import Claim
from cxrlab.findings.reading.cues import DIFFERENTIAL, PERHAPS
from cxrlab.findings.reading.joints import AFTER, EXCEPT, NEXT_TO, SHOWS
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.places import LIST, MODIFIERS, WHERE, Where
from cxrlab.findings.reading.rows import Kind

EXPLAINS = frozenset({Kind.LINK, Kind.HEDGE_LINK, Kind.HEDGE_EITHER})
_CHOICE = frozenset({Kind.COMMA, Kind.OR, Kind.VERSUS, Kind.AND, Kind.ARTICLE, Kind.DEGREE, Kind.FILLER})


def share(items: Sequence[Item], found: Sequence[Claim], all_traits: Sequence[Traits]) -> None:
    """What is joined with nothing between shares where it is ("left effusion and atelectasis"); so do explanations."""
    _share_change(items, found, all_traits)
    explained = -1  # the last statement that explains another and is where that is
    for index in range(1, len(found)):
        a, b, first, second = found[index - 1], found[index], all_traits[index - 1], all_traits[index]
        if not a.observations or not b.observations or a.at == b.at:
            continue
        between = items[a.end + 1 : b.start]
        kinds = [item.kind for item in between]
        open_ = not second.groups and has_place(b) and b.side is None
        if open_ and _explanation(between):
            head = _head(items, found, all_traits, index - 1)
            link = next((at for at, kind in enumerate(kinds) if kind in EXPLAINS), 0)
            contrast = {Kind.BREAK, Kind.THERE} & set(kinds) and all(item.row is not DIFFERENTIAL for item in between)
            if head.groups and Kind.WITH not in kinds[link:] and not contrast:
                second.groups = [_where(group) for group in head.groups]
                explained = index
            continue
        if open_ and explained == index - 1 and a.possible and b.possible and alternative(kinds):
            second.groups, explained = [_where(group) for group in first.groups], index
            continue
        if not kinds or not all(kind in (Kind.AND, Kind.OR, Kind.VERSUS) for kind in kinds):
            continue
        if first.groups and open_:
            second.groups = [_where(group) for group in first.groups]
        elif second.groups and not first.groups and has_place(a) and a.side is None and second.last > items[b.end].last:
            first.groups = [_where(group) for group in second.groups]
    _share_opening(items, found, all_traits)
    _share_side(items, found, all_traits)


def _explanation(between: Sequence[Item]) -> bool:
    """Whether the words between two statements make the second an explanation, or a closer name, of the first."""
    kinds = [item.kind for item in between]
    if kinds == [Kind.PREPOSITION]:
        return between[0].row is not AFTER
    if any(item.row is DIFFERENTIAL for item in between):
        return True
    return bool(set(kinds) & EXPLAINS) or (kinds == [Kind.COMMA, Kind.HEDGE] and between[1].row is PERHAPS)


def _share_side(items: Sequence[Item], found: Sequence[Claim], all_traits: Sequence[Traits]) -> None:
    """What lies next to a finding, or is all that is wrong with a part, is on its side."""
    for index in range(1, len(found)):
        a, b, first, second = found[index - 1], found[index], all_traits[index - 1], all_traits[index]
        rows = [item.row for item in items[a.end + 1 : b.start]]
        beside = not a.absent and any(row is NEXT_TO for row in rows)
        excepted = a.normal and not a.observations and any(row is EXCEPT for row in rows)
        side = first.groups[0].side if len(first.groups) == 1 else None
        sided = b.observations and OBSERVATIONS[b.observations[0]].sided and b.side is None and not b.absent
        if not (beside or excepted) or side is None or not sided:
            continue
        second.groups = second.groups or [Where()]
        if all(group.side is None for group in second.groups):
            for group in second.groups:
                group.side = side


def _head(items: Sequence[Item], found: Sequence[Claim], all_traits: Sequence[Traits], index: int) -> Traits:
    """What an explanation is of: not what goes with it ("left consolidation with air bronchograms, …")."""
    while index and (_directed(found[index]) or (not all_traits[index].groups and not found[index].side)):
        kinds = {item.kind for item in items[found[index - 1].end + 1 : found[index].start]}
        if Kind.WITH not in kinds or kinds & {Kind.BREAK, Kind.THERE, Kind.NEGATION}:
            break
        index -= 1
    return Traits() if _directed(found[index]) else all_traits[index]


def _directed(claim: Claim) -> bool:
    """Whether a side is where the thing moved to and not where something lies: "shift to the left"."""
    return claim.observations in (("mediastinal shift",), ("tracheal deviation",))


def alternative(kinds: Sequence[Kind]) -> bool:
    """Whether a list of explanations goes on: "scarring or a small effusion"."""
    return bool(kinds) and set(kinds) <= _CHOICE and bool(set(kinds) & {Kind.OR, Kind.VERSUS, Kind.COMMA, Kind.AND})


def _share_opening(items: Sequence[Item], found: Sequence[Claim], all_traits: Sequence[Traits]) -> None:
    """All that a part shows is in that part: "the right lung shows consolidation with atelectasis"."""
    shows = next((index for index, item in enumerate(items) if item.row is SHOWS), len(items))
    if not any(item.kind in WHERE for item in items[:shows]) or any(claim.start < shows for claim in found):
        return
    place: list[Where] = []
    end = shows
    for claim, own in zip(found, all_traits, strict=True):
        between = items[end + 1 : claim.start]
        if any(item.kind in (Kind.BREAK, Kind.THERE, Kind.VERB, Kind.NEGATION) for item in between):
            return
        if any(item.kind in WHERE for item in between) or claim.absent or not claim.observations:
            return
        if place and not own.groups and has_place(claim) and claim.side is None:
            own.groups = [_where(group) for group in place]
        place, end = place or own.groups, claim.end


def _share_change(items: Sequence[Item], found: Sequence[Claim], all_traits: Sequence[Traits]) -> None:
    """A change after the verb is of the whole list: "tube, line and drain are unchanged"."""
    for index in range(len(found) - 1, 0, -1):
        b, second, first = found[index], all_traits[index], all_traits[index - 1]
        kinds = {item.kind for item in items[found[index - 1].end + 1 : b.start]}
        # "effusion with atelectasis has increased" says so of the effusion too
        listed = bool(kinds) and kinds <= MODIFIERS | LIST | {Kind.ARTICLE, Kind.WITH} and first.change is None
        if listed and second.late and not kinds & {Kind.CHANGE}:
            first.change, first.late = second.change, True


def has_place(claim: Claim) -> bool:
    """Whether a side or a place belongs to what is stated."""
    rows = [OBSERVATIONS[name] for name in claim.observations[:1]]  # none where something is only normal or wrong
    return any(row.sided or row.locations for row in rows)


def _where(group: Where) -> Where:
    copy = Where()
    copy.side, copy.places = group.side, list(group.places)
    return copy
