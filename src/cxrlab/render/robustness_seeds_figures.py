"""Figures of audits over seeds, each an SVG that stands alone: curves over the radius, and a forest of drops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.drawing import GREY, INK, Curve, Layout, Panel, Point, panels
from cxrlab.render.forest import Group, Row, forest
from cxrlab.render.robustness_parts import (
    CLEAN,
    CONTROL,
    WORST,
    direction,
    in_unit,
    is_control,
    number,
    part,
    radius,
    split,
    title,
)

ANSWERS = ("findings.f1", "asked.accuracy", "asked.confidence")
REPORTS = ("flip_rate", "report.confidence", "errors.significant")
START, ALIGNED = "start", "aligned"
# Okabe and Ito's colours, which people with any kind of colour vision tell apart; their black is the start.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_DRAWN = len(_COLOURS)  # ways to align in one drawing; more cannot be told apart
_APART = 4.5  # pixels between the seeds of two lines
_COLUMNS = ("mean (95 % over seeds)", "clear seeds")
_DECIDING = {"asked": "asked.accuracy", "report": "findings.f1"}
_LOST, _PLAIN = ("aligned suffers more", "aligned suffers less"), ("aligned is worse", "aligned is better")


def is_asked(found: Mapping[str, Any]) -> bool:
    """Whether closed questions were asked, so that there are answers to show."""
    rows = part(found, "variants")
    return any(number(part(rows, name, CLEAN, "asked.accuracy", START).get("mean")) is not None for name in rows)


def sizes(found: Mapping[str, Any], attack: str | None = None) -> list[str]:
    """Radii of the attacks that every variant stood, as the file writes them, rising.

    Args:
        found: Content of robustness_seeds.json.
        attack: Only those of this one.
    """
    known: dict[float, str] = {}
    for name in _conditions(found):
        family, size = split(name)
        value = radius(size)
        if value is not None and attack in (None, family):
            known.setdefault(value, size)
    return [known[value] for value in sorted(known)]


def strongest(found: Mapping[str, Any], metric: str) -> str | None:
    """The attack that harms the start most at the largest radius, of those that were made with a wish.

    Args:
        found: Content of robustness_seeds.json.
        metric: What is to be harmed; a confidence, which has no better direction, follows accuracy or findings.
    """
    deciding = metric if direction(metric) else _DECIDING.get(metric.partition(".")[0], "findings.f1")
    wished = [name for name in _conditions(found) if not is_control(name) and split(name)[0] != WORST]
    radii = [value for name in wished if (value := radius(split(name)[1])) is not None]
    here = [name for name in wished if radius(split(name)[1]) == max(radii)] if radii else []
    first = _first(found)
    sign = -1.0 if direction(deciding) == "lower" else 1.0
    known = {name: number(part(first, "conditions", name, deciding, START).get("mean")) for name in here}
    ranked = {name: sign * value for name, value in known.items() if value is not None}
    chosen = min(ranked, key=lambda name: ranked[name]) if ranked else next(iter(here), None)
    return None if chosen is None else split(chosen)[0]


def answer_curves(
    found: Mapping[str, Any], metrics: Sequence[str] | None = None, width: int = 900, height: int = 350
) -> str:
    """Quantities over the radius, one panel each: the start and every variant under the attack that harms it most.

    Lines are means over seeds, small dots the seeds; the clean image is radius 0; dashed is noise of the same size on
    the start. Empty where no quantity was measured.

    Args:
        found: Content of robustness_seeds.json.
        metrics: Names of the quantities; findings and answers where closed questions were asked, else the reports.
        width: Pixels of the whole.
        height: Pixels without the legend, which is put beneath.
    """
    wanted = metrics if metrics is not None else ANSWERS if is_asked(found) else REPORTS
    made = [panel for metric in wanted if (panel := _panel(found, metric)) is not None]
    if not made:
        return ""
    told = len(part(found, "variants"))
    note = f"{_DRAWN} of {told} ways to align drawn" if told > _DRAWN else ""
    return panels(made, Layout(width, height, 255.0 if _in_255ths(found) else 1.0), note)


def drops_forest(found: Mapping[str, Any], metric: str = "findings.f1", width: int = 900) -> str:
    """The difference of drops (aligned minus start) of every variant and radius, under the strongest attack.

    Thin lines are the seeds with their own intervals, the dot is the mean over seeds with Student's interval. A
    quantity without a drop, such as flips, is shown by its plain difference. Empty where nothing was measured.

    Args:
        found: Content of robustness_seeds.json.
        metric: Name of the quantity.
        width: Pixels.
    """
    attack = strongest(found, metric)
    groups = []
    plain = False
    for name in part(found, "variants"):
        rows = []
        for size in sizes(found, attack):
            told = part(found, "variants", name, "conditions", f"{attack}@{size}", metric)
            plain = plain or "drop" not in told
            if (row := _row(f"ε {size}", part(told, "drop") or part(told, "difference"))) is not None:
                rows.append(row)
        if rows:
            groups.append(Group(name, rows))
    if not groups:
        return ""
    what, ways = ("difference", _PLAIN) if plain else ("difference of drops", _LOST)
    words = f"{title(metric)} under {attack}: {what}, aligned minus start"
    better = direction(metric)
    known = (ways if better == "higher" else ways[::-1]) if better else ("aligned lower", "aligned higher")
    return forest(groups, words, known, _COLUMNS, width)


def _row(label: str, gap: Mapping[str, Any]) -> Row | None:
    mean = number(gap.get("mean"))
    if mean is None:
        return None
    alone = [part(one) for one in gap.get("by_seed") or ()]
    known = [(value, *_ends(one)) for one in alone if (value := number(one.get("value"))) is not None]
    told = f"{gap.get('clear') or 0} of {len(known)}" if known else ""
    return Row(label, (mean, *_ends(gap)), tuple(known), told)


def _ends(found: Mapping[str, Any]) -> tuple[float | None, float | None]:
    return number(found.get("low")), number(found.get("high"))


def _panel(found: Mapping[str, Any], metric: str) -> Panel | None:
    attack = strongest(found, metric)
    names = list(part(found, "variants"))[:_DRAWN]
    if attack is None or not names:
        return None
    first = -_APART * len(names) / 2
    lines = [_curve(found, metric, _Line("start", names[0], START, attack, INK, 0, first))]
    lines += [
        _curve(found, metric, _Line(name, name, ALIGNED, attack, _COLOURS[place - 1], place, first + _APART * place))
        for place, name in enumerate(names, 1)
    ]
    noise = _Line(f"start under {CONTROL} of that size (control)", names[0], START, CONTROL, GREY, 0, first)
    drawn = [line for line in lines if len(line.points) > 1]
    control = _curve(found, metric, noise)
    across = f"ε of {attack}, {'in 255ths ' if _in_255ths(found) else ''}(0: clean)"
    every = [*drawn, *([control] if len(control.points) > 1 else [])]
    return Panel(title(metric), every, across, in_unit(metric)) if drawn else None


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


def _curve(found: Mapping[str, Any], metric: str, line: _Line) -> Curve:
    row = part(found, "variants", line.variant)
    told = {0.0: part(row, CLEAN, metric, line.side)}
    for size in sizes(found, line.attack):
        told[radius(size) or 0.0] = part(row, "conditions", f"{line.attack}@{size}", metric, line.side)
    if metric == "flip_rate":
        told[0.0] = {"mean": 0.0}  # a report is held against the model's own on the clean image
    points: list[Point] = []
    dots = []
    for eps, value in told.items():
        if (mean := number(value.get("mean"))) is not None:
            points.append((eps, mean, None, None))
        dots += [(eps, one) for each in value.get("values") or () if (one := number(each)) is not None]
    dashed, start = line.attack == CONTROL, line.side == START
    seeds = () if dashed else tuple(dots)
    looks = (line.colour, line.marker, dashed, start and not dashed)
    return Curve(line.label, tuple(points), *looks, dots=seeds, shift=round(line.shift, 2))


def _conditions(found: Mapping[str, Any]) -> list[str]:
    rows = part(found, "variants")
    return [
        name for name in part(_first(found), "conditions") if all(name in part(rows, one, "conditions") for one in rows)
    ]


def _first(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return part(found, "variants", next(iter(part(found, "variants")), ""))


def _in_255ths(found: Mapping[str, Any]) -> bool:
    return all(size.endswith("/255") for size in sizes(found))
