"""Values with their intervals under each other (a forest plot), as an SVG drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.drawing import COLOURS, GREY, INK, RULE, Drawing, Shape, Spread, label, shape, ticks, title_of

_SEED_STEP = 5.5  # pixels between the lines of single measurements


@dataclass(frozen=True)
class Row:
    """One value."""

    label: str  # What it is
    mean: Spread  # Value and the ends of its interval, or None
    alone: tuple[Spread, ...] = ()  # Single measurements behind it, such as one for each seed, likewise
    note: str = ""  # Words at the end of the row
    quiet: bool = False  # Whether it is a baseline, drawn in grey


@dataclass(frozen=True)
class Group:
    """Rows that belong together; the name stands once, beside the first."""

    name: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class _Scale:
    """From values to pixels; what lies beyond the scale is drawn at its end."""

    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.left + (self.right - self.left) * min(max(share, 0.0), 1.0)


def difference_forest(
    groups: Sequence[Group], heading: str, ends: tuple[str, str], columns: tuple[str, str], width: int = 900
) -> Drawing:
    """Differences around zero: the mean as a dot with a strong line, the single measurements as thin lines beneath.

    Args:
        groups: At least one, each with at least one row.
        heading: Stands above.
        ends: What lies below zero, and what above.
        columns: Headings of the columns at the right: the mean with its interval, and the notes.
        width: Pixels.
    """
    rows = [row for group in groups for row in group.rows]
    values = [value for row in rows for one in (row.mean, *row.alone) for value in one if value is not None]
    most = 1.05 * max(abs(value) for value in values) or 1.0
    scale, top = _Scale(176, width - 276, -most, most), 62
    shapes: list[Shape] = []
    y = float(top)
    for place, group in enumerate(groups):
        if place:
            shapes.append(shape("path", d=f"M14 {y + 7:.1f}H{width - 14}", stroke=RULE))
            y += 14
        for turn, row in enumerate(group.rows):
            middle = y + 11
            if not turn:
                shapes.append(label(14, middle + 4, shortened(group.name, 14), size=13, font_weight="600"))
            shapes.append(label(scale.left - 12, middle + 4, row.label, "end"))
            for number, one in enumerate(row.alone, 1):
                shapes += _spread(one, middle + 3 + _SEED_STEP * number, scale, GREY, "1", 1.9)
            shapes += _spread(row.mean, middle, scale, COLOURS[0], "3", 4.6)
            shapes.append(label(scale.right + 16, middle + 4, _written(row.mean, "+")))
            shapes.append(label(scale.right + 198, middle + 4, row.note))
            y += 22 + _SEED_STEP * len(row.alone)
    zero = scale.x(0.0)
    axis = [
        *_grid(scale, top - 6, y + 4, y + 20, signed=True),
        label(zero - 10, top - 15, f"← {ends[0]}", "end"),
        label(zero + 10, top - 15, f"{ends[1]} →"),
        label(scale.right + 16, top - 15, columns[0]),
        label(scale.right + 198, top - 15, columns[1]),
    ]
    return Drawing(heading, width, round(y) + 38, (title_of(heading, 14), *axis, *shapes))


def share_forest(rows: Sequence[Row], heading: str, reference: tuple[str, Spread] | None = None) -> Drawing | None:
    """Shares between 0 and 1, each beneath its label; a dashed line marks the reference. None for fewer than two rows.

    Args:
        rows: Single measurements are dots beneath their mean.
        heading: Stands above.
        reference: Name and value that the others are compared with, such as the victim's.
    """
    if len(rows) < 2:
        return None
    width, top, step = 520, 58, 36
    scale, base = _Scale(16, width - 168, 0.0, 1.0), top + step * len(rows)
    shapes = [title_of(heading, 16), *_grid(scale, top - 8, base, base + 17)]
    if reference is not None:
        shapes += _reference(*reference, scale, top - 8, base)
    for place, row in enumerate(rows):
        y, colour = top + step * place, GREY if row.quiet else COLOURS[0]
        halo: dict[str, Any] = {
            "stroke": "#fff",
            "stroke_width": "4",
            "stroke_linejoin": "round",
            "paint_order": "stroke",
        }
        shapes.append(label(20, y + 8, shortened(row.label, 62), **halo))  # readable where lines run behind it
        shapes += _spread(row.mean, y + 19, scale, colour, "3", 4.6)
        shapes += [shape("circle", cx=scale.x(dot), cy=y + 28, r=2, fill=colour) for dot, _, _ in row.alone]
        shapes.append(label(scale.right + 14, y + 23, _written(row.mean)))
    return Drawing(heading, width, base + 30, tuple(shapes))


def _grid(scale: _Scale, top: float, base: float, written: float, signed: bool = False) -> list[Shape]:
    """Upright lines at round values, with the values beneath."""
    out = []
    for value in ticks(scale.low, scale.high):
        out.append(
            shape("path", d=f"M{scale.x(value):.1f} {top}V{base:.1f}", stroke=INK if signed and not value else RULE)
        )
        out.append(label(scale.x(value), written, f"{value:{'+' if signed and value else ''}g}", "middle"))
    return out


def _reference(name: str, spread: Spread, scale: _Scale, top: float, base: float) -> list[Shape]:
    """An upright dashed line with its interval as a shade."""
    value, low, high = spread
    out = []
    if low is not None and high is not None:
        box: dict[str, Any] = {
            "x": scale.x(low),
            "width": max(scale.x(high) - scale.x(low), 0.5),
            "y": top,
            "height": base - top,
        }
        out.append(shape("rect", **box, fill=GREY, fill_opacity="0.15"))
    x = scale.x(value)
    out.append(shape("path", d=f"M{x:.1f} {top}V{base}", stroke=GREY, stroke_width="2", stroke_dasharray="5 4"))
    return [*out, label(x, top - 6, f"{name} {value:.3f}", "end" if value > 0.5 else "start")]


def _spread(spread: Spread, y: float, scale: _Scale, colour: str, stroke: str, size: float) -> list[Shape]:
    value, low, high = spread
    dot = shape("circle", cx=scale.x(value), cy=y, r=size, fill=colour)
    if low is None or high is None:
        return [dot]
    line = f"M{scale.x(low):.1f} {y:.1f}H{scale.x(high):.1f}"
    return [shape("path", d=line, stroke=colour, stroke_width=stroke, stroke_opacity="0.75"), dot]


def _written(spread: Spread, sign: str = "") -> str:
    value, low, high = spread
    ends = "" if low is None or high is None else f" ({low:{sign}.3f} to {high:{sign}.3f})"
    return f"{round(value, 3) + 0.0:{sign}.3f}{ends}"  # 0 for -0


def shortened(words: str, most: int) -> str:
    """A label of at most so many letters."""
    return words if len(words) <= most else f"{words[: most - 1]}…"
