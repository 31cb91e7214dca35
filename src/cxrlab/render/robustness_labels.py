"""The headline of a robustness page: accuracy and confidence by label, original, perturbed and their difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.html import grouped_table, text
from cxrlab.render.robustness_parts import (
    CLEAN,
    FULL,
    WHITE_BOX,
    Audited,
    cell,
    change,
    dense,
    direction,
    first_open,
    folded,
    heading,
    headline,
    is_control,
    number,
    ordered,
    part,
    split,
    title,
)

# Group of columns, where the figures of a label stand, and which way is better.
_GROUPS = (
    ("accuracy of answers ↑", ("asked", "accuracy"), "higher"),
    ("confidence of answers", ("asked", "confidence"), ""),
    ("accuracy of reports ↑", ("written", "accuracy"), "higher"),
)
_SIDES = ("original", "perturbed", "difference")
_ALL = ("all", "all labels", "overall", "together")
_SUMMARY = ("asked.accuracy", "asked.confidence", "findings.f1", "flip_rate")
_CAPTION = (
    "Worse: accuracy that falls. Worst: accuracy that falls while confidence stays. Differences are perturbed minus "
    "original on the same studies; ▼ worse and ▲ better mark those whose interval leaves out zero. Answers are closed "
    "questions put to the model; reports are read for the same labels."
)


def headlines_of(models: Sequence[Audited]) -> str:
    """With several models a row for each; then the table by label of the first, and those of the others folded."""
    parts = [_model(model, full=place < FULL) for place, model in enumerate(models)]
    return _summary(models) + first_open(models, parts)


def _model(model: Audited, full: bool) -> str:
    chosen = headline(model.found)
    if chosen is None:
        return ""
    labels = part(model.found, "labels")
    shown = by_label(part(labels, chosen)) or _overall(model, chosen)
    lead = f"<p><b>{text(chosen)}</b>: {_why(chosen)}</p>" if shown else ""
    rest = [name for name in ordered(labels) if name != chosen]
    if full:
        more = "".join(folded(name, by_label(part(labels, name))) for name in rest)
        more = folded(f"the same table for {len(rest)} other conditions", more)
    else:
        more = f"<p class=small>{len(rest)} other conditions in robustness.json.</p>" if rest else ""
    return f"{lead}{shown}<p class=small>{_CAPTION}</p>{more}" if shown else ""


def _why(condition: str) -> str:
    name, size = split(condition)
    if is_control(condition):
        return "noise alone; no attack was tried."
    white = name.partition(":")[0] in WHITE_BOX
    kind = "with the model's gradients" if white else "of those tried, none of which reads gradients,"
    return f"the strongest attack {kind} at the middle radius, {text(size)}."


def by_label(labels: Mapping[str, Any]) -> str:
    """One row a label; the row of all together first, groups that no label has left out."""
    groups = [group for group in _GROUPS if any(_measured(part(row, *group[1])) for row in labels.values())]
    if not groups:
        return ""
    names = sorted(labels, key=lambda name: name.lower() not in _ALL)
    rows = []
    for name in names:
        row = part(labels, name)
        label = f"<b>{text(name)}</b>" if name.lower() in _ALL else text(name)
        cells = [label, text(row.get("n")), text(row.get("positives"))]
        for _, way, better in groups:
            found = part(row, *way)
            cells += [cell(found.get(side), digits=2) for side in _SIDES[:2]]
            cells.append(change(found.get("difference"), better, digits=2))
        rows.append(cells)
    heads = [("", ["label", "n", "present"]), *((name, _SIDES) for name, _, _ in groups)]
    return dense(grouped_table(heads, rows))


def _measured(found: Mapping[str, Any]) -> bool:
    return any(number(found.get(side)) is not None for side in _SIDES)


def _overall(model: Audited, condition: str) -> str:
    """Where nothing is known by label: the same columns for whole metrics."""
    found, clean = part(model.found, "attacks", condition), part(model.found, CLEAN)
    rows = [
        [
            heading(metric),
            text(part(found, metric).get("n")),
            cell(clean.get(metric)),
            cell(found.get(metric)),
            change(part(found, metric).get("difference"), direction(metric)),
        ]
        for metric in _SUMMARY
        if number(found.get(metric)) is not None
    ]
    return grouped_table([("", ["metric", "n", *_SIDES])], rows) if rows else ""


def _summary(models: Sequence[Audited]) -> str:
    """One row a model: clean and under its own strongest attack."""
    if len(models) < 2:
        return ""
    rows = []
    for model in models:
        chosen = headline(model.found)
        found = part(model.found, "attacks", chosen or "")
        cells = [f"<b>{text(model.key)}</b> {text(model.name)}", text(chosen)]
        for metric in _SUMMARY[:-1]:
            cells += [cell(part(model.found, CLEAN).get(metric), digits=2), cell(found.get(metric), digits=2)]
        rows.append([*cells, cell(found.get("flip_rate"), digits=2)])
    pair = ("clean", "attacked")
    groups = [("", ["model", "attack"]), *((text(title(metric)), pair) for metric in _SUMMARY[:-1])]
    return dense(grouped_table([*groups, (text(title("flip_rate")), ["attacked"])], rows, words=2))
