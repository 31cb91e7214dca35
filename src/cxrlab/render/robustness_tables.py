"""Tables of a robustness page: every condition, what the perturbations really were, harm by radius, corruptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cxrlab.render.html import UNKNOWN, figure, grouped_table, table, text
from cxrlab.render.robustness_parts import (
    CLEAN,
    WORST,
    Audited,
    cell,
    change,
    dense,
    direction,
    folded,
    heading,
    is_control,
    number,
    ordered,
    part,
    radius,
    split,
    title,
)

_COLUMNS = (
    ("reports", ("findings.f1", "chexpert14.micro.f1:uncertain-positive", "report.loss", "errors.added")),
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
    "flips.normal_to_abnormal": "normal → abnormal",
    "flips.abnormal_to_normal": "abnormal → normal",
    "errors.added": "errors added",
    "findings.f1": "findings F1",
    "flips.side_swapped": "side swapped",
}
_ARROWS = {"higher": "↑", "lower": "↓"}
_NOT_METRICS = ("uint8", "realised", "passes", "broken", "confidence", "zero_gradients", "n")
_HEAT = ("asked.accuracy", "findings.f1")
_SLACK = 1e-4  # of a radius, lost to rounding in single precision
_GREYS = 255


def conditions(model: Audited, full: bool) -> str:
    """One row a condition, the image as made and, beneath in grey, rounded to 8 bits as a file holds it.

    Args:
        model: The model.
        full: Whether every metric with its interval follows, folded away.
    """
    every = list(_attacked(model.found))
    made = _table(every) if len(every) > 1 else ""
    details = "".join(folded(_plain(name), _intervals(found)) for name, found in every) if full else ""
    note = (
        "Black: the image as the attack made it. Grey, beneath: rounded to 8 bits, as a file would hold it. "
        "Flips are against the model's own clean report; of the two directions the first is of reports that were "
        "normal, the second of those that were abnormal. The worst case takes for each study the most harmful attack "
        "of at most that radius."
    )
    return f"{made}<p class=small>{note}</p>{folded('every metric with its interval', details)}" if made else ""


def _table(every: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """One row a condition; columns without any figure are left out."""
    known = {metric for _, found in every for metric in found if number(found[metric]) is not None}
    groups = [(name, [metric for metric in metrics if metric in known]) for name, metrics in _COLUMNS]
    groups = [(name, metrics) for name, metrics in groups if metrics]
    rows = [
        [_label(name), *(_both(found, metric) for _, metrics in groups for metric in metrics)] for name, found in every
    ]
    heads = [(name, [_head(metric) for metric in metrics]) for name, metrics in groups]
    return dense(grouped_table([("", ["condition"]), *heads], rows)) if groups else ""


def _clean(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**part(found, CLEAN), "uint8": part(found, "clean_uint8")}


def _attacked(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Clean, attacks, then the worst case at each radius."""
    yield CLEAN, _clean(found)
    for name in ordered(part(found, "attacks")):
        yield name, part(found, "attacks", name)
    for size in sorted(part(found, "worst"), key=lambda one: radius(one) or 0.0):
        yield f"{WORST}@{size}", part(found, "worst", size)


def _plain(condition: str) -> str:
    name, size = split(condition)
    return f"worst case at {size}" if name == WORST else condition


def _label(condition: str) -> str:
    name = text(_plain(condition))
    if is_control(condition):
        return f"<span class=later>{name} control</span>"
    return f"<b>{name}</b>" if condition == CLEAN or split(condition)[0] == WORST else name


def _head(metric: str) -> str:
    return f"{text(_SHORT.get(metric, title(metric)))} {_ARROWS.get(direction(metric), '')}".strip()


def _both(found: Mapping[str, Any], metric: str) -> str:
    rounded = part(found, "uint8")
    value = figure(number(found.get(metric)))
    return f"{value}<br><span class=small>{figure(number(rounded.get(metric)))}</span>" if rounded else value


def _intervals(found: Mapping[str, Any]) -> str:
    rows = [
        [
            heading(metric),
            text(part(found, metric).get("n")),
            cell(found[metric]),
            change(part(found, metric).get("difference"), direction(metric)),
            cell(part(found, "uint8").get(metric)),
        ]
        for metric in found
        if metric not in _NOT_METRICS and number(found[metric]) is not None
    ]
    return table(["metric", "n", "value", "difference from clean", "8 bits"], rows, 4) if rows else ""


