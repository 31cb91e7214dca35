"""Counts in tables whose cells are parted by bars."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.parsing.kinds import labelled_kind, weight_of
from cxrlab.metrics.judging.parsing.numbers import Count, read_count
from cxrlab.metrics.judging.parsing.parsed import WEIGHTS, Cell, told
from cxrlab.metrics.judging.parsing.totals import TOTAL, Total
from cxrlab.metrics.judging.parsing.units import Unit

_ROW = re.compile(r"^[^\n|]*\|[^\n]*\|[^\n]*$", re.M)
_RULE = re.compile(r"[\s|:+-]*")
# A column that speaks of significant errors and does not count them.
_NO_COUNTS = re.compile(r"[%?]|percent|share|rate\b|probab|confiden|yes|0/1", re.I)
Row = tuple[int, int, list[str]]


def read_tables(text: str, *, fractions: bool) -> list[Unit]:
    """One unit a table with a column a weight and a row a kind, or the other way round."""
    return [unit for rows in _tables(text) if (unit := _unit(rows, fractions)) is not None]


def _tables(text: str) -> Iterator[list[Row]]:
    rows: list[Row] = []
    for found in _ROW.finditer(text):
        if rows and text[rows[-1][1] : found.start()].strip("\n") != "":
            yield rows
            rows = []
        if rows and found.start() - rows[-1][1] > 1:  # an empty line between them
            yield rows
            rows = []
        rows.append((found.start(), found.end(), _cells(found[0])))
    if rows:
        yield rows


def _cells(line: str) -> list[str]:
    # One bar at either end is the table's frame; a second one is a cell without a word.
    return [cell.strip(" *_`\"'") for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _unit(rows: Sequence[Row], fractions: bool) -> Unit | None:
    lines = [row for row in rows if not _RULE.fullmatch("|".join(row[2]))]
    if len(lines) < 2:
        return None
    head = lines[0][2]
    weights = [weight if (weight := _counted(cell)) in WEIGHTS else None for cell in head]
    kinds = [labelled_kind(cell) if cell else None for cell in head]
    placed = (
        _by_kind(lines[1:], weights)
        if any(weights)
        else _by_weight(lines[1:], kinds)
        if sum(kind is not None for kind in kinds) >= 3
        else []
    )
    counts: dict[Cell, float] = {}
    problems = []
    clash = None
    for cell, text in placed:
        count = _count(text, fractions)
        if count.value is None:
            problems.append(f"{count.problem} for {told(cell)}")
        elif counts.setdefault(cell, count.value) != count.value:
            clash = f"two different counts for {told(cell)}"
    if not placed:
        return None
    about = frozenset(weight for weight, _ in counts)
    parts = tuple(" ".join(cells) for _, _, cells in lines)
    totals = _totals(lines[1:], weights)
    return Unit(rows[0][0], rows[-1][1], about, counts, None, tuple(problems), parts, clash, totals)


def _counted(head: str) -> str | None:
    return None if _NO_COUNTS.search(head) else weight_of(head)


def _aligned(cells: Sequence[str], columns: int) -> Sequence[str | None]:
    """The cells of a row; with one too many or too few nobody can tell which column a number stands in."""
    return cells if len(cells) == columns else [None] * columns


def _by_kind(lines: Sequence[Row], weights: Sequence[str | None]) -> list[tuple[Cell, str | None]]:
    placed: list[tuple[Cell, str | None]] = []
    for _, _, cells in lines:
        label = next((kind for cell in cells[:2] if (kind := _kind(cell)) is not None), None)
        if label is not None:
            pairs = zip(weights, _aligned(cells, len(weights)), strict=True)
            placed += [((weight, label), cell) for weight, cell in pairs if weight is not None]
    return placed


def _totals(lines: Sequence[Row], weights: Sequence[str | None]) -> tuple[Total, ...]:
    """What the row of totals says of each weight."""
    said = [cells for _, _, cells in lines if cells and TOTAL.fullmatch(cells[0])]
    pairs = [pair for cells in said for pair in zip(weights, _aligned(cells, len(weights)), strict=True)]
    counts = [(weight, _count(cell, fractions=True).value) for weight, cell in pairs if weight is not None]
    return tuple((weight, value) for weight, value in counts if value is not None)


def _kind(cell: str) -> ErrorKind | None:
    # A number alone is a count or the number of the row; which, only a name beside it would tell.
    return None if not cell or cell.isdigit() else labelled_kind(cell)


def _by_weight(lines: Sequence[Row], kinds: Sequence[ErrorKind | None]) -> list[tuple[Cell, str | None]]:
    placed: list[tuple[Cell, str | None]] = []
    for _, _, cells in lines:
        weight = _counted(cells[0]) if cells else None
        if weight in WEIGHTS:
            pairs = zip(kinds, _aligned(cells, len(kinds)), strict=True)
            placed += [((str(weight), kind), cell) for kind, cell in pairs if kind is not None]
    return placed


def _count(text: str | None, fractions: bool) -> Count:
    if text is None:
        return Count(None, "a row of another length")
    count = read_count(text[:80], fractions=fractions)
    rest = text[count.end :].strip(" \"'*_`.")
    return Count(None, "more than a number") if count.value is not None and rest else count
