"""Audited models against each other: differences, tests, and images made for one model shown to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.components import (
    UNKNOWN,
    Cell,
    Table,
    changed,
    difference,
    figure,
    grouped_table,
    measured,
    number,
    p_value,
    part,
)
from cxrlab.render.metric_names import FINDINGS, direction, heading, middle_radius, ordered, radius, split
from cxrlab.render.robustness_tables import FULL, Audited, name_of, strongest_attack

_ALPHA = 0.05
_FIRST = ("asked.accuracy", FINDINGS, "flip_rate")


@dataclass(frozen=True)
class Pair:
    """One model against another."""

    title: str  # Both models
    equal: tuple[bool, Any]  # Whether both start alike, with the sentence that says so
    counts: tuple[Any, Any]  # Studies and patients
    first: Table  # Differences at the middle radius
    more: Table  # Every other condition and metric
    flips: Table  # Studies that flip under one model only
    matched: tuple[Table, Any, Any]  # What both have right on the clean image, with the number of answers and reports


@dataclass(frozen=True)
class Transfer:
    """Images made for one model shown to another: a matrix under one condition, and all conditions as a list."""

    metric: str
    condition: str
    matrix: Table
    every: Table


@dataclass(frozen=True)
class Comparisons:
    """Every pair, and the transfer between all models."""

    pairs: tuple[Pair, ...]
    transfer: Transfer | None


def comparisons(audit: Mapping[str, Any], models: Sequence[Audited]) -> Comparisons | None:
    """Every pair of the audit; None where nothing was compared."""
    found = part(audit, "comparison")
    pairs = tuple(_pair(name, part(found, name), models, place < FULL) for place, name in enumerate(found))
    transfer = _transfer(found, models)
    return Comparisons(pairs, transfer) if pairs or transfer else None


def _keys(pair: str) -> tuple[str, str]:
    first, _, second = pair.partition(":")
    return first, second


def _pair(pair: str, found: Mapping[str, Any], models: Sequence[Audited], full: bool) -> Pair:
    names = {model.key: model.name for model in models}
    keys, by_condition = _keys(pair), part(found, "conditions")
    rows = [
        (name, metric)
        for name in ordered(by_condition)
        for metric, one in part(by_condition, name).items()
        if number(part(one).get("difference")) is not None
    ]
    size = middle_radius(name for name in by_condition if "/" in name or "." in name)
    first = [(name, m) for name, m in rows if m in _FIRST and radius(split(name)[1]) == size] or rows
    rest = [row for row in rows if row not in first] if full else []
    return Pair(
        title=" against ".join(f"{key} {names.get(key, '')}".strip() for key in reversed(keys)),
        equal=(bool(found.get("equal_clean")), found.get("sentence")),
        counts=(found.get("n"), found.get("patients")),
        first=_differences(by_condition, first, keys),
        more=_differences(by_condition, rest, keys),
        flips=_flips(part(found, "flips"), keys) if full else Table([], []),
        matched=_matched(part(found, "matched"), keys) if full else (Table([], []), None, None),
    )


def _differences(by_condition: Mapping[str, Any], chosen: Sequence[tuple[str, str]], keys: tuple[str, str]) -> Table:
    rows = []
    for name, metric in chosen:
        found, drop = part(by_condition, name, metric), part(by_condition, name, metric, "drop")
        rows.append(
            [
                name,
                heading(metric),
                figure(found.get("a")),
                figure(found.get("b")),
                changed(difference(found), direction(metric), _sure(found)),
                p_value(found.get("p_holm")),
                figure(found.get("smallest_detectable")),
                changed(drop, direction(metric), _sure(drop)),
                p_value(drop.get("p_holm")),
            ]
        )
    first, second = keys
    groups: list[tuple[str, Sequence[str]]] = [
        ("", ["condition", "metric"]),
        ("under attack", [first, second, f"{second} − {first}", "Holm p", "smallest detectable"]),
        ("difference of drops", [f"{second} − {first}", "Holm p"]),
    ]
    return grouped_table(groups, rows, words=2)


def _sure(found: Mapping[str, Any]) -> bool:
    """Whether a test still finds a difference after the correction for the number of tests."""
    p = number(found.get("p_holm"))
    return p is not None and p < _ALPHA


def _flips(found: Mapping[str, Any], keys: tuple[str, str]) -> Table:
    rows = []
    for name in ordered(found):
        one = part(found, name)
        counts = (one.get(key) for key in ("of", "only_a", "only_b", "both", "n"))
        rows.append([name, *counts, *(p_value(one.get(key)) for key in ("p", "p_holm"))])
    head = ["condition", "what flips", *(f"only {key}" for key in keys), "both", "of", "McNemar p", "Holm p"]
    return Table(head, rows, words=2)


def _matched(found: Mapping[str, Any], keys: tuple[str, str]) -> tuple[Table, Any, Any]:
    """What becomes of what both have right on the clean image: there both start from the same place."""
    by_condition = part(found, "conditions")
    rows = [
        [
            name,
            heading(metric),
            *(measured(one.get(side)) for side in ("a", "b")),
            changed(difference(one), direction(metric)),
        ]
        for name in ordered(by_condition)
        for metric, one in part(by_condition, name).items()
        if number(one.get("difference")) is not None
    ]
    return Table(["condition", "metric", *keys, "difference"], rows, words=2), found.get("pairs"), found.get("studies")


# Transfer -----------------------------------------------------------------------------------------------------------


def _transfer(found: Mapping[str, Any], models: Sequence[Audited]) -> Transfer | None:
    """Rows: the model that images were made for; columns: the model that saw them. None where none were shown."""
    moved = {pair: part(found, pair, "transfer") for pair in found if part(found, pair, "transfer")}
    if not moved:
        return None
    known = ordered(dict.fromkeys(name for one in moved.values() for name in one))
    first = strongest_attack(models[0].found) if models else None
    chosen = first if first in known else known[0]
    ways = [way for one in moved.values() for way in part(one, chosen).values()]
    metric = next((one for one in _FIRST if any(number(part(way).get(one)) is not None for way in ways)), _FIRST[0])
    rows = []
    for row in models:
        cells = [_seen(moved, row, column, chosen, metric) for column in models]
        if any(cell.value != UNKNOWN for cell in cells):
            rows.append([Cell(f"{row.key} {row.name}", strong=True), *cells])
    head = ["images made for ↓, shown to →", *(model.key for model in models)]
    matrix = Table(head, rows, words=1, dense=True)
    return Transfer(heading(metric), chosen, matrix, _every_transfer(moved, models, known))


def _ways(pair: str) -> tuple[tuple[str, str, str], ...]:
    """(made for, shown to, key in the file) of both directions; the file calls the first of any pair a."""
    first, second = _keys(pair)
    return (first, second, "a_to_b"), (second, first, "b_to_a")


def _seen(moved: Mapping[str, Any], row: Audited, column: Audited, condition: str, metric: str) -> Cell:
    """What the model of a column made of images that were made for the model of a row."""
    found = part(row.found, "attacks", condition)
    if row.key != column.key:
        places = {(made, to): part(moved, pair, condition, way) for pair in moved for made, to, way in _ways(pair)}
        found = places.get((row.key, column.key), {})
    if number(found.get(metric)) is None:
        return Cell(UNKNOWN)
    ratio = number(part(found, "ratios").get(metric))
    notes = [figure(found.get("flip_rate")), *([] if ratio is None else [f"harm × {ratio:.2f}"])]
    return Cell(figure(found.get(metric)), below=(" · ".join(notes),), strong=row.key == column.key)


def _every_transfer(moved: Mapping[str, Any], models: Sequence[Audited], conditions: Sequence[str]) -> Table:
    rows = []
    for condition in conditions:
        for pair, found in moved.items():
            for made, to, way in _ways(pair):
                one = part(found, condition, way)
                cells = [condition, f"{name_of(models, made)} → {name_of(models, to)}"]
                figures = [
                    cell for m in _FIRST for cell in (measured(one.get(m)), measured(part(one, "ratios").get(m)))
                ]
                if one:
                    rows.append([*cells, *figures])
    groups = [(heading(metric), ["value", "harm transferred"]) for metric in _FIRST]
    return grouped_table([("", ["condition", "made for → shown to"]), *groups], rows, words=2)
