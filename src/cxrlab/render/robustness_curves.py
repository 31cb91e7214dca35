"""Curves of a robustness audit over the radius, each a drawing that also stands alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.drawing import COLOURS, GREY, INK, Curve, Layout, Point, drawing, in_page
from cxrlab.render.robustness_parts import (
    CLEAN,
    CONTROL,
    FULL,
    WORST,
    Audited,
    direction,
    folded,
    headline,
    in_unit,
    is_control,
    models_of,
    number,
    part,
    split,
    title,
)

PANELS = ("asked.accuracy", "asked.confidence", "findings.f1", "flip_rate")
_DRAWN = 6  # models in one drawing; more cannot be told apart
_WORSE = {"higher": "lower is worse", "lower": "higher is worse"}


def curves(audit: Mapping[str, Any]) -> str:
    """The four drawings of a page; with several models those of each model follow, folded away."""
    models = models_of(audit)
    together = _panels(audit, None)
    if len(models) == 1:
        return together
    return together + "".join(
        folded(f"every attack on {model.name}", _panels(audit, [model.key])) for model in models[:FULL]
    )


def _panels(audit: Mapping[str, Any], models: Sequence[str] | None) -> str:
    made = [in_page(one) for metric in PANELS if (one := figure_svg(audit, metric, models))]
    return f"<div class=plots>{''.join(made)}</div>" if made else ""


def figure_svg(
    audit: Mapping[str, Any],
    metric: str,
    models: Sequence[str] | None = None,
    attacks: Sequence[str] | None = None,
    heading: str | None = None,
    width: int = 520,
    height: int = 300,
) -> str:
    """One metric over the radius as an SVG that needs nothing else; empty where there is no such curve.

    Args:
        audit: Content of robustness.json.
        metric: Name of the metric.
        models: Keys or names of the models to draw; all, and never more than six, when left out.
        attacks: Attacks to draw; when left out all of them for one model, and the strongest one and the noise control
            for several.
        heading: Words above the drawing; the metric and what is worse when left out.
        width: Width in pixels.
        height: Height in pixels without the legend, which is put beneath.
    """
    wanted = [one for one in models_of(audit) if models is None or not {one.key, one.name, one.full}.isdisjoint(models)]
    if len(wanted) > 1 and attacks is None:
        attacks = _common(wanted)
    drawn = _curves(wanted[:_DRAWN], metric, attacks)
    worse = f" ({_WORSE[direction(metric)]})" if direction(metric) in _WORSE else ""
    under = [name for name in attacks or () if not is_control(name)]
    shared = f" under {under[0]}" if len(wanted) > 1 and len(under) == 1 else ""
    words = heading if heading is not None else f"{title(metric)}{shared}{worse}"
    note = f"{_DRAWN} of {len(wanted)} models drawn" if len(wanted) > _DRAWN else ""
    layout = Layout(width, height)
    if part(audit, "protocol").get("norm") == "l2":
        layout = Layout(width, height, 1.0, "radius ε, length of the whole change (0: clean image)")
    return drawing(drawn, words, layout, in_unit(metric), note) if drawn else ""


def _common(models: Sequence[Audited]) -> list[str]:
    """The attack that several models are drawn under: the strongest one on the first of them; and the control."""
    first = next((name for model in models if (name := headline(model.found))), None)
    return [CONTROL] if first is None else [split(first)[0], CONTROL]


def _curves(models: Sequence[Audited], metric: str, attacks: Sequence[str] | None) -> list[Curve]:
    several = len(models) > 1
    lone = several and _alone(attacks)
    drawn = []
    for place, model in enumerate(models):
        lines = part(model.found, "curves", metric)
        chosen = [name for name in lines if attacks is None or name in attacks]
        for turn, name in enumerate(sorted(chosen, key=lambda one: (is_control(one), one == WORST))):
            points = _points(lines[name], number(part(model.found, CLEAN).get(metric)))
            label = f"{model.key}: {_short(model.name)}" + ("" if lone else f", {name}") if several else name
            colour = COLOURS[(place if several else turn) % len(COLOURS)]
            if is_control(name):  # one entry of the legend for the controls of all models
                label, colour = f"{name} (control)", GREY
            elif name == WORST and not several:
                colour = INK
            if points:
                marker = place if lone else turn
                drawn.append(Curve(label, points, colour, marker, dashed=is_control(name), thick=colour == INK))
    return sorted(drawn, key=lambda one: one.dashed)


def _alone(attacks: Sequence[str] | None) -> bool:
    """Whether all models are drawn under one attack, besides the control."""
    return attacks is not None and sum(not is_control(name) for name in attacks) == 1


def _points(told: Any, clean: float | None) -> tuple[Point, ...]:
    """Points with a value, radii rising; the clean image is radius nought."""
    found = {}
    for row in told if isinstance(told, (list, tuple)) else ():
        values = [number(one) for one in row] if isinstance(row, (list, tuple)) else []
        values += [None] * (4 - len(values))
        eps, value, low, high = values[0], values[1], values[2], values[3]
        if eps is not None and value is not None and eps >= 0:
            found[eps] = (eps, value, low, high)
    if clean is not None and found:
        found.setdefault(0.0, (0.0, clean, None, None))
    return tuple(found[eps] for eps in sorted(found))


def _short(label: str) -> str:
    return label if len(label) <= 52 else f"{label[:24]}…{label[-27:]}"
