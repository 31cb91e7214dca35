"""Curves and forest plots with their intervals, as SVG drawings that need nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cxrlab.render.components import number, part

COLOURS = ("#0b5fa5", "#c8500a", "#0a7d57", "#9b3f86", "#a67c00", "#3e8fb8", "#6b4fa0", "#7a2e2e")
GREY, INK, RULE, _AXIS = "#7d848c", "#1d2126", "#dcdfe3", "#888"
_LEFT, _RIGHT, _TOP, _BOTTOM, _ROW, _LETTER, _SPARE = 50, 14, 34, 46, 18, 6.4, 6

Point = tuple[float, float, float | None, float | None]
Spread = tuple[float, float | None, float | None]


@dataclass(frozen=True)
class Shape:
    """One SVG element: its attributes, the words inside, what is shown when it is pointed at, elements inside."""

    tag: str
    attributes: Mapping[str, str]
    words: str = ""
    title: str = ""
    inside: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class Drawing:
    """A whole drawing on white; `heading` describes it to readers who cannot see it."""

    heading: str
    width: int
    height: int
    shapes: tuple[Shape, ...]


def shape(tag: str, words: str = "", title: str = "", **attributes: Any) -> Shape:
    """An SVG element; `font_size=12` becomes `font-size="12"`, and fractions get one decimal."""
    written = {name.replace("_", "-"): f"{v:.1f}" if isinstance(v, float) else str(v) for name, v in attributes.items()}
    return Shape(tag, written, words, title)


def label(x: float, y: float, words: str, anchor: str = "start", size: int = 12, **more: Any) -> Shape:
    """Words at a place."""
    return shape("text", words, x=x, y=y, font_size=size, text_anchor=anchor, **more)


def title_of(words: str, x: float = _LEFT) -> Shape:
    """The heading inside a drawing."""
    return label(x, 19, words, size=14, font_weight="600")


def ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers from `low` to `high`."""
    raw = (high - low) / 5
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(step * turn, 10) for turn in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Curve:
    """One line."""

    label: str  # Its name in the legend
    points: tuple[Point, ...]  # Place on the axis, value, and the ends of its interval or None
    colour: str  # Of line, shade and markers
    marker: int  # Which of four shapes its points have, so that lines can be distinguished without colour
    dashed: bool = False  # Whether the line is a control
    thick: bool = False  # Whether the line is emphasised
    # Place and value of single measurements behind the line, such as one for each seed
    dots: tuple[tuple[float, float], ...] = ()
    # Pixels that the dots are moved to the right, so that those of several lines do not overlap
    shift: float = 0.0
    notes: tuple[str, ...] = ()  # What each point is, in words before its value; its place on the axis when left out


@dataclass(frozen=True)
class Layout:
    """Size of a drawing, and how its horizontal axis is written."""

    width: int = 520  # Pixels
    height: int = 300  # Pixels without the legend, which is put beneath
    per: float = 255.0  # Factor from the values to the unit of the axis
    across: str = "radius ε, in 255ths of the grey range (0: clean image)"  # Words beneath the axis
    over: str = "the radius"  # What the axis holds, in a word or two
    sign: str = "ε"  # Stands before a number of the axis in the words of a point
    from_zero: bool = True  # Whether both axes begin at 0; otherwise they span the data

    def radius(self, value: float) -> str:
        """A place in the unit of the axis."""
        return f"{round(value * self.per, 3):g}"


@dataclass(frozen=True)
class Panel:
    """One of several drawings that share a legend."""

    heading: str  # Stands above
    curves: Sequence[Curve]  # At least one with at least one point
    across: str  # Words beneath the axis
    unit: bool = False  # Whether the values are shares, so that the axis runs from 0 to 1


def draw_curves(curves: Sequence[Curve], heading: str, layout: Layout, unit: bool = False, note: str = "") -> Drawing:
    """All curves in one frame, with a legend and a note beneath."""
    return draw_panels([Panel(heading, curves, layout.across, unit)], layout, note)


