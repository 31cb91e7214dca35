"""Drawings of audits over seeds: curves over the radius, and a forest of differences of drops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.components import number, part
from cxrlab.render.drawing import GREY, INK, Curve, Drawing, Layout, Panel, Point, Spread, draw_panels
from cxrlab.render.forest import Group, Row, difference_forest
from cxrlab.render.metric_names import (
    CLEAN,
    CONTROL,
    FINDINGS,
    WORST,
    direction,
    is_control,
    is_share,
    metric_title,
    radius,
    split,
)

_ANSWERS = (FINDINGS, "asked.accuracy", "asked.confidence")
_REPORTS = ("flip_rate", "report.confidence", "errors.significant")
START, ALIGNED = "start", "aligned"
# Okabe and Ito's colours, which people with any kind of colour vision tell apart; their black is the start.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_DRAWN = len(_COLOURS)  # ways to align in one drawing; more cannot be told apart
_APART = 4.5  # pixels between the seeds of two lines
_DECIDING = {"asked": "asked.accuracy", "report": FINDINGS}


def has_answers(found: Mapping[str, Any]) -> bool:
    """Whether closed questions were asked, so that there are answers to show."""
    rows = part(found, "variants")
    return any(number(part(rows, name, CLEAN, "asked.accuracy", START).get("mean")) is not None for name in rows)


def radii(found: Mapping[str, Any], attack: str | None = None) -> list[str]:
    """Radii of the attacks that every variant was given, as the file writes them, rising; of one attack only."""
    known: dict[float, str] = {}
    for name in _conditions(found):
        family, size = split(name)
        value = radius(size)
        if value is not None and attack in (None, family):
            known.setdefault(value, size)
    return [known[value] for value in sorted(known)]


def is_attack(condition: str) -> bool:
    """Whether a condition is an attack, not the noise control or the worst case of several."""
    return not is_control(condition) and split(condition)[0] != WORST


def strongest(found: Mapping[str, Any], metric: str) -> str | None:
    """The attack that harms the start most at the largest radius.

    Args:
        found: Content of robustness_seeds.json.
        metric: What is to be harmed; a confidence, which has no better direction, follows accuracy or findings.
    """
    deciding = metric if direction(metric) else _DECIDING.get(metric.partition(".")[0], FINDINGS)
    attacks = list(filter(is_attack, _conditions(found)))
    known = [value for name in attacks if (value := radius(split(name)[1])) is not None]
    here = [name for name in attacks if radius(split(name)[1]) == max(known)] if known else []
    first, sign = _first(found), -1.0 if direction(deciding) == "lower" else 1.0
    values = {name: number(part(first, "conditions", name, deciding, START).get("mean")) for name in here}
    ranked = {name: sign * value for name, value in values.items() if value is not None}
    chosen = min(ranked, key=lambda name: ranked[name]) if ranked else next(iter(here), None)
    return None if chosen is None else split(chosen)[0]


def _conditions(found: Mapping[str, Any]) -> list[str]:
    """Conditions that every variant has."""
    rows = part(found, "variants")
    return [
        name for name in part(_first(found), "conditions") if all(name in part(rows, one, "conditions") for one in rows)
    ]


def _first(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return part(found, "variants", next(iter(part(found, "variants")), ""))


# Curves -------------------------------------------------------------------------------------------------------------


def answer_curves(
    found: Mapping[str, Any], metrics: Sequence[str] | None = None, width: int = 900, height: int = 350
) -> Drawing | None:
    """Quantities over the radius, one panel each: the start and every variant under the attack that harms it most.

    Lines are means over seeds, small dots the seeds; the clean image is radius 0; dashed is noise of the same size on
    the start. None where no quantity was measured.

    Args:
        found: Content of robustness_seeds.json.
        metrics: Names of the quantities; findings and answers where closed questions were asked, else the reports.
        width: Pixels of the whole.
        height: Pixels without the legend, which is put beneath.
    """
    chosen = metrics if metrics is not None else _ANSWERS if has_answers(found) else _REPORTS
    panels = [panel for metric in chosen if (panel := _panel(found, metric)) is not None]
    if not panels:
        return None
    variants = len(part(found, "variants"))
    note = f"{_DRAWN} of {variants} ways to align drawn" if variants > _DRAWN else ""
    return draw_panels(panels, Layout(width, height, 255.0 if _in_255ths(found) else 1.0), note)


@dataclass(frozen=True)
class _Line:
    """Whose line it is, under which attack, and how it looks."""

    label: str
    variant: str
    side: str
    attack: str
    colour: str
    marker: int
    shift: float


def _panel(found: Mapping[str, Any], metric: str) -> Panel | None:
    attack, names = strongest(found, metric), list(part(found, "variants"))[:_DRAWN]
    if attack is None or not names:
        return None
    first = -_APART * len(names) / 2
    lines = [_Line("start", names[0], START, attack, INK, 0, first)]
    lines += [
        _Line(name, name, ALIGNED, attack, _COLOURS[place - 1], place, first + _APART * place)
        for place, name in enumerate(names, 1)
    ]
    drawn = [curve for line in lines if len((curve := _curve(found, metric, line)).points) > 1]
    noise = _Line(f"start under {CONTROL} of that size (control)", names[0], START, CONTROL, GREY, 0, first)
    control = _curve(found, metric, noise)
    across = f"ε of {attack}, {'in 255ths ' if _in_255ths(found) else ''}(0: clean)"
    every = [*drawn, *([control] if len(control.points) > 1 else [])]
    return Panel(metric_title(metric), every, across, is_share(metric)) if drawn else None


def _curve(found: Mapping[str, Any], metric: str, line: _Line) -> Curve:
    row = part(found, "variants", line.variant)
    values = {0.0: part(row, CLEAN, metric, line.side)}
    for size in radii(found, line.attack):
        values[radius(size) or 0.0] = part(row, "conditions", f"{line.attack}@{size}", metric, line.side)
    if metric == "flip_rate":
        values[0.0] = {"mean": 0.0}  # a report is compared with the model's own on the clean image
    points: list[Point] = [
        (eps, mean, None, None) for eps, one in values.items() if (mean := number(one.get("mean"))) is not None
    ]
    dots = tuple(
        (eps, value)
        for eps, one in values.items()
        for seed in one.get("values") or ()
        if (value := number(seed)) is not None
    )
    dashed = line.attack == CONTROL
    return Curve(
        line.label,
        tuple(points),
        line.colour,
        line.marker,
        dashed=dashed,
        thick=line.side == START and not dashed,
        dots=() if dashed else dots,
        shift=round(line.shift, 2),
    )


def _in_255ths(found: Mapping[str, Any]) -> bool:
    return all(size.endswith("/255") for size in radii(found))


# Forest -------------------------------------------------------------------------------------------------------------


def drops_forest(found: Mapping[str, Any], metric: str = FINDINGS, width: int = 900) -> Drawing | None:
    """The difference of drops (aligned minus start) of every variant and radius, under the strongest attack.

    Thin lines are the seeds with their own intervals, the dot is the mean over seeds with Student's interval. A
    quantity without a drop, such as flips, is shown by its plain difference. None where nothing was measured.

    Args:
        found: Content of robustness_seeds.json.
        metric: Name of the quantity.
        width: Pixels.
    """
    attack = strongest(found, metric)
    groups, plain = [], False
    for name in part(found, "variants"):
        rows = []
        for size in radii(found, attack):
            one = part(found, "variants", name, "conditions", f"{attack}@{size}", metric)
            plain = plain or "drop" not in one
            if (row := _row(f"ε {size}", part(one, "drop") or part(one, "difference"))) is not None:
                rows.append(row)
        if rows:
            groups.append(Group(name, rows))
    if not groups:
        return None
    what, ends = "difference of drops", ("aligned suffers more", "aligned suffers less")
    if plain:
        what, ends = "difference", ("aligned is worse", "aligned is better")
    if direction(metric) != "higher":
        ends = ends[::-1] if direction(metric) else ("aligned lower", "aligned higher")
    heading = f"{metric_title(metric)} under {attack}: {what}, aligned minus start"
    return difference_forest(groups, heading, ends, ("mean (95 % over seeds)", "clear seeds"), width)


def _row(label: str, gap: Mapping[str, Any]) -> Row | None:
    mean = number(gap.get("mean"))
    if mean is None:
        return None
    seeds = [part(one) for one in gap.get("by_seed") or ()]
    alone: list[Spread] = [(value, *_ends(one)) for one in seeds if (value := number(one.get("value"))) is not None]
    return Row(label, (mean, *_ends(gap)), tuple(alone), f"{gap.get('clear') or 0} of {len(alone)}" if alone else "")


def _ends(found: Mapping[str, Any]) -> tuple[float | None, float | None]:
    return number(found.get("low")), number(found.get("high"))
