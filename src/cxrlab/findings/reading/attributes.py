"""Gives each statement its attributes: side, location, severity, size and change, from the modifiers around it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cxrlab.core.vocabulary import LOCATIONS, OBSERVATIONS, Change, Group, Severity, Side
from cxrlab.findings.reading.phrase_tables import Kind, Label
from cxrlab.findings.reading.phrases import Phrase
from cxrlab.findings.reading.statements import Statement

PLACES = frozenset({Kind.SIDE, Kind.LOCATION, Kind.LEVEL, Kind.ORDINAL})
MODIFIERS = PLACES | {Kind.SEVERITY, Kind.CHANGE, Kind.UNIT}
LIST = frozenset({Kind.AND, Kind.OR, Kind.COMMA, Kind.VERSUS})
_SEPARATORS = frozenset(
    {
        Kind.COMMA, Kind.AND, Kind.OR, Kind.VERSUS, Kind.WITH, Kind.VERB, Kind.TERMINATION, Kind.EXISTENTIAL,
        Kind.NEGATION, Kind.HEDGE, Kind.HEDGE_EITHER, Kind.HEDGED_EXPLANATION, Kind.EXPLANATION,
        Kind.NEGATION_BACKWARD, Kind.HEDGE_BACKWARD, Kind.RESOLUTION_BACKWARD, Kind.RESOLUTION, Kind.NOT_A_FINDING,
        Kind.NOT_ASSESSABLE, Kind.UNLIKELY, Kind.COLON, Kind.QUESTION_MARK,
    }
)  # fmt: skip
# What may stand before the first of two groups of modifiers that share a noun.
_BEFORE_GROUPS = _SEPARATORS - {
    Kind.VERB, Kind.NEGATION_BACKWARD, Kind.HEDGE_BACKWARD, Kind.RESOLUTION_BACKWARD, Kind.NOT_ASSESSABLE,
    Kind.UNLIKELY,
}  # fmt: skip
_PARTING = frozenset({Kind.AND, Kind.COMMA, Kind.WITH, Kind.OR, Kind.PREPOSITION})
_OPENING = PLACES | {Kind.CHANGE, Kind.AND, Kind.OR}
_COURSE = frozenset({Change.INCREASED, Change.DECREASED})
_COUNTED = frozenset({Kind.PREDICATE, Kind.ARTICLE, Kind.SIDE, Kind.VERB})


class ModifierGroup:
    """Modifiers that belong together: "moderate left" of "small right and moderate left"."""

    __slots__ = ("level", "locations", "series", "severity", "side", "side_last", "stated")

    def __init__(self, side: Side | None = None, locations: Sequence[str] = ()) -> None:
        self.side = side
        self.locations = list(locations)
        self.level: str | None = None
        self.severity: Severity | None = None
        self.series = False  # continues the rib numbers of the group before it
        self.stated = False  # side and location in its own words
        self.side_last = False  # the side stands after the location

    @property
    def rib(self) -> int:
        """Number of its rib, 0 when it has none."""
        return int(self.locations[0][4:]) if self.locations and self.locations[0].startswith("rib ") else 0

    @property
    def placed(self) -> bool:
        """Whether it states a side or a location."""
        return self.side is not None or bool(self.locations) or self.level is not None

    def copy_place(self) -> ModifierGroup:
        """A group with the same side and locations, and nothing else."""
        return ModifierGroup(self.side, self.locations)

    def add(self, phrase: Phrase) -> None:
        """Take in one modifier."""
        rule = phrase.rule
        if phrase.kind is Kind.SIDE:
            self.side = self.side or rule.side
            self.side_last = bool(self.locations)
        elif phrase.kind is Kind.LOCATION and rule.location:
            self.locations.append(rule.location)
            self.side = self.side or rule.side
            self.level = None
        elif phrase.kind is Kind.LEVEL:
            self.level = rule.location
        elif phrase.kind is Kind.ORDINAL and phrase.value:
            rib = f"rib {int(phrase.value)}"
            if rib in LOCATIONS:  # generated text may name a 58th rib
                self.locations.append(rib)
        elif phrase.kind is Kind.SEVERITY and self.severity is None:
            self.severity = rule.severity


class Attributes:
    """The attributes of one statement; `groups` has one entry for each finding that it makes."""

    __slots__ = ("change", "change_after_verb", "first", "groups", "last", "seen_before", "severity", "size")

    def __init__(self) -> None:
        self.groups: list[ModifierGroup] = []
        self.severity: Severity | None = None
        self.change: Change | None = None
        self.size: float | None = None
        self.seen_before = False  # "the previously seen effusion"
        self.change_after_verb = False
        self.first = self.last = 0  # tokens


Indices = dict[int, list[int]]  # phrase that carries a statement → the phrases on one side that belong to it


def find_attributes(phrases: Sequence[Phrase], statements: Sequence[Statement]) -> list[Attributes]:
    """Attributes of each statement, from the modifiers around the phrases that carry it."""
    carriers = sorted({index for one in statements for index in (one.anchor, one.part) if index >= 0})
    before: Indices = {}
    after: Indices = {}
    previous = -1
    for carrier in carriers:
        split = _split(phrases, previous, carrier)
        walls = (i for i in range(previous + 1, split) if phrases[i].kind in (Kind.TERMINATION, Kind.COLON))
        wall = max(walls, default=-1)
        if previous >= 0:
            after[previous] = _own_after(phrases, previous + 1, split if wall < 0 else wall)
        before[carrier] = list(range(split, carrier))
        if previous < 0 or wall >= 0:  # "again seen is …", "in the left lung there is …", "while the left lung shows …"
            opening = [index for index in range(wall + 1, split) if phrases[index].kind in _OPENING]
            before[carrier] = opening + before[carrier]
        previous = carrier
    if carriers:
        after[previous] = _own_after(phrases, previous + 1, len(phrases))
    return [_attributes(phrases, statement, before, after) for statement in statements]


# ── which modifiers belong to which statement ─────────────────────────────────────────────────────


def _own_after(phrases: Sequence[Phrase], begin: int, end: int) -> list[int]:
    """Phrases after a carrier up to where another body part is introduced: "…, and decreased vascular markings"."""
    cut = end
    for index in range(end - 1, begin - 1, -1):
        phrase = phrases[index]
        other_part = phrase.kind is Kind.BODY_PART and phrase.rule.name != "chest"
        if phrase.kind is Kind.OUT_OF_VOCABULARY or other_part:
            back = index
            while back >= begin and phrases[back].kind not in _PARTING:
                back -= 1
            if back >= begin and phrases[back].kind is not Kind.PREPOSITION:
                cut = back
    return list(range(begin, cut))


def _split(phrases: Sequence[Phrase], previous: int, carrier: int) -> int:
    """Index from which the phrases before a carrier are its own and no longer the previous carrier's."""
    split = carrier
    while split - 1 > previous:
        kind = phrases[split - 1].kind
        if kind in _SEPARATORS or kind is Kind.PREPOSITION:
            break
        split -= 1
    if split - 1 > previous and phrases[split - 1].kind is Kind.PREPOSITION:
        # "opacity in the left base": the place is of what stands before, unless nothing does.
        index = split - 1
        while index > previous and phrases[index].kind not in _SEPARATORS:
            index -= 1
        if index > previous or previous < 0:
            return index + 1
        placed = any(phrases[at].kind in PLACES for at in range(split, carrier))
        return carrier if placed and phrases[carrier].kind is Kind.MENTION else split
    if split == previous + 1 and previous >= 0:
        return split
    return _widened(phrases, previous, split, carrier)


