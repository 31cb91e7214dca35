"""Sides, places and degrees as they stand together in a list."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.vocabulary import LOCATIONS, Severity, Side
from cxrlab.findings.reading.anatomy import BOTH
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.rows import Kind

WHERE = frozenset({Kind.SIDE, Kind.PLACE, Kind.LEVEL, Kind.ORDINAL})
MODIFIERS = WHERE | {Kind.DEGREE, Kind.CHANGE, Kind.UNIT}
LIST = frozenset({Kind.AND, Kind.OR, Kind.COMMA, Kind.VERSUS})


class Where:
    """Modifiers that belong together: "moderate left" of "small right and moderate left"."""

    __slots__ = ("degree", "level", "places", "series", "side", "stated", "trailing")

    def __init__(self) -> None:
        self.side: Side | None = None
        self.places: list[str] = []
        self.level: str | None = None
        self.degree: Severity | None = None
        self.series = False
        self.stated = False  # side and place in its own words
        self.trailing = False  # the side stands after the place

    @property
    def rib(self) -> int:
        """Number of its rib, 0 when it has none."""
        return int(self.places[0][4:]) if self.places and self.places[0].startswith("rib ") else 0

    @property
    def somewhere(self) -> bool:
        """Whether it says where."""
        return self.side is not None or bool(self.places) or self.level is not None


def groups_of(items: Sequence[Item], indices: Sequence[int]) -> list[Where]:
    """Modifiers in order, parted where a list word stands between them."""
    groups: list[Where] = []
    current = Where()
    parted = False
    for index in indices:
        item = items[index]
        kind = item.kind
        if kind in LIST:
            parted = True
            continue
        if kind is Kind.PREDICATE and item.row.name == "enlarged" and current.degree is None:
            current.degree = Severity.SEVERE  # "a wide pneumothorax"
        if kind not in MODIFIERS or (item.row is BOTH and _counts(items, index)):
            continue
        if (
            parted
            or (kind is Kind.SIDE and current.side not in (None, item.row.side))
            or (kind is Kind.ORDINAL and current.places)
        ):
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
    """Whether "both" counts two statements and is no side, as before an adjective or article."""
    return index + 1 < len(items) and items[index + 1].kind in (Kind.PREDICATE, Kind.ARTICLE, Kind.SIDE, Kind.VERB)


def _add(group: Where, item: Item) -> None:
    row = item.row
    if item.kind is Kind.SIDE:
        group.side = group.side or row.side
        group.trailing = bool(group.places)
    elif item.kind is Kind.PLACE:
        group.places += row.places
        group.side = group.side or row.side
        group.level = None
    elif item.kind is Kind.LEVEL:
        group.level = row.places[0]
    elif item.kind is Kind.ORDINAL and item.value:
        rib = f"rib {int(item.value)}"
        if rib in LOCATIONS:  # a model may write of a 58th rib
            group.places.append(rib)
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
    if groups and groups[-1].trailing and all(group.side is None for group in groups[:-1]):
        side = groups[-1].side  # "ribs 3 and 4 on the right"
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
    """Put in the ribs between the two ends of a series."""
    filled: list[Where] = []
    for group in groups:
        if group.series and filled and group.rib and filled[-1].rib:
            for number in range(filled[-1].rib + 1, group.rib):
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
            bare = not group.places and group.degree is None and group.side == other.side  # "…, right more than left"
            if bare or (same and not apart and (group.side == other.side or (group.side is None and not group.places))):
                other.degree = other.degree or group.degree
                break
        else:
            kept.append(group)
    return kept