def realised(model: Audited, norm: str = "linf") -> str:
    """How large the changes really were and what they cost; a radius that was left is told loudly.

    Args:
        model: The model.
        norm: linf or l2, which the radius bounds.
    """
    attacks = part(model.found, "attacks")
    rows = []
    for name in ordered(attacks):
        found = part(attacks, name)
        if any(key in found for key in ("realised", "passes", "broken")):
            rows.append(_realised(name, found, norm))
    sizes = ["mean", "most"]
    groups = [("", ["condition"]), ("L∞, in 255ths", sizes), ("L2", sizes), ("", ["passes an image", "goal reached"])]
    note = "Measured on the images, not taken from the settings. Passes: times that the model was run for an image."
    return f"{dense(grouped_table(groups, rows))}<p class=small>{note}</p>" if rows else ""


def _realised(name: str, found: Mapping[str, Any], norm: str) -> list[str]:
    around, length = part(found, "realised", "linf"), part(found, "realised", "l2")
    most = number((length if norm == "l2" else around).get("max"))
    allowed = radius(split(name)[1])
    beyond = most is not None and allowed is not None and most > allowed * (1 + _SLACK)
    loud = " <b class=bad>⚠ beyond its radius</b>" if beyond else ""
    return [
        _label(name) + loud,
        *(_scaled(around.get(key), _GREYS) for key in ("mean", "max")),
        *(_scaled(length.get(key), 1) for key in ("mean", "max")),
        _whole(found.get("passes")),
        percent(found.get("broken")),
    ]


def _scaled(value: Any, by: float) -> str:
    known = number(value)
    return UNKNOWN if known is None else f"{known * by:.2f}"


def _whole(value: Any) -> str:
    known = number(value)
    return UNKNOWN if known is None else f"{known:,.1f}".removesuffix(".0")


def percent(share: Any) -> str:
    """A share, or the value of a measured one, in whole percent."""
    known = number(share)
    return UNKNOWN if known is None else f"{100 * known:.0f} %"


def smallest(model: Audited) -> str:
    """The share of studies that some attack of at most each radius harms, and the radius that harms half of them."""
    found = part(model.found, "smallest_eps")
    kinds = {"report": "reports with more significant errors", "asked": "studies with more wrong answers"}
    sizes = sorted({size for kind in kinds for size in part(found, kind, "harmed")}, key=lambda one: radius(one) or 0.0)
    rows = [
        [words, *(cell(part(found, kind, "harmed").get(size)) for size in sizes), text(part(found, kind).get("median"))]
        for kind, words in kinds.items()
        if part(found, kind)
    ]
    head = ["share harmed by radius ↓", *(text(size) for size in sizes), "median radius"]
    return table(head, rows, len(sizes) + 1) if rows and sizes else ""


def corruptions(model: Audited) -> str:
    """One table a metric: kinds down, severities across, the darker the greater the fall from the clean image."""
    found = part(model.found, "corruptions")
    made = [_heat(found, metric, number(part(model.found, CLEAN).get(metric))) for metric in _HEAT]
    made = [one for one in made if one]
    note = (
        "Kinds down, severities (1 to 5) across. The darker a cell, the further it has fallen from the clean image; "
        "darkest: half or more is lost."
    )
    heat = f"<div class=plots>{''.join(made)}</div><p class=small>{note}</p>" if made else ""
    every = [(CLEAN, _clean(model.found)), *((name, part(found, name)) for name in ordered(found))]
    return heat + folded("corruptions by every metric", _table(every) if found else "")


def _heat(found: Mapping[str, Any], metric: str, clean: float | None) -> str:
    known = {split(name): number(part(found, name).get(metric)) for name in found}
    if all(value is None for value in known.values()):
        return ""
    sizes = sorted({size for _, size in known}, key=lambda one: (radius(one) or 0.0, one))
    rows = [
        [text(kind), figure(clean), *(_shade(known.get((kind, size)), clean) for size in sizes)]
        for kind in dict.fromkeys(kind for kind, _ in known)
    ]
    head = [heading(metric), "clean", *(text(size) for size in sizes)]
    return f"<div>{table(head, rows, len(sizes) + 1)}</div>"


def _shade(value: float | None, clean: float | None) -> str:
    if value is None or clean is None:
        return figure(value)
    half = min(max(2 * (clean - value) / (clean or 1.0), 0.0), 1.0)
    return f'<span class=shade style="background:rgba(200,80,10,{0.75 * half:.2f})">{value:.3f}</span>'
