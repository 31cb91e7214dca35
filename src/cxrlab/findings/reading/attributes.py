"""Side, place, degree, size and change of each statement: which modifiers belong to it."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.vocabulary import LOCATIONS, LOBES, OBSERVATIONS, ZONES, Change, Group, Severity, Side
from cxrlab.findings.reading.anatomy import BOTH
from cxrlab.findings.reading.claims import Claim
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.rows import Kind

_SEPARATORS = frozenset(
    {
        Kind.COMMA, Kind.AND, Kind.OR, Kind.VERSUS, Kind.WITH, Kind.VERB, Kind.BREAK, Kind.THERE, Kind.NEGATION, Kind.HEDGE,
        Kind.HEDGE_EITHER, Kind.HEDGE_LINK, Kind.LINK, Kind.DENIED, Kind.HEDGED, Kind.RESOLVED, Kind.RESOLUTION, Kind.ASIDE,
        Kind.UNSEEN, Kind.UNLIKELY, Kind.COLON, Kind.QUERY,
    }
)  # fmt: skip
_OPENERS = _SEPARATORS - {Kind.VERB, Kind.DENIED, Kind.HEDGED, Kind.RESOLVED, Kind.UNSEEN, Kind.UNLIKELY}
_MODIFIERS = frozenset({Kind.SIDE, Kind.PLACE, Kind.LEVEL, Kind.ORDINAL, Kind.DEGREE, Kind.CHANGE, Kind.UNIT})
_WHERE = frozenset({Kind.SIDE, Kind.PLACE, Kind.LEVEL, Kind.ORDINAL})
_OPENING = _WHERE | {Kind.CHANGE, Kind.AND, Kind.OR}
_WALLS = frozenset({Kind.BREAK, Kind.COLON})
_EXPLAINS = frozenset({Kind.LINK, Kind.HEDGE_LINK, Kind.HEDGE_EITHER})
_LIST = frozenset({Kind.AND, Kind.OR, Kind.COMMA, Kind.VERSUS})


class Where:
    """Modifiers that belong together: "moderate left" of "small right and moderate left"."""

    __slots__ = ("degree", "level", "places", "series", "side", "stated")

    def __init__(self) -> None:
        self.side: Side | None = None
        self.places: list[str] = []
        self.level: str | None = None
        self.degree: Severity | None = None
        self.series = False
        self.stated = False  # side and place in its own words

    @property
    def somewhere(self) -> bool:
        """Whether it says where."""
        return self.side is not None or bool(self.places) or self.level is not None


class Traits:
    """The attributes of one statement; `groups` has one entry for each finding that it makes."""

    __slots__ = ("change", "degree", "first", "groups", "last", "late", "size")

    def __init__(self) -> None:
        self.groups: list[Where] = []
        self.degree: Severity | None = None
        self.change: Change | None = None
        self.size: float | None = None
        self.late = False  # the change stands after a verb
        self.first = self.last = 0


def territories(items: Sequence[Item], found: Sequence[Claim]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """For each item that carries a statement the indices of the modifiers before and after it that are its own."""
    anchors = sorted({index for claim in found for index in (claim.at, claim.part) if index >= 0})
    left: dict[int, list[int]] = {}
    right: dict[int, list[int]] = {}
    previous = -1
    for anchor in anchors:
        split = _split(items, previous, anchor)
        if previous >= 0:
            right[previous] = list(range(previous + 1, split))
        left[anchor] = list(range(split, anchor))
        if previous < 0:  # "again seen is …", "in the left lung there is …", "the left lower lobe is …"
            begin = max((index + 1 for index in range(split) if items[index].kind in _WALLS), default=0)
            left[anchor] = [index for index in range(begin, split) if items[index].kind in _OPENING] + left[anchor]
        previous = anchor
    if anchors:
        right[previous] = list(range(previous + 1, len(items)))
    return left, right


def _split(items: Sequence[Item], previous: int, anchor: int) -> int:
    """Index from which the items before an anchor are its own and no longer the previous anchor's."""
    split = anchor
    while split - 1 > previous and items[split - 1].kind not in _SEPARATORS and items[split - 1].kind is not Kind.PREPOSITION:
        split -= 1
    if split - 1 > previous and items[split - 1].kind is Kind.PREPOSITION:
        # "opacity in the left base": the place is of what stands before, unless nothing does.
        index = split - 1
        while index > previous and items[index].kind not in _SEPARATORS:
            index -= 1
        if index == previous and previous >= 0:
            return anchor if any(items[at].kind in _WHERE for at in range(split, anchor)) and items[anchor].kind is Kind.MENTION else split
        return index + 1
    if split == previous + 1 and previous >= 0:
        return split
    return _widened(items, previous, split, anchor)


