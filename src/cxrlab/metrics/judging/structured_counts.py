"""Error counts in JSON objects and in tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.count_parts import (
    KINDS,
    LARGEST,
    MATCHED,
    TOTAL,
    WEIGHTS,
    Cell,
    Count,
    Total,
    Unit,
    labelled_kind,
    named_kind,
    read_count,
    told,
    weight_of,
)

DEEPEST = 8
_SINGLE = re.compile(r"'([^'\"\n]{0,160})'")
_PYTHON = {"None": "null", "True": "true", "False": "false"}
_CONSTANT = re.compile(r"\b(?:None|True|False)\b(?=\s*[,}\]])")
_COUNT_KEYS = ("count", "number", "n", "total", "value")
_KIND_KEYS = ("type", "kind", "category", "error", "error type", "error_type", "label", "name")


def objects_in(text: str) -> Iterator[tuple[int, int, Any]]:
    """Start, end and value of every outermost `{…}` of a text that can be read as an object."""
    depth = deepest = start = 0
    for place, sign in enumerate(text):
        if sign == "{":
            start = place if depth == 0 else start
            depth += 1
            deepest = max(deepest, depth)
        elif sign == "}" and depth:
            depth -= 1
            if depth == 0:
                if deepest <= DEEPEST and (value := _loaded(text[start : place + 1])) is not None:
                    yield start, place + 1, value
                deepest = 0


def _loaded(chunk: str) -> dict[str, Any] | None:
    plain = _CONSTANT.sub(lambda found: _PYTHON[found[0]], _SINGLE.sub(r'"\1"', chunk))
    for form in (chunk, plain):
        try:
            value = json.loads(form, object_pairs_hook=_Pairs, parse_int=_whole, parse_constant=lambda name: name)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else None
    return None


def _whole(digits: str) -> float:
    return float(digits[:20])  # what is longer is refused as a count, whatever its last digits are


class _Pairs(dict[str, Any]):
    """An object that remembers the keys that it was given twice with different values."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        self.twice: list[str] = []
        for key, value in pairs:
            if key in self and self[key] != value:
                self.twice.append(key)
            self[key] = value


@dataclass
class _Found:
    counts: dict[Cell, float] = field(default_factory=dict)
    matched: float | None = None
    problems: list[str] = field(default_factory=list)
    clash: str | None = None
    totals: list[Total] = field(default_factory=list)

    def add(self, weight: str | None, kind: ErrorKind | None, count: Count) -> None:
        """Put a count where it belongs; one that belongs nowhere is left out."""
        if weight == MATCHED and kind is None:
            self._take_matched(count)
        elif weight in WEIGHTS and kind is not None:
            cell = (str(weight), kind)
            if count.value is None:
                self.problems.append(f"{count.problem} for {told(cell)}")
            elif self.counts.setdefault(cell, count.value) != count.value:
                self.clash = f"two different counts for {told(cell)}"

    def _take_matched(self, count: Count) -> None:
        if count.value is None or count.value != int(count.value):
            self.problems.append(f"{count.problem or 'a fraction'} for matched findings")
        elif self.matched not in (None, count.value):
            self.clash = "two different counts for matched findings"
        else:
            self.matched = count.value


def read_objects(text: str, *, fractions: bool) -> list[Unit]:
    """One unit an object that holds counts."""
    units = []
    for start, end, value in objects_in(text):
        found = _Found()
        _walk(value, None, None, found, fractions)
        about = {weight for weight, _ in found.counts} | ({MATCHED} if found.matched is not None else set())
        if about or found.problems or found.clash:
            told = (found.counts, found.matched, tuple(found.problems), (), found.clash, tuple(found.totals))
            units.append(Unit(start, end, frozenset(about), *told))
    return units


def _walk(value: Any, weight: str | None, kind: ErrorKind | None, found: _Found, fractions: bool) -> None:
    if isinstance(value, dict):
        _walk_object(value, weight, kind, found, fractions)
    elif isinstance(value, list):
        _walk_list(value, weight, kind, found, fractions)
    else:
        found.add(weight, kind, _count(value, fractions))


def _walk_object(
    value: Mapping[str, Any], weight: str | None, kind: ErrorKind | None, found: _Found, fractions: bool
) -> None:
    if isinstance(value, _Pairs) and value.twice:
        found.clash = f"the key '{value.twice[0][:40]}' with two different values"
    named = next((label for key in _KIND_KEYS if (label := _named(value.get(key))) is not None), None)
    kind = kind or named
    flagged = named is not None and any(key.lower() in _COUNT_KEYS for key in value)
    for key, inner in value.items():
        about = weight_of(key)
        if kind is None and TOTAL.fullmatch(key) and about != MATCHED and isinstance(inner, float):
            found.totals.append((about or weight, inner))
            continue
        if key.lower() in _COUNT_KEYS:
            if not isinstance(inner, (dict, list)):
                found.add(weight, kind, _count(inner, fractions))
            continue
        which = kind or (named_kind(key) if about in WEIGHTS else None if about else labelled_kind(key))
        if flagged and about in WEIGHTS and not isinstance(inner, (dict, list)):
            # {"type": "A", "significant": 1, "count": 3}: whether it is significant, not how often.
            found.add(about, kind, Count(None, "a flag beside a count"))
            continue
        if about is None and which is None and not isinstance(inner, (dict, list)):
            continue  # an explanation, a total, or anything else that is no cell
        _walk(inner, about or weight, which, found, fractions)


def _named(label: Any) -> ErrorKind | None:
    return labelled_kind(label) if isinstance(label, str) else None


def _walk_list(value: list[Any], weight: str | None, kind: ErrorKind | None, found: _Found, fractions: bool) -> None:
    if kind is not None or weight == MATCHED:
        found.add(weight, kind, Count(None, "a list instead of a count"))
    elif len(value) == len(KINDS) and all(isinstance(item, float) for item in value):
        for place, item in enumerate(value):
            found.add(weight, KINDS[place], _count(item, fractions))
    else:
        for item in value:
            if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str):
                found.add(weight, labelled_kind(item[0]), _count(item[1], fractions))
            elif isinstance(item, dict):
                _walk(item, weight, None, found, fractions)


def _count(value: Any, fractions: bool) -> Count:
    if isinstance(value, str):
        count = read_count(value[:80], fractions=fractions)
        rest = value[count.end :].strip(" \"'*_`.")
        return Count(None, "more than a number") if count.value is not None and rest else count
    if isinstance(value, bool) or not isinstance(value, float):
        return Count(None, "no number")
    if value != value or value < 0 or value > LARGEST:
        return Count(None, "a negative number" if value < 0 else f"a count above {LARGEST}")
    return Count(value) if fractions or value == int(value) else Count(None, "a fraction")


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
        count = _count_tables(text, fractions)
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
    counts = [(weight, _count_tables(cell, fractions=True).value) for weight, cell in pairs if weight is not None]
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


def _count_tables(text: str | None, fractions: bool) -> Count:
    if text is None:
        return Count(None, "a row of another length")
    count = read_count(text[:80], fractions=fractions)
    rest = text[count.end :].strip(" \"'*_`.")
    return Count(None, "more than a number") if count.value is not None and rest else count
