"""Counts in tables whose cells are parted by bars."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.parsing.kinds import labelled_kind, weight_of
from cxrlab.metrics.judging.parsing.numbers import Count, read_count
from cxrlab.metrics.judging.parsing.parsed import WEIGHTS, Cell, told
from cxrlab.metrics.judging.parsing.units import Unit

_ROW = re.compile(r"^[^\n|]*\|[^\n]*\|[^\n]*$", re.M)
_RULE = re.compile(r"[\s|:+-]*")
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
    return [cell.strip(" *_`\"'") for cell in line.strip().strip("|").split("|")]


def _unit(rows: Sequence[Row], fractions: bool) -> Unit | None:
    lines = [row for row in rows if not _RULE.fullmatch("|".join(row[2]))]
    if len(lines) < 2:
        return None
    head = lines[0][2]
    weights = [weight if (weight := weight_of(cell)) in WEIGHTS else None for cell in head]
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
    return Unit(rows[0][0], rows[-1][1], about, counts, None, tuple(problems), parts, clash)


def _by_kind(lines: Sequence[Row], weights: Sequence[str | None]) -> list[tuple[Cell, str]]:
    placed = []
    for _, _, cells in lines:
        label = next((kind for cell in cells[:2] if (kind := _kind(cell)) is not None), None)
        if label is not None:
            pairs = zip(weights, cells, strict=False)
            placed += [((weight, label), cell) for weight, cell in pairs if weight is not None]
    return placed


def _kind(cell: str) -> ErrorKind | None:
    # A number alone is a count or the number of the row; which, only a name beside it would tell.
    return None if not cell or cell.isdigit() else labelled_kind(cell)


def _by_weight(lines: Sequence[Row], kinds: Sequence[ErrorKind | None]) -> list[tuple[Cell, str]]:
    placed = []
    for _, _, cells in lines:
        weight = weight_of(cells[0]) if cells else None
        if weight in WEIGHTS:
            pairs = zip(kinds, cells, strict=False)
            placed += [((str(weight), kind), cell) for kind, cell in pairs if kind is not None]
    return placed


def _count(text: str, fractions: bool) -> Count:
    count = read_count(text[:80], fractions=fractions)
    rest = text[count.end :].strip(" \"'*_`.")
    return Count(None, "more than a number") if count.value is not None and rest else count