def _widened(phrases: Sequence[Phrase], previous: int, split: int, carrier: int) -> int:
    """Take in "small right and" of "consolidation, small right and moderate left effusion"."""
    while split < carrier and split - 1 > previous and phrases[split - 1].kind in (Kind.AND, Kind.OR):
        index = split - 2
        while index > previous and phrases[index].kind in MODIFIERS:
            index -= 1
        if index == split - 2 or (index <= previous and previous >= 0):
            break
        if index > previous and phrases[index].kind not in _BEFORE_GROUPS:
            break
        split = index + 1
    return split


# ── what the modifiers say ────────────────────────────────────────────────────────────────────────


def _attributes(phrases: Sequence[Phrase], statement: Statement, before: Indices, after: Indices) -> Attributes:
    left, right = _indices(statement, before, after)
    unfit = _unfit_kinds(statement)
    left, right = (
        [
            index
            for index in side
            if phrases[index].kind not in unfit
            and not (phrases[index].kind is Kind.SEVERITY and grades_change(phrases, index))
        ]
        for side in (left, right)
    )
    groups_left, groups_right = _groups(phrases, left), _groups(phrases, right)
    placed_left, placed_right = [g for g in groups_left if g.placed], [g for g in groups_right if g.placed]
    severities = [g.severity for g in (*reversed(groups_left), *groups_right) if g.severity is not None]
    own = Attributes()
    own.groups = _merged(_combined(_completed(placed_left), _completed(placed_right)))
    own.severity = severities[0] if severities else None
    order = (*reversed(left), *right)
    labels = {phrases[index].rule.label for index in order}
    own.seen_before = bool(labels & {Label.PREVIOUSLY, Label.PREVIOUSLY_SEEN})
    # The verb states the change: "the previously seen effusion has decreased", "smaller nodules are unchanged".
    after_verb = _change_after_verb(phrases, statement, right)
    changes = (phrases[i].rule.change for i in order if phrases[i].kind is Kind.CHANGE and _compares(phrases, i))
    own.change_after_verb, own.change = after_verb is not None, after_verb or next(changes, None)
    later = _later_severity(phrases, right) if len(severities) > 1 and not placed_right else None
    if later is not None and own.severity is not None:
        if own.change is None and later is not own.severity:
            own.change = Change.DECREASED if later.rank < own.severity.rank else Change.INCREASED
        own.severity = later
        for group in own.groups:
            group.severity = None
    # The largest size on this image in millimetres, or None.
    sizes = [
        phrases[index].value or 0.0
        for index in order
        if phrases[index].kind is Kind.UNIT
        and phrases[index].value
        and not _earlier_size(phrases, index)
        # "should be withdrawn 3 cm"
        and not any(phrase.kind is Kind.NOT_A_FINDING for phrase in phrases[statement.end + 1 : index])
    ]
    own.size = max(sizes) if sizes else None
    used = [phrases[i] for i in order if phrases[i].kind in MODIFIERS and not _opens_sentence(phrases, i, statement)]
    carriers = [phrases[index] for index in (statement.anchor, statement.part) if index >= 0]
    own.first = min(phrase.first for phrase in (*carriers, *used))
    own.last = max(phrase.last for phrase in (*carriers, *used))
    return own


