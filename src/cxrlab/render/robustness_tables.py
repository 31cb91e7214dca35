"""Tables of a robustness audit: conditions, perturbation sizes, corruptions, and models against each other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
    percent,
)
from cxrlab.render.metric_names import (
    CLEAN,
    FINDINGS,
    WORST,
    by_radius,
    direction,
    heading,
    is_control,
    metric_title,
    middle_radius,
    ordered,
    radius,
    split,
    with_arrow,
)
from cxrlab.render.run_folder import short_name

# Attacks that use the model's gradients; a page cannot ask the attacks themselves, which need torch.
_WHITE_BOX = ("fgsm", "pgd", "mi-fgsm", "apgd", "ensemble")
# Models whose every condition is on the page; of further ones the page shows the headline, the file the rest.
FULL = 3
_COLUMNS = (
    ("reports", (FINDINGS, "chexpert14.micro.f1:uncertain-positive", "report.loss", "errors.added")),
    ("answers", ("asked.accuracy", "asked.auroc", "asked.ece", "asked.brier")),
    ("flips", ("flip_rate", "flips.normal_to_abnormal", "flips.abnormal_to_normal", "flips.side_swapped")),
)
_SHORT = {
    "report.loss": "loss",
    "asked.ece": "ECE",
    "asked.brier": "Brier",
    "asked.accuracy": "accuracy",
    "flip_rate": "reports",
    "chexpert14.micro.f1:uncertain-positive": "CheXpert F1",
}
_NOT_METRICS = ("uint8", "realised", "passes", "broken", "confidence", "zero_gradients", "n")
_SLACK = 1e-4  # of a radius, lost to rounding in single precision
_GREYS = 255


# The models of an audit ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Audited:
    """One model of an audit."""

    key: str  # Short key, as comparisons and images name it
    name: str  # Name for people; of a long path only the end
    full: str  # Name as the file has it
    found: Mapping[str, Any]  # What was measured


def models_of(audit: Mapping[str, Any]) -> list[Audited]:
    """The models in the order of their keys."""
    made = [
        Audited(str(found.get("key") or name), short_name(str(name)), str(name), found)
        for name, found in part(audit, "models").items()
        if found
    ]
    return sorted(made, key=lambda model: (len(model.key), model.key))


def name_of(models: Iterable[Audited], key: Any) -> str:
    """The name of the model with this key; the key itself where no model has it."""
    return next((model.name for model in models if model.key == str(key)), str(key))


def white_box(condition: str) -> bool:
    """Whether the attack of a condition uses gradients."""
    return split(condition)[0].partition(":")[0] in _WHITE_BOX


def strongest_attack(found: Mapping[str, Any]) -> str | None:
    """The condition of a model that a page shows first: the strongest white-box attack at the middle radius.

    Strongest is the lowest accuracy of answers, then the lowest findings F1, then the most flipped reports. Without
    white-box attacks any other is taken, and the noise control only where there is nothing else.
    """
    attacks = part(found, "attacks")
    known = [name for name in attacks if part(found, "labels", name)] or list(attacks)
    size = middle_radius(known)
    here = [name for name in known if radius(split(name)[1]) == size]
    chosen = list(filter(white_box, here)) or [name for name in here if not is_control(name)] or here

    def left(name: str) -> tuple[float, ...]:
        values = [number(part(attacks, name).get(metric)) for metric in ("asked.accuracy", FINDINGS)]
        flips = number(part(attacks, name).get("flip_rate"))
        return (*(math.inf if value is None else value for value in values), 0.0 if flips is None else -flips)

    return min(chosen, key=left) if chosen else None


# Every condition ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conditions:
    """One row for each condition, and every metric with its interval where that is shown."""

    table: Table
    intervals: tuple[tuple[str, Table], ...]


def conditions(model: Audited, full: bool) -> Conditions | None:
    """The image as made and, beneath, rounded to 8 bits as a file holds it.

    Args:
        model: The model.
        full: Whether every metric with its interval is listed too.
    """
    attacks, worst = part(model.found, "attacks"), part(model.found, "worst")
    every = [(CLEAN, _clean(model.found))]
    every += [(name, part(attacks, name)) for name in ordered(attacks)]
    every += [(f"{WORST}@{size}", part(worst, size)) for size in by_radius(worst)]
    table = _condition_table(every)
    if len(every) < 2 or not table:
        return None
    intervals = ((_plain(name), _intervals(found)) for name, found in every) if full else ()
    return Conditions(table, tuple((name, one) for name, one in intervals if one))


def _clean(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**part(found, CLEAN), "uint8": part(found, "clean_uint8")}


def _condition_table(every: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """Columns without any figure are left out."""
    known = {metric for _, found in every for metric in found if number(found[metric]) is not None}
    groups = [(name, [metric for metric in metrics if metric in known]) for name, metrics in _COLUMNS]
    groups = [(name, metrics) for name, metrics in groups if metrics]
    rows = []
    for name, found in every:
        cells, rounded = [_label(name)], part(found, "uint8")
        for metric in (metric for _, metrics in groups for metric in metrics):
            below = (figure(rounded.get(metric)),) if rounded else ()  # of the image rounded to 8 bits
            cells.append(Cell(figure(found.get(metric)), below=below))
        rows.append(cells)
    heads = [
        (name, [with_arrow(_SHORT.get(metric, metric_title(metric)), direction(metric)) for metric in metrics])
        for name, metrics in groups
    ]
    return grouped_table([("", ["condition"]), *heads], rows if groups else [])


def _plain(condition: str) -> str:
    name, size = split(condition)
    return f"worst case at {size}" if name == WORST else condition


def _label(condition: str) -> Cell:
    if is_control(condition):
        return Cell(f"{_plain(condition)} control", tone="later")
    return Cell(_plain(condition), strong=condition == CLEAN or split(condition)[0] == WORST)


def _intervals(found: Mapping[str, Any]) -> Table:
    rows = [
        [
            heading(metric),
            part(found, metric).get("n"),
            measured(found[metric]),
            changed(part(found, metric).get("difference"), direction(metric)),
            measured(part(found, "uint8").get(metric)),
        ]
        for metric in found
        if metric not in _NOT_METRICS and number(found[metric]) is not None
    ]
    return Table(["metric", "n", "value", "difference from clean", "8 bits"], rows, words=1)


# Sizes, harm by radius, corruptions ---------------------------------------------------------------------------------


def realised(model: Audited, norm: str = "linf") -> Table:
    """How large the changes really were and what they cost; a change beyond its radius is marked.

    Args:
        model: The model.
        norm: linf or l2, which the radius bounds.
    """
    rows = []
    attacks = part(model.found, "attacks")
    for name in ordered(attacks):
        found = part(attacks, name)
        if not any(key in found for key in ("realised", "passes", "broken")):
            continue
        around, length = part(found, "realised", "linf"), part(found, "realised", "l2")
        most, allowed = number((length if norm == "l2" else around).get("max")), radius(split(name)[1])
        beyond = most is not None and allowed is not None and most > allowed * (1 + _SLACK)
        label = _label(name)
        if beyond:
            label = Cell(label.value, lines=(Cell("⚠ beyond its radius", tone="bad", strong=True),))
        sizes = [_scaled(around.get(key), _GREYS) for key in ("mean", "max")]
        sizes += [_scaled(length.get(key), 1) for key in ("mean", "max")]
        passes = figure(found.get("passes"), digits=1).removesuffix(".0")
        rows.append([label, *sizes, passes, percent(found.get("broken"))])
    ends = ["mean", "most"]
    groups = [("", ["condition"]), ("L∞, in 255ths", ends), ("L2", ends), ("", ["passes per image", "goal reached"])]
    return grouped_table(groups, rows)


def _scaled(value: Any, by: float) -> str:
    known = number(value)
    return figure(None if known is None else known * by, digits=2)


def smallest_radius(model: Audited) -> Table:
    """The share of studies that some attack of at most each radius harms, and the radius that harms half of them."""
    found = part(model.found, "smallest_eps")
    kinds = {"report": "reports with more significant errors", "asked": "studies with more wrong answers"}
    sizes = by_radius({size for kind in kinds for size in part(found, kind, "harmed")})
    rows = [
        [words, *(measured(part(found, kind, "harmed").get(size)) for size in sizes), part(found, kind).get("median")]
        for kind, words in kinds.items()
        if part(found, kind)
    ]
    return Table(["share harmed by radius ↓", *sizes, "median radius"], rows if sizes else [], words=1)


@dataclass(frozen=True)
class Corruptions:
    """Heat maps of natural corruptions, and a table of every metric."""

    heat: tuple[Table, ...]
    table: Table


def corruptions(model: Audited) -> Corruptions | None:
    """One heat map for each metric: kinds down, severities across."""
    found = part(model.found, "corruptions")
    heat = (
        _heat(found, metric, number(part(model.found, CLEAN).get(metric))) for metric in ("asked.accuracy", FINDINGS)
    )
    every = [(CLEAN, _clean(model.found)), *((name, part(found, name)) for name in ordered(found))]
    made = Corruptions(tuple(one for one in heat if one), _condition_table(every if found else []))
    return made if made.heat or made.table else None


def _heat(found: Mapping[str, Any], metric: str, clean: float | None) -> Table:
    known = {split(name): number(part(found, name).get(metric)) for name in found}
    if all(value is None for value in known.values()):
        return Table([], [])
    sizes = by_radius({size for _, size in known})
    rows = []
    for kind in dict.fromkeys(kind for kind, _ in known):
        cells: list[Any] = [kind, figure(clean)]
        for value in (known.get((kind, size)) for size in sizes):
            # The darker, the further the value has fallen from the clean image; darkest where half or more is lost.
            lost = None if value is None or clean is None else min(max(2 * (clean - value) / (clean or 1.0), 0.0), 1.0)
            cells.append(Cell(figure(value), shade=None if lost is None else 0.75 * lost))
        rows.append(cells)
    return Table([heading(metric), "clean", *sizes], rows, words=1)


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
    flips = []
    for name in ordered(part(found, "flips")):
        one = part(found, "flips", name)
        counts = (one.get(key) for key in ("of", "only_a", "only_b", "both", "n"))
        flips.append([name, *counts, *(p_value(one.get(key)) for key in ("p", "p_holm"))])
    flip_head = ["condition", "what flips", *(f"only {key}" for key in keys), "both", "of", "McNemar p", "Holm p"]
    return Pair(
        title=" against ".join(f"{key} {names.get(key, '')}".strip() for key in reversed(keys)),
        equal=(bool(found.get("equal_clean")), found.get("sentence")),
        counts=(found.get("n"), found.get("patients")),
        first=_differences(by_condition, first, keys),
        more=_differences(by_condition, rest, keys),
        flips=Table(flip_head, flips if full else [], words=2),
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
    head = ["images made for ↓, tested on →", *(model.key for model in models)]
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
    return grouped_table([("", ["condition", "made for → tested on"]), *groups], rows, words=2)
