"""Items into sentences, without the sections that say nothing of the film."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cxrlab.findings.reading.phrases import Item
from cxrlab.findings.reading.rows import Kind
from cxrlab.findings.reading.tokens import Token

# First words of headings. What stands under the second kind is why and how the film was taken.
_REPORT = frozenset(
    {"finding", "impression", "conclusion", "report", "summary", "opinion", "interpretation", "assessment"}
)
_FRAME = frozenset(
    "indication history technique comparison reason clinical procedure information type date protocol ordering"
    " diagnosis symptom complaint views view".split()
)
# What the film was compared with and how it was taken is said in a sentence; the report may follow on the same line.
_BRIEF = frozenset({"comparison", "technique", "views", "view"})
_CHEST = frozenset({"chest", "heart", "lungs", "mediastinum", "cardiomediastinum", "pleura", "aorta", "vasculature"})
LONGEST = 120  # items; text without a full stop is cut, so that the time grows with its length alone
_LONGEST_HEADING = 5  # words before a colon
# A line that ends in one of these, or begins with one of those below, goes on over the line break.
_OPEN_END = frozenset(
    {
        Kind.COMMA, Kind.AND, Kind.OR, Kind.VERSUS, Kind.WITH, Kind.PREPOSITION, Kind.ARTICLE, Kind.THERE,
        Kind.NEGATION, Kind.HEDGE, Kind.HEDGE_EITHER, Kind.HEDGE_LINK, Kind.LINK, Kind.DEGREE, Kind.SIDE, Kind.LEVEL,
        Kind.VERB, Kind.ASIDE, Kind.RESOLUTION, Kind.ORDINAL, Kind.COLON,
    }
)  # fmt: skip
_OPEN_START = frozenset(
    {
        Kind.COMMA, Kind.AND, Kind.OR, Kind.VERSUS, Kind.WITH, Kind.PREPOSITION, Kind.VERB, Kind.DENIED, Kind.HEDGED,
        Kind.RESOLVED, Kind.UNSEEN, Kind.UNLIKELY, Kind.LINK, Kind.HEDGE_LINK, Kind.BREAK, Kind.TIP, Kind.ABOVE,
    }
)  # fmt: skip


class Sentence:
    """The items of one sentence, and the tokens [first, last) that it covers."""

    __slots__ = ("first", "items", "last")

    def __init__(self, items: list[Item], first: int, last: int) -> None:
        self.items = items
        self.first = first
        self.last = last


def sentences(found: Sequence[Token], items: Sequence[Item]) -> Iterator[Sentence]:
    """Sentences about the film, in order; headings, and what stands under history and technique, are left out."""
    part: list[Item] = []
    aside = brief = False  # under a heading that is put aside; for one sentence
    first, reopened = 0, _reopened(found)
    broken = any(token.lines for token in found)
    previous: Item | None = None
    for item in items:
        start = item.first
        if previous is not None and previous.kind is not Kind.STOP:
            lines = _lines(found, previous.last, start) if broken else 0
            if lines > 1 or (lines and previous.kind not in _OPEN_END and item.kind not in _OPEN_START):
                if part and not aside:
                    yield Sentence(part, first, previous.last)
                part, first = [], start
                aside = aside and lines < 2
        elif previous is not None and aside and (brief or found[start].lines):
            aside = False
        if item.kind is Kind.COLON and (heading := _heading(found, first, start)):
            before = [earlier for earlier in part if earlier.last <= heading[1]]
            if before and heading[1] > first and not aside:
                yield Sentence(before, first, heading[1])
            aside, brief = heading[0], found[heading[1]].word in _BRIEF or start > reopened
            if aside or heading[2]:
                part, first = [], item.last
                previous = item
                continue
        if item.kind is Kind.STOP or len(part) == LONGEST:
            if part and not aside:
                yield Sentence(part, first, start)
            part, first = [], item.last
        else:
            part.append(item)
        previous = item
    if part and not aside:
        yield Sentence(part, first, len(found))


def of_the_chest(parts: Iterable[Sentence]) -> Iterator[Sentence]:
    """Those not about another part of the body; a heading such as "Left knee." holds until the chest is named again."""
    elsewhere = False
    for part in parts:
        kinds = {item.kind for item in part.items}
        if Kind.OTHER_BODY in kinds:
            elsewhere = elsewhere or not kinds & {Kind.MENTION, Kind.PREDICATE, Kind.VERB}
            continue
        elsewhere = elsewhere and not any(item.kind is Kind.SUBJECT and item.row.name in _CHEST for item in part.items)
        if not elsewhere:
            yield part


def _reopened(found: Sequence[Token]) -> int:
    """The last token at which a new line or a heading of the report begins; after it a reason is one sentence long."""
    for index in range(len(found) - 1, 0, -1):
        if found[index].lines or (found[index].word == ":" and found[index - 1].word in _REPORT):
            return index
    return -1


def _lines(found: Sequence[Token], after: int, until: int) -> int:
    return max((found[index].lines for index in range(after, min(until + 1, len(found)))), default=0)


def _heading(found: Sequence[Token], first: int, colon: int) -> tuple[bool, int, bool] | None:
    """Of the words before a colon: do they head what is put aside, where do they begin, do they head a section."""
    begin = colon - 1
    if begin >= 0 and found[begin].word in _REPORT:
        return False, begin, True
    words = [found[index].word for index in range(max(first, colon - _LONGEST_HEADING), colon)]
    for offset, word in enumerate(words):
        if word in _FRAME and (colon - first <= _LONGEST_HEADING or len(words) - offset <= 2):
            return True, max(first, colon - len(words) + offset) if colon - first > _LONGEST_HEADING else first, True
    if colon - first <= _LONGEST_HEADING and colon > first:
        return False, first, False
    return None