def _indices(statement: Statement, before: Indices, after: Indices) -> tuple[list[int], list[int]]:
    """Indices of the phrases before and after a statement, those between its two carriers included."""
    at, part = statement.anchor, statement.part
    left, right = before.get(at, []), after.get(at, [])
    if part < 0:
        return list(left), list(right)
    if part < at:
        return sorted({*before.get(part, ()), *left}), sorted({*right, *after.get(part, ())})
    return list(left), sorted({*right, *after.get(part, ()), *before.get(part, ())})


def _unfit_kinds(statement: Statement) -> frozenset[Kind]:
    """Modifiers that cannot be of this statement: ribs have numbers and no levels, lungs have no numbers."""
    names = set(statement.observations)
    group = OBSERVATIONS[statement.observations[0]].group if names else None
    if group is Group.BONE and names & {"rib fracture", "bone deformity"}:
        return frozenset({Kind.LEVEL})
    return frozenset({Kind.LEVEL, Kind.ORDINAL}) if group in (Group.BONE, Group.DEVICE) else frozenset({Kind.ORDINAL})


def _opens_sentence(phrases: Sequence[Phrase], index: int, statement: Statement) -> bool:
    """Whether a change opens the sentence and the name comes later: "Again, as on the last film, there is …"."""
    opens = phrases[index].kind is Kind.CHANGE and index < statement.start
    between = phrases[index + 1 : statement.start]
    return opens and any(phrase.kind in (Kind.EXISTENTIAL, Kind.COMMA) for phrase in between)


def _later_severity(phrases: Sequence[Phrase], after: Sequence[int]) -> Severity | None:
    """The severity of this image where two are named: "the large effusion is now small", "moderate edema, now mild"."""
    for before, index in pairwise(after):
        phrase, following = phrases[index], phrases[index + 1] if index + 1 < len(phrases) else None
        news = phrases[before].kind in (Kind.VERB, Kind.COMMA) and before == index - 1
        if phrase.kind is Kind.SEVERITY and news and not phrase.rule.adverb:
            if following is None or following.kind in (Kind.COMMA, Kind.AND, Kind.TERMINATION, Kind.CHANGE):
                return phrase.rule.severity
    return None


# ── change and size ───────────────────────────────────────────────────────────────────────────────


def grades_change(phrases: Sequence[Phrase], index: int) -> bool:
    """Whether a severity is of a change and not of the thing: "slight increase in", "has slightly increased"."""
    rule = phrases[index].rule
    following = phrases[index + 1] if index + 1 < len(phrases) else None
    if following is not None and following.kind is Kind.CHANGE and following.rule.change in _COURSE:
        return following.rule.noun or rule.adverb
    before = phrases[index - 1] if index else None
    changed = before is not None and before.kind is Kind.CHANGE and before.rule.change in _COURSE
    return changed and rule.adverb  # "has increased slightly"


def _change_after_verb(phrases: Sequence[Phrase], statement: Statement, after: Sequence[int]) -> Change | None:
    """A change that follows the verb or stands at once after the name."""
    verb = False
    for place, index in enumerate(after):
        phrase = phrases[index]
        if phrase.kind is Kind.VERB:
            verb = True
        elif phrase.kind is Kind.CHANGE and (verb or place == 0) and phrase.first > phrases[statement.end].first:
            if _compares(phrases, index):
                return phrase.rule.change
    return None


def _compares(phrases: Sequence[Phrase], index: int) -> bool:
    """Whether a change compares two images; "previously" beside a size only says when."""
    if phrases[index].rule.label is not Label.PREVIOUSLY:
        return True
    return all(phrases[at].kind is not Kind.UNIT for at in (index - 1, index + 1) if 0 <= at < len(phrases))


