"""Models held against each other on a robustness page: differences, tests, and films made for one shown to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.html import UNKNOWN, figure, grouped_table, table, text
from cxrlab.render.robustness_parts import (
    CLEAN,
    Audited,
    cell,
    change,
    direction,
    folded,
    heading,
    headline,
    named,
    number,
    ordered,
    p_value,
    part,
    title,
)

_FIRST = ("asked.accuracy", "findings.f1", "flip_rate")
_NOTE = (
    "Differences are the second model minus the first, on the same studies, with intervals by patient; the drop is the "
    "difference of what each loses, which an unequal start cannot make. ▼ and ▲: the second is worse or better, with an "
    "interval that leaves out zero. p is Holm's, over every test of the pair. A difference smaller than the smallest "
    "detectable one would have been found in fewer than four of five such audits."
)
_HEADS = (
    ("under attack", ("first", "second", "difference", "Holm p", "smallest detectable")),
    ("difference of drops", ("value", "Holm p")),
)


def comparisons(audit: Mapping[str, Any], models: Sequence[Audited]) -> str:
    """The first pair in the open, the others folded, then the matrix of transfer."""
    told = part(audit, "comparison")
    pairs = [(_pair(pair, models), _one(part(told, pair))) for pair in told]
    pairs = [(name, made) for name, made in pairs if made]
    if not pairs:
        return transfer(told, models)
    head = f"<p><b>{text(pairs[0][0])}</b></p>{pairs[0][1]}<p class=small>{_NOTE}</p>"
    return head + "".join(folded(name, made) for name, made in pairs[1:]) + transfer(told, models)


def _pair(pair: str, models: Sequence[Audited]) -> str:
    names = {model.key: model.name for model in models}
    return " against ".join(f"{names.get(key, key)} ({key})" for key in reversed(pair.split(":")))


def _one(found: Mapping[str, Any]) -> str:
    told = part(found, "conditions")
    rows = [(name, metric) for name in ordered(told) for metric in part(told, name) if part(told, name, metric)]
    first = [(name, metric) for name, metric in rows if metric in _FIRST] or rows
    more = [(name, metric) for name, metric in rows if (name, metric) not in first]
    parts = [
        _equality(found),
        _rows(told, first),
        folded(f"{len(more)} more rows: every other metric", _rows(told, more)),
        folded("flipped by one attack on each model", _flips(part(found, "flips"))),
        folded("restricted to what both have right on the clean film", _matched(part(found, "matched"))),
    ]
    return "".join(parts)


def _equality(found: Mapping[str, Any]) -> str:
    """Whether both start alike, in words and in numbers."""
    equal = found.get("equal_clean")
    style = "" if equal is None else " class=here" if equal else " class=bad"
    sentence = f"<p{style}>{text(found['sentence'])}</p>" if found.get("sentence") else ""
    counted = [f"{text(found[key])} {key}" for key in ("n", "patients") if found.get(key) is not None]
    counts = ", ".join(counted).replace(" n", " studies", 1) if counted else ""
    clean = ", ".join(
        f"{text(title(metric))} {figure(number(gap), '+')} ({_span(gap)})"
        for metric, gap in part(found, CLEAN).items()
        if number(gap) is not None
    )
    told = "; ".join(piece for piece in (counts, f"on clean films: {clean}" if clean else "") if piece)
    return sentence + (f"<p class=small>{told}.</p>" if told else "")


def _span(found: Any) -> str:
    return f"{figure(part(found).get('low'), '+')} to {figure(part(found).get('high'), '+')}"


def _rows(told: Mapping[str, Any], wanted: Sequence[tuple[str, str]]) -> str:
    rows = []
    for name, metric in wanted:
        found, drop = part(told, name, metric), part(told, name, metric, "drop")
        better = direction(metric)
        rows.append(
            [
                text(name),
                heading(metric),
                figure(number(found.get("a"))),
                figure(number(found.get("b"))),
                change({**found, "value": found.get("difference")}, better),
                p_value(found.get("p_holm", found.get("p"))),
                figure(number(found.get("smallest_detectable"))),
                change(drop, better) if drop else UNKNOWN,
                p_value(drop.get("p_holm", drop.get("p"))),
            ]
        )
    return grouped_table([("", ["condition", "metric"]), *_HEADS], rows, words=2) if rows else ""


def _flips(found: Mapping[str, Any]) -> str:
    rows = [
        [
            text(name),
            *(text(part(found, name).get(key)) for key in ("only_a", "only_b")),
            *(p_value(part(found, name).get(key)) for key in ("p", "p_holm")),
        ]
        for name in ordered(found)
    ]
    head = ["condition", "only the first flips", "only the second flips", "McNemar p", "Holm p"]
    return table(head, rows, 4) if rows else ""


def _matched(found: Mapping[str, Any]) -> str:
    """The comparison on what both have right, in whatever depth the file holds it."""
    told = part(found, "conditions") or found
    wanted = [
        (name, metric)
        for name in ordered(told)
        for metric in part(told, name)
        if number(part(told, name, metric).get("difference")) is not None
    ]
    return _rows(told, wanted)


def transfer(told: Mapping[str, Any], models: Sequence[Audited]) -> str:
    """Rows: the model that films were made for; columns: the model that saw them. Empty where none were shown."""
    moved = {pair: part(told, pair, "transfer") for pair in told if part(told, pair, "transfer")}
    if not moved:
        return ""
    known = ordered(dict.fromkeys(name for found in moved.values() for name in found))
    first = headline(models[0].found) if models else None
    chosen = first if first in known else known[0]
    metric = next((one for one in _FIRST if _has(moved, chosen, one)), _FIRST[0])
    rows = []
    for row in models:
        cells = [_seen(moved, models, row, column, chosen, metric) for column in models]
        if any(made != UNKNOWN for made in cells):
            rows.append([f"<b>{text(row.key)}</b> {text(row.name)}", *cells])
    head = ["films made for ↓, shown to →", *(f"{text(model.key)} {text(model.name)}" for model in models)]
    note = (
        f"{heading(metric)} under {text(chosen)}, with the share of flipped reports in grey and, away from the "
        "diagonal, how much of the harm to the model that it was made for moves along (1: all of it). Worse: films "
        "made for one model that harm another."
    )
    matrix = f"<h3>Transfer</h3>{table(head, rows, len(models))}<p class=small>{note}</p>" if rows else ""
    return matrix + folded("transfer under every condition", _listed(moved, models, known))


def _has(moved: Mapping[str, Any], condition: str, metric: str) -> bool:
    ways = (part(found, condition, way) for found in moved.values() for way in ("a_to_b", "b_to_a"))
    return any(number(way.get(metric)) is not None for way in ways)


def _ways(pair: str) -> tuple[tuple[str, str, str], ...]:
    """(made for, shown to, key in the file) of both directions; the file calls the first of a pair a."""
    first, _, second = pair.partition(":")
    return (first, second, "a_to_b"), (second, first, "b_to_a")


def _seen(
    moved: Mapping[str, Any], models: Sequence[Audited], row: Audited, column: Audited, condition: str, metric: str
) -> str:
    if row.key == column.key:
        found = part(row.found, "attacks", condition)
    else:
        places = {
            (made, shown): part(moved, pair, condition, way) for pair in moved for made, shown, way in _ways(pair)
        }
        found = places.get((row.key, column.key), {})
    if number(found.get(metric)) is None:
        return UNKNOWN
    ratio = number(found.get("ratio"))
    small = [figure(number(found.get("flip_rate")))] + ([f"harm × {ratio:.2f}"] if ratio is not None else [])
    value = figure(number(found.get(metric)))
    strong = f"<b>{value}</b>" if row.key == column.key else value
    return f"{strong}<br><span class=small>{' · '.join(small)}</span>"


def _listed(moved: Mapping[str, Any], models: Sequence[Audited], conditions: Sequence[str]) -> str:
    rows = [
        [
            text(condition),
            named(models, made),
            named(models, shown),
            *(cell(part(found, condition, way).get(metric)) for metric in _FIRST),
            figure(number(part(found, condition, way).get("ratio"))),
        ]
        for condition in conditions
        for pair, found in moved.items()
        for made, shown, way in _ways(pair)
        if part(found, condition, way)
    ]
    head = ["condition", "made for", "shown to", *map(heading, _FIRST), "harm moved along"]
    return table(head, rows, 4) if rows else ""
