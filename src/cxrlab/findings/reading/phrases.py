"""All tables in one tree of words, and the walk through a text that finds the longest phrases."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cxrlab.findings.reading.anatomy import NUMBERED
from cxrlab.findings.reading.parts import RIB
from cxrlab.findings.reading.rows import Cue, Kind, Row, Word, spellings
from cxrlab.findings.reading.spelling import PASSED, SAME
from cxrlab.findings.reading.tokens import VERTEBRA, Spelling, Token

_ROW = ""  # key under which a node keeps the row that ends there; no word is empty
_MARKS = {
    ",": Kind.COMMA, "/": Kind.OR, ";": Kind.BREAK, ":": Kind.COLON, ".": Kind.STOP, "!": Kind.STOP, "?": Kind.QUERY,
}  # fmt: skip


class Item:
    """A phrase found in the text: tokens [first, last)."""

    __slots__ = ("first", "kind", "last", "row", "value")

    def __init__(self, row: Any, first: int, last: int, value: float | None = None) -> None:
        self.kind: Kind = row.kind
        self.row = row
        self.first = first
        self.last = last
        self.value = value

    def __repr__(self) -> str:
        return f"{self.kind.name}[{self.first}:{self.last}]"


class Phrases:
    """The tables, ready to be found in text.

    Args:
        rows: Of all tables; two rows must not claim the same line of words.
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._tree: dict[str, Any] = {}
        self.clashes: list[str] = []  # lines of words that two rows claim; the first has them
        self._read_as = {other: word for word, others in SAME.items() for other in others.split()}
        words: set[str] = {VERTEBRA, *PASSED, *SAME, *self._read_as}
        for row in rows:
            for line in spellings(row.phrases):
                words.update(line)
                self._add(tuple(self._read_as.get(word, word) for word in line if word not in PASSED), row)
        for mark, kind in _MARKS.items():
            self._add((mark,), Cue(kind, mark, "a mark of its own"))
        self.spelling = Spelling(words, self._read_as, PASSED)

    def _add(self, line: tuple[str, ...], row: Row) -> None:
        node = self._tree
        for word in line:
            node = node.setdefault(word, {})
        other = node.setdefault(_ROW, row)
        if other is not row and other != row:
            self.clashes.append(" ".join(line))

    def find(self, found: Sequence[Token]) -> list[Item]:
        """The longest phrase at each word, left to right, none overlapping; time grows with the text alone."""
        items: list[Item] = []
        ribs: dict[int, float] = {}
        root, index, count = self._tree, 0, len(found)
        while index < count:
            node = root.get(found[index].word)
            if node is None:
                if index in ribs:
                    items.append(Item(NUMBERED, index, index + 1, ribs[index]))
                index += 1
                continue
            at = end = index + 1
            best = node.get(_ROW)
            while at < count and (node := node.get(found[at].word)) is not None:
                at += 1
                if _ROW in node:
                    best, end = node[_ROW], at
            if best is None:
                index += 1
                continue
            if best.kind in _COUNTED:
                items.append(_measured(found, index, best))
            elif best.kind is Kind.QUERY:
                items.append(Item(best, index, end, float(_leads(found, index))))
            else:
                items.append(Item(best, index, end))
                if best is RIB:
                    ribs = _numbers_after(found, end)
            index = end
        return items


_COUNTED = (Kind.UNIT, Kind.ORDINAL)
_BETWEEN_RIBS = frozenset({",", "and", "to", "through", "number"})
_BETWEEN_NUMBERS = frozenset({"x", "by", "to", "and", "or", "times"})


def _leads(found: Sequence[Token], at: int) -> bool:
    """Whether a mark is written to the word after it and not to the one before: "?infection"."""
    joined = at + 1 < len(found) and found[at + 1].start == found[at].end
    return joined and not (at and found[at - 1].end == found[at].start)


def _measured(found: Sequence[Token], at: int, row: Word) -> Item:
    """A unit with the numbers before it, in millimetres; "8th" with its number."""
    if row.kind is Kind.ORDINAL:
        if row.number is not None:
            return Item(row, at, at + 1, row.number)
        number = _number(found[at - 1].word) if at else None
        return Item(row, at - (number is not None), at + 1, number)
    numbers: list[float] = []
    index = at - 1
    while index >= 0 and at - index < 8:
        number = _number(found[index].word)
        if number is not None:
            numbers.append(number)
        elif found[index].word not in _BETWEEN_NUMBERS or not numbers:
            break
        index -= 1
    return Item(row, index + 1, at + 1, max(numbers) * (row.number or 1) if numbers else None)


def _numbers_after(found: Sequence[Token], at: int) -> dict[int, float]:
    """The numbers of "ribs 5, 6 and 9" or "ribs 5 to 8" by token; one with a unit is no rib."""
    numbers: dict[int, float] = {}
    while at < len(found):
        number = _number(found[at].word)
        if number is not None and 1 <= number <= 12 and number == int(number):
            numbers[at] = number
        elif not (found[at].word in _BETWEEN_RIBS and at + 1 < len(found) and found[at + 1].word[0].isdigit()):
            break
        at += 1
    if at < len(found) and found[at].word in ("cm", "mm"):
        numbers.pop(at - 1, None)
    return numbers


def _number(word: str) -> float | None:
    return float(word) if word[0].isdigit() and len(word) < 9 else None


@functools.cache
def load() -> Phrases:
    """The tables of this package, put together on the first use."""
    from cxrlab.findings.reading import (
        anatomy,
        cues,
        degrees,
        joints,
        mentions_bone,
        mentions_devices,
        mentions_heart,
        mentions_lung,
        mentions_pleura,
        parts,
        predicates,
        tips,
    )

    tables: Iterator[Iterable[Row]] = iter(
        (
            anatomy.ROWS, cues.ROWS, degrees.ROWS, joints.ROWS, mentions_bone.ROWS, mentions_devices.ROWS,
            mentions_heart.ROWS, mentions_lung.ROWS, mentions_pleura.ROWS, parts.SUBJECTS, predicates.PREDICATES,
            predicates.GENERICS, tips.ROWS,
        )
    )  # fmt: skip
    return Phrases(row for table in tables for row in table)