def draw_panels(panels: Sequence[Panel], layout: Layout, note: str = "") -> Drawing:
    """Drawings side by side, with one legend beneath."""
    width = layout.width // len(panels)
    shapes = []
    for place, panel in enumerate(panels):
        inside = _Plot(panel, replace(layout, width=width, across=panel.across)).shapes()
        shapes.append(Shape("g", {"transform": f"translate({place * width} 0)"}, inside=inside))
    legend, rows = _legend([curve for panel in panels for curve in panel.curves], note, layout)
    heading = f"{'; '.join(panel.heading for panel in panels)}, over {layout.over}"
    return Drawing(heading, layout.width, layout.height + rows * _ROW + 6, (*shapes, *legend))


class _Plot:
    """One panel in pixels: heading, axes, and curves with their intervals."""

    def __init__(self, panel: Panel, layout: Layout) -> None:
        self.panel, self.layout = panel, layout
        self.right, self.base = layout.width - _RIGHT, layout.height - _BOTTOM
        places = [point[0] for curve in panel.curves for point in curve.points]
        values = [value for curve in panel.curves for point in curve.points for value in point[1:] if value is not None]
        values += [value for curve in panel.curves for _, value in curve.dots]
        shift = max(abs(curve.shift) for curve in panel.curves)
        self.inset = shift and shift + _SPARE
        self.across, self.up = _padded(places), _padded(values)
        if layout.from_zero:
            low, high = min(0.0, *values), max(1.0 if panel.unit else 0.0, *values)
            if not panel.unit and high > low:
                marks = ticks(low, high)
                high = max(high, 2 * marks[-1] - marks[-2]) if high > marks[-1] else high
            self.across, self.up = (0.0, max(places) or 1.0), (low, high if high > low else low + 1.0)

    def x(self, value: float) -> float:
        first, last = _LEFT + self.inset, self.right - self.inset
        return first + (last - first) * (value - self.across[0]) / (self.across[1] - self.across[0])

    def y(self, value: float) -> float:
        return self.base - (self.base - _TOP) * (value - self.up[0]) / (self.up[1] - self.up[0])

    def shapes(self) -> tuple[Shape, ...]:
        """Everything, intervals and dots behind the lines."""
        curves = self.panel.curves
        lone = sum(curve.dashed for curve in curves) == 1  # the shades of several controls would hide the rest
        out = [title_of(self.panel.heading), *self.axes()]
        out += [one for curve in curves if not curve.dashed or lone for one in self.band(curve)]
        for curve in curves:
            dots = [(self.x(place) + curve.shift, self.y(value)) for place, value in curve.dots]
            out += [shape("circle", cx=x, cy=y, r=2, fill=curve.colour, fill_opacity="0.6") for x, y in dots]
        return (*out, *(one for curve in curves for one in self.line(curve)))

    def axes(self) -> list[Shape]:
        out, layout = [], self.layout
        for value in ticks(*self.up):
            out.append(shape("path", d=f"M{_LEFT} {self.y(value):.1f}H{self.right:.1f}", stroke=RULE))
            out.append(label(_LEFT - 7, self.y(value) + 4, f"{value:g}", "end"))
        out.append(shape("path", d=f"M{_LEFT} {_TOP}V{self.base}H{self.right:.1f}", fill="none", stroke=_AXIS))
        last = -math.inf
        points = sorted({0.0, *(point[0] for curve in self.panel.curves for point in curve.points)})
        for place in points if layout.from_zero else ticks(*self.across):
            x = self.x(place)
            out.append(shape("path", d=f"M{x:.1f} {self.base}v5", stroke=_AXIS))
            if x - last >= 26:  # closer ones would overlap
                words = layout.radius(place)
                centre = min(x, layout.width - 4.2 * len(words))  # a long number at the right end stays inside
                out.append(label(centre, self.base + 18, words, "middle"))
                last = x
        return [*out, label((_LEFT + self.right) / 2, self.base + 37, layout.across, "middle")]

    def band(self, curve: Curve) -> list[Shape]:
        """The interval as a shade; a point without one, such as the clean image, closes it to the line."""
        known = [(at, v if low is None else low, v if high is None else high) for at, v, low, high in curve.points]
        if all(low == high for _, low, high in known):
            return []
        if len(known) == 1:  # a point alone has no shade
            at, low, high = known[0]
            way = f"M{self.x(at):.1f} {self.y(low):.1f}V{self.y(high):.1f}"
            return [shape("path", d=way, stroke=curve.colour, stroke_opacity="0.6")]
        upper = [f"{self.x(at):.1f},{self.y(high):.1f}" for at, _, high in known]
        lower = [f"{self.x(at):.1f},{self.y(low):.1f}" for at, low, _ in reversed(known)]
        return [shape("polygon", points=" ".join(upper + lower), fill=curve.colour, fill_opacity="0.13")]

    def line(self, curve: Curve) -> list[Shape]:
        way = " ".join(f"{self.x(at):.1f},{self.y(value):.1f}" for at, value, _, _ in curve.points)
        out = [shape("polyline", points=way, **_stroke(curve, "2.6" if curve.thick else "1.8"), fill="none")]
        for turn, (at, value, low, high) in enumerate(curve.points):
            ends = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
            place = curve.notes[turn] if curve.notes else f"{self.layout.sign} {self.layout.radius(at)}"
            out.append(_marker(self.x(at), self.y(value), curve, f"{curve.label}, {place}: {value:.3f}{ends}"))
        return out


