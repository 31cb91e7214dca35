"""Change and size of a statement: which words are of this film and which of an earlier one or of advice."""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.core.vocabulary import Change
from cxrlab.findings.reading.claims import Claim
from cxrlab.findings.reading.degrees import DOWN_OR_UP, PREVIOUS
from cxrlab.findings.reading.joints import FROM
from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.rows import Kind

_WHEN = PREVIOUS[1]  # "previously" alone
_COURSE = frozenset({Change.INCREASED, Change.DECREASED})


def of_change(items: Sequence[Item], index: int) -> bool:
    """Whether a degree is of a change and not of the thing: "slight increase in", "has slightly increased"."""
    following = items[index + 1] if index + 1 < len(items) else None
    if following is not None and following.kind is Kind.CHANGE and following.row.change in _COURSE:
        return bool(following.row.noun or items[index].row.adverb)
    before = items[index - 1] if index else None
    return bool(
        before is not None
        and before.kind is Kind.CHANGE
        and before.row.change in _COURSE
        and items[index].row.adverb  # "has increased slightly"
    )


def late_change(items: Sequence[Item], claim: Claim, after: Sequence[int]) -> Change | None:
    """A change that follows the verb or stands at once after the name: it is the news of the sentence."""
    verbal = False
    for place, index in enumerate(after):
        item = items[index]
        if item.kind is Kind.VERB:
            verbal = True
        elif item.kind is Kind.CHANGE and (verbal or place == 0) and item.first > items[claim.end].first:
            if _compares(items, index):
                change: Change = item.row.change
                return change
    return None


def early_change(items: Sequence[Item], indices: Sequence[int]) -> Change | None:
    """The first of these items that says how the thing changed."""
    for index in indices:
        if items[index].kind is Kind.CHANGE and _compares(items, index):
            change: Change = items[index].row.change
            return change
    return None


def size_of(items: Sequence[Item], claim: Claim, indices: Sequence[int]) -> float | None:
    """The largest size on this film in millimetres, or None."""
    sizes = [
        items[index].value or 0.0
        for index in indices
        if items[index].kind is Kind.UNIT
        and items[index].value
        and not _earlier(items, index)
        and not any(item.kind is Kind.ASIDE for item in items[claim.end + 1 : index])  # "should be withdrawn 3 cm"
    ]
    return max(sizes) if sizes else None


def _compares(items: Sequence[Item], index: int) -> bool:
    """Whether an item compares two films; "previously" beside a size only says when."""
    if items[index].row is not _WHEN:
        return True
    return all(items[at].kind is not Kind.UNIT for at in (index - 1, index + 1) if 0 <= at < len(items))


def _earlier(items: Sequence[Item], index: int) -> bool:
    """Whether a size is that of an earlier film: "1.8 cm, previously 3 cm", "down from 3 cm"."""
    before = items[index - 1].row if index else None
    after = [item.row if item.kind is not Kind.UNIT else None for item in items[index + 1 : index + 3]]
    behind = after[:1] == [_WHEN] and after[1:] != [None]  # "3 cm previously", but not "1.8 cm (previously 3 cm)"
    return behind or before is FROM or before is _WHEN or any(before is row for row in DOWN_OR_UP)