def _widened(items: Sequence[Item], previous: int, split: int, anchor: int) -> int:
    """Take in "small right and" of "consolidation, small right and moderate left effusion"."""
    while split < anchor and split - 1 > previous and items[split - 1].kind in (Kind.AND, Kind.OR):
        index = split - 2
        while index > previous and items[index].kind in _MODIFIERS:
            index -= 1
        if index == split - 2 or (index <= previous and previous >= 0) or (index > previous and items[index].kind not in _OPENERS):
            break
        split = index + 1
    return split


def groups_of(items: Sequence[Item], indices: Sequence[int]) -> list[Where]:
    """Modifiers in order, parted where a list word stands between them."""
    groups: list[Where] = []
    current = Where()
    parted = False
    for index in indices:
        item = items[index]
        kind = item.kind
        if kind in _LIST:
            parted = True
            continue
        if kind is Kind.PREDICATE and item.row.name == "enlarged" and current.degree is None:
            current.degree = Severity.SEVERE  # "a wide pneumothorax"
        if kind not in _MODIFIERS or (item.row is BOTH and _counts(items, index)):
            continue
        if parted or (kind is Kind.SIDE and current.side not in (None, item.row.side)) or (kind is Kind.ORDINAL and current.places):
            if current.somewhere or current.degree is not None:
                groups.append(current)
                series = kind is Kind.ORDINAL and not parted
                current = Where()
                current.series = series
            parted = False
        _add(current, item)
    if current.somewhere or current.degree is not None:
        groups.append(current)
    return groups


def _counts(items: Sequence[Item], index: int) -> bool:
    """ "Both" before an adjective or article counts two statements and is no side."""
    return index + 1 < len(items) and items[index + 1].kind in (Kind.PREDICATE, Kind.ARTICLE, Kind.SIDE, Kind.VERB)


def _add(group: Where, item: Item) -> None:
    row = item.row
    if item.kind is Kind.SIDE:
        group.side = group.side or row.side
    elif item.kind is Kind.PLACE:
        group.places += row.places
        group.side = group.side or row.side
        group.level = None
    elif item.kind is Kind.LEVEL:
        group.level = row.places[0]
    elif item.kind is Kind.ORDINAL and item.value:
        group.places.append(f"rib {int(item.value)}")
    elif item.kind is Kind.DEGREE and group.degree is None:
        group.degree = row.degree


def completed(groups: list[Where]) -> list[Where]:
    """Fill what a list leaves out: "right upper and lower lobes", "left and right bases", "ribs 5 to 7"."""
    noun = ""
    for group in groups:
        group.stated = group.side is not None and bool(group.places)
    for group in reversed(groups):
        if group.level is not None:
            for word in (f"{group.level} {noun}", f"{group.level} zone", f"{group.level}dle lobe"):
                if word in LOCATIONS and (noun or word.endswith("zone")):
                    group.places.append(word)
                    break
            group.level = None
        if group.places:
            noun = group.places[-1].rpartition(" ")[2]
    side: Side | None = None
    for group in groups:
        if group.side is None and group.places:
            group.side = side
        side = group.side or side
    following: list[str] = []
    for group in reversed(groups):
        if group.side is not None and not group.places and group.degree is None:
            group.places = list(following)
        following = group.places
    return _ribs(groups)


def _ribs(groups: list[Where]) -> list[Where]:
    filled: list[Where] = []
    for group in groups:
        if group.series and filled and group.places and filled[-1].places:
            low, high = (int(one.places[0].rpartition(" ")[2]) for one in (filled[-1], group))
            for number in range(low + 1, high):
                middle = Where()
                middle.side, middle.places = group.side, [f"rib {number}"]
                filled.append(middle)
        filled.append(group)
    return filled


def merged(groups: list[Where]) -> list[Where]:
    """Left and right of the same place and degree are one finding on both sides."""
    kept: list[Where] = []
    for group in groups:
        for other in kept:
            same = other.places[:1] == group.places[:1] and (other.degree == group.degree or group.degree is None)
            apart = group.side is not None and other.side is not None and group.side != other.side
            if same and apart and not (group.stated and other.stated):
                other.side = Side.BILATERAL
                break
            if same and not apart and (group.side == other.side or (group.side is None and not group.places)):
                other.degree = other.degree or group.degree
                break
        else:
            kept.append(group)
    return kept