def _earlier_size(phrases: Sequence[Phrase], index: int) -> bool:
    """Whether a size is that of an earlier image: "1.8 cm, previously 3 cm", "compared to 3 cm", "down from 3 cm"."""
    before = phrases[index - 1].rule.label if index else Label.NONE
    if before in (Label.FROM, Label.PREVIOUSLY, Label.FROM_EARLIER_SIZE, Label.COMPARISON):
        return True
    following = phrases[index + 1 : index + 3]
    if not following or following[0].rule.label is not Label.PREVIOUSLY:
        return False
    return (
        len(following) == 1 or following[1].kind is not Kind.UNIT
    )  # "3 cm previously", not "1.8 cm (previously 3 cm)"


# ── sides, locations and severities in a list ─────────────────────────────────────────────────────


def _groups(phrases: Sequence[Phrase], indices: Sequence[int]) -> list[ModifierGroup]:
    """Modifiers in order, parted where a list word stands between them."""
    groups: list[ModifierGroup] = []
    current = ModifierGroup()
    parted = False
    for index in indices:
        phrase = phrases[index]
        kind = phrase.kind
        if kind in LIST:
            parted = True
            continue
        if kind is Kind.PREDICATE and phrase.rule.name == "enlarged" and current.severity is None:
            current.severity = Severity.SEVERE  # "a wide pneumothorax"
        # Before an adjective or article "both" counts two statements and is not a side.
        counts = phrase.rule.label is Label.BOTH and index + 1 < len(phrases) and phrases[index + 1].kind in _COUNTED
        if kind not in MODIFIERS or counts:
            continue
        another_side = kind is Kind.SIDE and current.side not in (None, phrase.rule.side)
        another_rib = kind is Kind.ORDINAL and bool(current.locations)
        if parted or another_side or another_rib:
            if current.placed or current.severity is not None:
                groups.append(current)
                current = ModifierGroup()
                current.series = kind is Kind.ORDINAL and not parted
            parted = False
        current.add(phrase)
    if current.placed or current.severity is not None:
        groups.append(current)
    return groups


def _completed(groups: list[ModifierGroup]) -> list[ModifierGroup]:
    """Fill what a list leaves out: "right upper and lower lobes", "left and right bases", "ribs 5 to 7"."""
    noun = ""
    for group in groups:
        group.stated = group.side is not None and bool(group.locations)
    for group in reversed(groups):
        if group.level is not None:
            for location in (f"{group.level} {noun}", f"{group.level} zone", f"{group.level}dle lobe"):
                if location in LOCATIONS and (noun or location.endswith("zone")):
                    group.locations.append(location)
                    break
            group.level = None
        if group.locations:
            noun = group.locations[-1].rpartition(" ")[2]
    side: Side | None = None
    if groups and groups[-1].side_last and all(group.side is None for group in groups[:-1]):
        side = groups[-1].side  # "ribs 3 and 4 on the right"
    for group in groups:
        if group.side is None and group.locations:
            group.side = side
        side = group.side or side
    following: list[str] = []
    for group in reversed(groups):
        if group.side is not None and not group.locations and group.severity is None:
            group.locations = list(following)
        following = group.locations
    filled: list[ModifierGroup] = []
    for group in groups:  # the ribs between the two ends of a series
        if group.series and filled and group.rib and filled[-1].rib:
            for number in range(filled[-1].rib + 1, group.rib):
                filled.append(ModifierGroup(group.side, [f"rib {number}"]))
        filled.append(group)
    return filled


def _combined(left: list[ModifierGroup], right: list[ModifierGroup]) -> list[ModifierGroup]:
    """The groups before and after a statement as one list."""
    if not left or not right:
        return left or right
    many, few = (right, left) if len(right) > 1 else (left, right)
    for group in many:
        group.side = group.side or few[0].side
        group.locations = group.locations or few[0].locations
        group.severity = group.severity or few[0].severity
    return many


def _merged(groups: list[ModifierGroup]) -> list[ModifierGroup]:
    """Left and right of the same location and severity are one finding on both sides."""
    kept: list[ModifierGroup] = []
    for group in groups:
        for other in kept:
            same_severity = other.severity == group.severity or group.severity is None
            same = other.locations[:1] == group.locations[:1] and same_severity
            apart = group.side is not None and other.side is not None and group.side != other.side
            if same and apart and not (group.stated and other.stated):
                other.side = Side.BILATERAL
                break
            same_side = group.side == other.side
            bare = not group.locations and group.severity is None and same_side  # "…, right more than left"
            unplaced = group.side is None and not group.locations
            if bare or (same and not apart and (same_side or unplaced)):
                other.severity = other.severity or group.severity
                break
        else:
            kept.append(group)
    return kept
