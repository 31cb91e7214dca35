"""Models held against each other on a robustness page: differences, tests, and images made for one shown to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.html import UNKNOWN, figure, grouped_table, table, text
from cxrlab.render.robustness_parts import (
    FULL,
    Audited,
    cell,
    change,
    dense,
    direction,
    folded,
    heading,
    headline,
    middle,
    named,
    number,
    ordered,
    p_value,
    part,
    radius,
    split,
)

_ALPHA = 0.05
_FIRST = ("asked.accuracy", "findings.f1", "flip_rate")
_NOTE = (
    "Differences are the model named first minus the one that it is held against, on the same studies, with intervals "
    "by patient; a drop is what a model loses from its own clean images. ▼ and ▲: the model named first is worse or "
    "better with p below 0.05. p is Holm's, over every test of all pairs. A difference smaller than the smallest "
    "detectable one would have been found in fewer than four of five such audits."
)


def comparisons(audit: Mapping[str, Any], models: Sequence[Audited]) -> str:
    """The first pair in the open, the others folded, then the matrix of transfer."""
    told = part(audit, "comparison")
    pairs = [
        (_pair(pair, models), _one(part(told, pair), _keys(pair), place < FULL)) for place, pair in enumerate(told)
    ]
    pairs = [(name, made) for name, made in pairs if made]
    if not pairs:
        return transfer(told, models)
    head = f"<p><b>{text(pairs[0][0])}</b></p>{pairs[0][1]}<p class=small>{_NOTE}</p>"
    return head + "".join(folded(name, made) for name, made in pairs[1:]) + transfer(told, models)


def _keys(pair: str) -> tuple[str, str]:
    first, _, second = pair.partition(":")
    return first, second


def _pair(pair: str, models: Sequence[Audited]) -> str:
    names = {model.key: model.name for model in models}
    return " against ".join(f"{key} {names.get(key, '')}".strip() for key in reversed(_keys(pair)))


def _one(found: Mapping[str, Any], keys: tuple[str, str], full: bool) -> str:
    told = part(found, "conditions")
    rows = [(name, metric) for name in ordered(told) for metric in part(told, name)]
    rows = [(name, metric) for name, metric in rows if number(part(told, name, metric).get("difference")) is not None]
    size = middle(name for name in told if "/" in name or "." in name)
    here = [(name, metric) for name, metric in rows if radius(split(name)[1]) == size]
    first = [(name, metric) for name, metric in here if metric in _FIRST] or rows
    parts = [_equality(found), _rows(told, first, keys)]
    if full:
        more = [(name, metric) for name, metric in rows if (name, metric) not in first]
        parts += [
            folded(f"every other condition and metric, {len(more)} rows", _rows(told, more, keys)),
            folded("studies that flip under one model only", _flips(part(found, "flips"), keys)),
            _matched(part(found, "matched"), keys),
        ]
    return "".join(parts)


def _gap(found: Mapping[str, Any]) -> dict[str, Any]:
    """The difference of a comparison, which stands flat beside both values, as a measurement."""
    return {"value": found.get("difference"), "low": found.get("low"), "high": found.get("high")}


def _equality(found: Mapping[str, Any]) -> str:
    """Whether both start alike."""
    equal = found.get("equal_clean")
    style, sign = ("here", "✓ ") if equal else ("doubt", "⚠ ")
    sentence = f"<p class={style}>{sign}{text(found['sentence'])}</p>" if found.get("sentence") else ""
    counts = f"<p class=small>{text(found.get('n'))} studies of {text(found.get('patients'))} patients.</p>"
    return sentence + counts


def _rows(told: Mapping[str, Any], wanted: Sequence[tuple[str, str]], keys: tuple[str, str]) -> str:
    rows = []
    for name, metric in wanted:
        found, drop = part(told, name, metric), part(told, name, metric, "drop")
        rows.append(
            [
                text(name),
                heading(metric),
                figure(number(found.get("a"))),
                figure(number(found.get("b"))),
                change(_gap(found), direction(metric), _sure(found)),
                p_value(found.get("p_holm")),
                figure(number(found.get("smallest_detectable"))),
                change(drop, direction(metric), _sure(drop)),
                p_value(drop.get("p_holm")),
            ]
        )
    first, second = map(text, keys)
    groups: list[tuple[str, Sequence[str]]] = [
        ("", ["condition", "metric"]),
        ("under attack", [first, second, f"{second} − {first}", "Holm p", "smallest detectable"]),
        ("difference of drops", [f"{second} − {first}", "Holm p"]),
    ]
    return dense(grouped_table(groups, rows, words=2)) if rows else ""


def _sure(found: Mapping[str, Any]) -> bool:
    """Whether a test still finds a difference after the correction for the number of tests."""
    p = number(found.get("p_holm"))
    return p is not None and p < _ALPHA


def _flips(told: Mapping[str, Any], keys: tuple[str, str]) -> str:
    rows = []
    for name in ordered(told):
        found = part(told, name)
        counts = [text(found.get(key)) for key in ("only_a", "only_b", "both", "n")]
        cells = [text(name), text(found.get("of")), *counts]
        rows.append([*cells, *(p_value(found.get(key)) for key in ("p", "p_holm"))])
    head = ["condition", "what flips", *(f"only {text(key)}" for key in keys), "both", "of", "McNemar p", "Holm p"]
    return table(head, rows, 6) if rows else ""


def _matched(found: Mapping[str, Any], keys: tuple[str, str]) -> str:
    """What becomes of what both have right on the clean image: there both start from the same place."""
    told = part(found, "conditions")
    rows = [
        [
            text(name),
            heading(metric),
            *(cell(part(told, name, metric).get(side)) for side in ("a", "b")),
            change(_gap(part(told, name, metric)), direction(metric)),
        ]
        for name in ordered(told)
        for metric in part(told, name)
        if number(part(told, name, metric).get("difference")) is not None
    ]
    counts = f"{text(found.get('pairs'))} answers and {text(found.get('studies'))} reports"
    note = f"<p class=small>{counts} that both models have right on the clean image; intervals, no tests.</p>"
    body = table(["condition", "metric", *map(text, keys), "difference"], rows, 3) if rows else ""
    return folded("what both have right on the clean image", note + body if body else "")


def transfer(told: Mapping[str, Any], models: Sequence[Audited]) -> str:
    """Rows: the model that images were made for; columns: the model that saw them. Empty where none were shown."""
    moved = {pair: part(told, pair, "transfer") for pair in told if part(told, pair, "transfer")}
    if not moved:
        return ""
    known = ordered(dict.fromkeys(name for found in moved.values() for name in found))
    first = headline(models[0].found) if models else None
    chosen = first if first in known else known[0]
    metric = next((one for one in _FIRST if _has(moved, chosen, one)), _FIRST[0])
    rows = []
    for row in models:
        cells = [_seen(moved, row, column, chosen, metric) for column in models]
        if any(made != UNKNOWN for made in cells):
            rows.append([f"<b>{text(row.key)}</b> {text(row.name)}", *cells])
    head = ["images made for ↓, shown to →", *(text(model.key) for model in models)]
    note = (
        f"{heading(metric)} under {text(chosen)}, with the share of flipped reports in grey; away from the diagonal "
        "also the harm as a share of what images made for that very model do to it (1: as much). Worse: images made for "
        "one model that harm another."
    )
    matrix = f"<h3>Transfer</h3>{dense(table(head, rows, len(models)))}<p class=small>{note}</p>" if rows else ""
    return matrix + folded("transfer under every condition", _listed(moved, models, known))


def _has(moved: Mapping[str, Any], condition: str, metric: str) -> bool:
    ways = (part(found, condition, way) for found in moved.values() for way in part(found, condition))
    return any(number(way.get(metric)) is not None for way in ways)


def _ways(pair: str) -> tuple[tuple[str, str, str], ...]:
    """(made for, shown to, key in the file) of both directions; the file calls the first of any pair a."""
    first, second = _keys(pair)
    return (first, second, "a_to_b"), (second, first, "b_to_a")


def _seen(moved: Mapping[str, Any], row: Audited, column: Audited, condition: str, metric: str) -> str:
    """What the model of a column made of images that were made for the model of a row."""
    found = part(row.found, "attacks", condition)
    if row.key != column.key:
        places = {(made, to): part(moved, pair, condition, way) for pair in moved for made, to, way in _ways(pair)}
        found = places.get((row.key, column.key), {})
    if number(found.get(metric)) is None:
        return UNKNOWN
    value, ratio = figure(number(found.get(metric))), number(part(found, "ratios").get(metric))
    small = [figure(number(found.get("flip_rate")))] + ([f"harm × {ratio:.2f}"] if ratio is not None else [])
    strong = f"<b>{value}</b>" if row.key == column.key else value
    return f"{strong}<br><span class=small>{' · '.join(small)}</span>"


def _listed(moved: Mapping[str, Any], models: Sequence[Audited], conditions: Sequence[str]) -> str:
    rows = []
    for condition in conditions:
        for pair, told in moved.items():
            for made, to, way in _ways(pair):
                found = part(told, condition, way)
                cells = [text(condition), f"{named(models, made)} → {named(models, to)}"]
                for metric in _FIRST:
                    cells += [cell(found.get(metric)), cell(part(found, "ratios").get(metric))]
                if found:
                    rows.append(cells)
    groups = [(heading(metric), ["value", "harm moved"]) for metric in _FIRST]
    return dense(grouped_table([("", ["condition", "made for → shown to"]), *groups], rows, words=2)) if rows else ""