def _padded(values: Sequence[float]) -> tuple[float, float]:
    """The range of the data and a little more; a range of one value is widened so that it has a middle."""
    low, high = min(values), max(values)
    pad = 0.05 * (high - low) or 0.5 * abs(high) or 0.5
    return low - pad, high + pad


def _stroke(curve: Curve, width: str) -> dict[str, str]:
    return {"stroke": curve.colour, "stroke_width": width, **({"stroke_dasharray": "5 4"} if curve.dashed else {})}


def _marker(x: float, y: float, curve: Curve, title: str = "") -> Shape:
    """A dot, square, triangle or diamond."""
    if curve.marker % 4 == 0:
        return shape("circle", title=title, cx=x, cy=y, r=3.4, fill=curve.colour)
    corners = (
        ((-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)),
        ((0, -4.2), (4, 3.2), (-4, 3.2)),
        ((0, -4.6), (4.2, 0), (0, 4.6), (-4.2, 0)),
    )[curve.marker % 4 - 1]
    points = " ".join(f"{x + right:.1f},{y + down:.1f}" for right, down in corners)
    return shape("polygon", title=title, points=points, fill=curve.colour)


def _legend(curves: Sequence[Curve], note: str, layout: Layout) -> tuple[list[Shape], int]:
    """A piece of every line with its label, each label once, and the number of rows that they need."""
    out: list[Shape] = []
    first: dict[str, Curve] = {}
    for curve in curves:
        first.setdefault(curve.label, curve)
    x, row = float(_LEFT), 0
    for curve in first.values():
        needs = 40 + _LETTER * len(curve.label)
        if x > _LEFT and x + needs > layout.width:
            x, row = float(_LEFT), row + 1
        y = layout.height + 8 + row * _ROW
        out.append(shape("path", d=f"M{x:.1f} {y}h22", **_stroke(curve, "2")))
        out += [_marker(x + 11, y, curve), label(x + 27, y + 4, curve.label)]
        x += needs
    if note:
        row += 1
        out.append(label(_LEFT, layout.height + 12 + row * _ROW, note))
    return out, row + 1


_SEED_STEP = 5.5  # pixels between the lines of single measurements


