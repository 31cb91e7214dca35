"""What a sentence takes from, or adds to, the ones before it: pronouns, and sides named by comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cxrlab.core.vocabulary import OBSERVATIONS, TIPS, Side
from cxrlab.findings.reading.anatomy import OTHER_SIDE, SAME_SIDE
from cxrlab.findings.reading.attributes import Traits
from cxrlab.findings.reading.changes import of_change
from cxrlab.findings.reading.claims import Claim
from cxrlab.findings.reading.cues import DIFFERENTIAL
from cxrlab.findings.reading.joints import APPEARANCE
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.places import Where
from cxrlab.findings.reading.rows import Kind, Word
from cxrlab.findings.reading.sharing import EXPLAINS, alternative, has_place

if TYPE_CHECKING:
    from cxrlab.findings.reading.drafts import Draft

_OPPOSITE = {Side.LEFT: Side.RIGHT, Side.RIGHT: Side.LEFT}
_SIDES = {side: Word(Kind.SIDE, "", "stands for a side named by comparison", side=side) for side in _OPPOSITE}
_NO_SIDE = Word(Kind.FILLER, "", "compares with a side that was never named")


def sides_resolved(items: list[Item], earlier: Sequence[Draft]) -> list[Item]:
    """The items with "ipsilateral" and "contralateral" as the side that they mean; fillers where none was named."""
    if not any(item.row is SAME_SIDE or item.row is OTHER_SIDE for item in items):
        return items
    last = next((draft.side for draft in reversed(earlier) if draft.side in _OPPOSITE), None)
    resolved: list[Item] = []
    for item in items:
        if item.row is SAME_SIDE or item.row is OTHER_SIDE:
            meant = _OPPOSITE[last] if last is not None and item.row is OTHER_SIDE else last
            resolved.append(Item(_SIDES[meant] if meant else _NO_SIDE, item.first, item.last))
            continue
        if item.kind in (Kind.SIDE, Kind.PLACE) and item.row.side in _OPPOSITE:
            last = item.row.side
        resolved.append(item)
    return resolved


def explain_earlier(
    items: Sequence[Item], found: Sequence[Claim], all_traits: Sequence[Traits], earlier: Sequence[Draft]
) -> None:
    """An explanation of the finding before is where that is: "Opacity at the left base. This may be pneumonia."."""
    if not earlier or earlier[-1].absent or not found or not found[0].observations:
        return
    if not _speaks_of_earlier(items[: found[0].start]):
        return
    last = earlier[-1]
    meant = [draft for draft in earlier[-4:] if draft.at == last.at and draft.name == last.name]
    moved = last.name in ("mediastinal shift", "tracheal deviation")  # their side is a direction
    if moved or not has_place(found[0]) or not OBSERVATIONS[last.name].sided or all_traits[0].groups or found[0].side:
        return
    for claim, own, following in zip(found, all_traits, (*found[1:], None), strict=True):
        own.groups = own.groups or [_where(draft) for draft in meant if draft.side or draft.place]
        if following is None or not following.possible or not has_place(following) or following.side:
            return
        if not alternative([item.kind for item in items[claim.end + 1 : following.start]]):
            return


def _speaks_of_earlier(opening: Sequence[Item]) -> bool:
    """Whether the words before the first statement make it an explanation of something said before."""
    if any(item.row is DIFFERENTIAL for item in opening):
        return True
    says = [index for index, item in enumerate(opening) if item.kind is Kind.PRONOUN or item.row is APPEARANCE]
    return bool(says) and any(item.kind in EXPLAINS for item in opening[says[0] + 1 :])


def _where(draft: Draft) -> Where:
    where = Where()
    where.side, where.places = draft.side, [draft.place] if draft.place else []
    return where


def refine(items: Sequence[Item], earlier: Sequence[Draft]) -> None:
    """A sentence that names nothing speaks of the finding before it: "It has increased"."""
    if not earlier or not items or items[0].kind is not Kind.PRONOUN or any(item.kind is Kind.ASIDE for item in items):
        return
    last = earlier[-1]
    for index, item in enumerate(items):
        if item.kind is Kind.CHANGE and last.change is None and not last.absent:
            last.change = item.row.change
        elif item.kind is Kind.DEGREE and last.degree is None and not of_change(items, index):
            last.degree = item.row.degree
        elif item.kind is Kind.UNIT and last.size is None and last.name not in TIPS:
            last.size = item.value