def traits(items: Sequence[Item], claim: Claim, left: dict[int, list[int]], right: dict[int, list[int]]) -> Traits:
    """What the modifiers of a statement say."""
    own = Traits()
    before, after = list(left.get(claim.at, ())), list(right.get(claim.at, ()))
    if claim.part >= 0:
        before = sorted({*left.get(claim.part, ()), *before}) if claim.part < claim.at else before
        after = sorted({*after, *right.get(claim.part, ()), *(left.get(claim.part, ()) if claim.part > claim.at else ())})
    unfit = _unfit(claim)
    before, after = ([at for at in side if items[at].kind not in unfit] for side in (before, after))
    one, two = groups_of(items, before), groups_of(items, after)
    where_one, where_two = [g for g in one if g.somewhere], [g for g in two if g.somewhere]
    degrees = [g.degree for g in (*reversed(one), *two) if g.degree is not None]
    own.groups = merged(_combined(completed(where_one), completed(where_two)))
    own.degree = degrees[0] if degrees else None
    modifiers = [items[index] for index in (*reversed(before), *after)]
    own.change = next((item.row.change for item in modifiers if item.kind is Kind.CHANGE), None)
    tail = [items[index] for index in after]
    verb = next((place for place, item in enumerate(tail) if item.kind is Kind.VERB), len(tail))
    own.late = any(item.kind is Kind.CHANGE and (place > verb or item.first > items[claim.end].first and tail[0] is item)
                   for place, item in enumerate(tail)) and own.change is not None
    sizes = [item.value for item in modifiers if item.kind is Kind.UNIT and item.value is not None]
    own.size = max(sizes) if sizes else None
    used = [item for item in modifiers if item.kind in _MODIFIERS]
    anchors = [items[index] for index in (claim.at, claim.part) if index >= 0]
    own.first = min(item.first for item in (*anchors, *used))
    own.last = max(item.last for item in (*anchors, *used))
    return own


def _unfit(claim: Claim) -> frozenset[Kind]:
    """Modifiers that cannot be of this statement: ribs have numbers and no zones, the lung has thirds and no third rib."""
    names = set(claim.observations)
    if names and OBSERVATIONS[claim.observations[0]].group is Group.BONE:
        ribs = names & {"rib fracture", "bone deformity"}
        return frozenset({Kind.LEVEL}) if ribs else frozenset({Kind.LEVEL, Kind.ORDINAL})
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
    """ "Left effusion and atelectasis": what is joined with nothing between shares where it is."""
    _share_change(items, found, all_traits)
    for index in range(1, len(found)):
        a, b, first, second = found[index - 1], found[index], all_traits[index - 1], all_traits[index]
        if not a.observations or not b.observations or a.at == b.at:
            continue
        kinds = [item.kind for item in items[a.end + 1 : b.start]]
        if first.groups and not second.groups and _has_place(b) and b.side is None and (
            set(kinds) & _EXPLAINS or kinds == [Kind.PREPOSITION]
        ):
            if not set(kinds) & {Kind.WITH, Kind.BREAK, Kind.THERE}:
                second.groups = [_where(group) for group in first.groups]
            continue
        if not kinds or not all(kind in (Kind.AND, Kind.OR, Kind.VERSUS) for kind in kinds):
            continue
        if first.groups and not second.groups and _has_place(b) and b.side is None:
            second.groups = [_where(group) for group in first.groups]
        elif second.groups and not first.groups and _has_place(a) and a.side is None and second.last > items[b.end].last:
            first.groups = [_where(group) for group in second.groups]


def _share_change(items: Sequence[Item], found: Sequence[Claim], all_traits: Sequence[Traits]) -> None:
    """ "Tubes, lines and drain are unchanged": a change after the verb is of the whole list."""
    for index in range(len(found) - 1, 0, -1):
        b, second, first = found[index], all_traits[index], all_traits[index - 1]
        kinds = {item.kind for item in items[found[index - 1].end + 1 : b.start]}
        listed = bool(kinds) and kinds <= _MODIFIERS | _LIST | {Kind.ARTICLE} and first.change is None
        if listed and second.late and not kinds & {Kind.CHANGE}:
            first.change, first.late = second.change, True


def _has_place(claim: Claim) -> bool:
    row = OBSERVATIONS[claim.observations[0]]
    return row.sided or bool(row.locations)


def _where(group: Where) -> Where:
    copy = Where()
    copy.side, copy.places = group.side, list(group.places)
    return copy