def spread_of(found: Any) -> Spread | None:
    """Value and ends of a measurement; both ends or none, and nothing without a value."""
    value = number(found)
    if value is None:
        return None
    low, high = (number(part(found).get(side)) for side in ("low", "high"))
    return (value, low, high) if low is not None and high is not None else (value, None, None)


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
    """Rows that belong together; the name is written once, beside the first."""

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
        ends: Words for values below zero, and above.
        columns: Headings of the columns at the right: the mean with its interval, and the notes.
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
                shapes.append(label(14, middle + 4, truncated(group.name, 14), size=13, font_weight="600"))
            shapes.append(label(scale.left - 12, middle + 4, row.label, "end"))
            for place_of_seed, one in enumerate(row.alone, 1):
                shapes += _spread(one, middle + 3 + _SEED_STEP * place_of_seed, scale, GREY, "1", 1.9)
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
    """Shares between 0 and 1, each beneath its label, single measurements as dots; None for fewer than two rows.

    Args:
        reference: Name and value of a dashed line with which the rows are compared, such as the victim's.
    """
    if len(rows) < 2:
        return None
    width, top, step = 520, 58, 36
    scale, base = _Scale(16, width - 168, 0.0, 1.0), top + step * len(rows)
    shapes = [title_of(heading, 16), *_grid(scale, top - 8, base, base + 17)]
    if reference is not None:  # an upright dashed line with its interval as a shade
        name, (value, low, high) = reference
        if low is not None and high is not None:
            left, wide = scale.x(low), max(scale.x(high) - scale.x(low), 0.5)
            box: dict[str, Any] = {"x": left, "width": wide, "y": top - 8, "height": base - top + 8}
            shapes.append(shape("rect", **box, fill=GREY, fill_opacity="0.15"))
        x = scale.x(value)
        line = f"M{x:.1f} {top - 8}V{base}"
        shapes.append(shape("path", d=line, stroke=GREY, stroke_width="2", stroke_dasharray="5 4"))
        shapes.append(label(x, top - 14, f"{name} {value:.3f}", "end" if value > 0.5 else "start"))
    for place, row in enumerate(rows):
        y, colour = top + step * place, GREY if row.quiet else COLOURS[0]
        # Readable where lines run behind it.
        halo: Any = {"stroke": "#fff", "stroke_width": "4", "stroke_linejoin": "round", "paint_order": "stroke"}
        shapes.append(label(20, y + 8, truncated(row.label, 62), **halo))
        shapes += _spread(row.mean, y + 19, scale, colour, "3", 4.6)
        shapes += [shape("circle", cx=scale.x(dot), cy=y + 28, r=2, fill=colour) for dot, _, _ in row.alone]
        shapes.append(label(scale.right + 14, y + 23, _written(row.mean)))
    return Drawing(heading, width, base + 30, tuple(shapes))


@dataclass(frozen=True)
class CircleRow:
    """A row of circles, one for each model."""

    label: str
    weight: float  # The area of the row's circles, in any unit
    values: Sequence[Spread | None]  # In the order of the models; None where a model has no value


def draw_circles(rows: Sequence[CircleRow], names: Sequence[str], heading: str) -> Drawing:
    """Shares between 0 and 1 on a line per row: a circle for each model, its interval through it."""
    width, top, step = 760, 40, 30
    scale, base = _Scale(260, width - 20, 0.0, 1.0), top + step * len(rows)
    most = max((row.weight for row in rows), default=0) or 1.0
    curves = [Curve(name, (), COLOURS[place % len(COLOURS)], 0) for place, name in enumerate(names)]
    shapes = [title_of(heading, 16), *_grid(scale, top - 6, base, base + 16)]
    for place, row in enumerate(rows):
        y = top + step * (place + 0.5)
        shapes.append(label(scale.left - 14, y + 4, truncated(row.label, 38), "end"))
        for turn, (curve, spread) in enumerate(zip(curves, row.values, strict=True)):
            if spread is None:
                continue
            value, low, high = spread
            middle = y + 5 * (turn - (len(curves) - 1) / 2)  # intervals of several models beneath each other
            if low is not None and high is not None:
                line = f"M{scale.x(low):.1f} {middle:.1f}H{scale.x(high):.1f}"
                shapes.append(shape("path", d=line, stroke=curve.colour, stroke_opacity="0.6"))
            ends = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
            words = f"{curve.label}, {row.label}: {value:.3f}{ends}"
            radius = max(2.0, 11.0 * math.sqrt(row.weight / most))
            more = {"fill": curve.colour, "fill_opacity": "0.55"}
            shapes.append(shape("circle", title=words, cx=scale.x(value), cy=middle, r=radius, **more))
    legend, lines = _legend(curves, "", Layout(width=width, height=base + 30))
    return Drawing(heading, width, base + 36 + lines * _ROW, (*shapes, *legend))


def _grid(scale: _Scale, top: float, base: float, written: float, signed: bool = False) -> list[Shape]:
    """Upright lines at round values, with the values beneath."""
    out = []
    for value in ticks(scale.low, scale.high):
        colour, sign = INK if signed and not value else RULE, "+" if signed and value else ""
        out.append(shape("path", d=f"M{scale.x(value):.1f} {top}V{base:.1f}", stroke=colour))
        out.append(label(scale.x(value), written, f"{value:{sign}g}", "middle"))
    return out


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


def truncated(words: str, most: int) -> str:
    """A label of at most so many letters."""
    return words if len(words) <= most else f"{words[: most - 1]}…"
