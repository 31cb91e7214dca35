"""Counts in objects: JSON, or Python's way of writing the same, in any of the shapes that judges use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.parsing.kinds import KINDS, labelled_kind, named_kind, weight_of
from cxrlab.metrics.judging.parsing.numbers import LARGEST, Count, read_count
from cxrlab.metrics.judging.parsing.parsed import MATCHED, WEIGHTS, Cell, told
from cxrlab.metrics.judging.parsing.totals import TOTAL, Total
from cxrlab.metrics.judging.parsing.units import Unit

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
