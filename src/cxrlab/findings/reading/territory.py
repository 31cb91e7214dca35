"""Which modifiers belong to which statement."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.findings.reading.claims import Claim
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.places import MODIFIERS, WHERE
from cxrlab.findings.reading.rows import Kind

_SEPARATORS = frozenset(
    {
        Kind.COMMA, Kind.AND, Kind.OR, Kind.VERSUS, Kind.WITH, Kind.VERB, Kind.BREAK, Kind.THERE, Kind.NEGATION,
        Kind.HEDGE, Kind.HEDGE_EITHER, Kind.HEDGE_LINK, Kind.LINK, Kind.DENIED, Kind.HEDGED, Kind.RESOLVED,
        Kind.RESOLUTION, Kind.ASIDE, Kind.UNSEEN, Kind.UNLIKELY, Kind.COLON, Kind.QUERY,
    }
)  # fmt: skip
# What may stand before the first of two groups of modifiers that share a noun.
_OPENERS = _SEPARATORS - {Kind.VERB, Kind.DENIED, Kind.HEDGED, Kind.RESOLVED, Kind.UNSEEN, Kind.UNLIKELY}
_PARTS = frozenset({Kind.AND, Kind.COMMA, Kind.WITH, Kind.OR, Kind.PREPOSITION})
_OPENING = WHERE | {Kind.CHANGE, Kind.AND, Kind.OR}
_WALLS = frozenset({Kind.BREAK, Kind.COLON})


def territories(items: Sequence[Item], found: Sequence[Claim]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """For each item that carries a statement the indices of the modifiers before and after it that are its own."""
    anchors = sorted({index for claim in found for index in (claim.at, claim.part) if index >= 0})
    left: dict[int, list[int]] = {}
    right: dict[int, list[int]] = {}
    previous = -1
    for anchor in anchors:
        split = _split(items, previous, anchor)
        wall = max((index for index in range(previous + 1, split) if items[index].kind in _WALLS), default=-1)
        if previous >= 0:
            right[previous] = _own(items, previous + 1, split if wall < 0 else wall)
        left[anchor] = list(range(split, anchor))
        if previous < 0 or wall >= 0:  # "again seen is …", "in the left lung there is …", "while the left lung shows …"
            left[anchor] = [index for index in range(wall + 1, split) if items[index].kind in _OPENING] + left[anchor]
        previous = anchor
    if anchors:
        right[previous] = _own(items, previous + 1, len(items))
    return left, right


def _own(items: Sequence[Item], begin: int, end: int) -> list[int]:
    """Items after an anchor up to where another part is spoken of: "…, and decreased vascular markings"."""
    cut = end
    for index in range(end - 1, begin - 1, -1):
        item = items[index]
        if item.kind is Kind.ALARM or (item.kind is Kind.SUBJECT and item.row.name != "chest"):
            back = index
            while back >= begin and items[back].kind not in _PARTS:
                back -= 1
            if back >= begin and items[back].kind is not Kind.PREPOSITION:
                cut = back
    return list(range(begin, cut))


def _split(items: Sequence[Item], previous: int, anchor: int) -> int:
    """Index from which the items before an anchor are its own and no longer the previous anchor's."""
    split = anchor
    while (
        split - 1 > previous
        and items[split - 1].kind not in _SEPARATORS
        and items[split - 1].kind is not Kind.PREPOSITION
    ):
        split -= 1
    if split - 1 > previous and items[split - 1].kind is Kind.PREPOSITION:
        # "opacity in the left base": the place is of what stands before, unless nothing does.
        index = split - 1
        while index > previous and items[index].kind not in _SEPARATORS:
            index -= 1
        if index == previous and previous >= 0:
            return (
                anchor
                if any(items[at].kind in WHERE for at in range(split, anchor)) and items[anchor].kind is Kind.MENTION
                else split
            )
        return index + 1
    if split == previous + 1 and previous >= 0:
        return split
    return _widened(items, previous, split, anchor)


def _widened(items: Sequence[Item], previous: int, split: int, anchor: int) -> int:
    """Take in "small right and" of "consolidation, small right and moderate left effusion"."""
    while split < anchor and split - 1 > previous and items[split - 1].kind in (Kind.AND, Kind.OR):
        index = split - 2
        while index > previous and items[index].kind in MODIFIERS:
            index -= 1
        if (
            index == split - 2
            or (index <= previous and previous >= 0)
            or (index > previous and items[index].kind not in _OPENERS)
        ):
            break
        split = index + 1
    return split
