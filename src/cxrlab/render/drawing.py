"""Lines over a radius with their intervals, as an SVG that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cxrlab.render.html import text

_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'  # a file of its own needs it
COLOURS = ("#0b5fa5", "#c8500a", "#0a7d57", "#9b3f86", "#a67c00", "#3e8fb8", "#6b4fa0", "#7a2e2e")
GREY, INK = "#7d848c", "#1d2126"
RULE, _AXIS = "#dcdfe3", "#888"
_LEFT, _RIGHT, _TOP, _BOTTOM, _ROW, _LETTER, _SPARE = 50, 14, 34, 46, 18, 6.4, 6
_DASHES = ' stroke-dasharray="5 4"'

Point = tuple[float, float, float | None, float | None]


@dataclass(frozen=True)
class Curve:
    """One line.

    Args:
        label: Its name in the legend.
        points: Radius, value, and the ends of the interval or None; radii rise.
        colour: Of line, shade and markers.
        marker: Which of four shapes its points have.
        dashed: Whether the line is a control.
        thick: Whether the line stands above the others.
        dots: Radius and value of single measurements behind the line, such as one a seed.
        shift: Pixels that the dots are moved to the right, so that those of several lines can be told apart.
    """

    label: str
    points: tuple[Point, ...]
    colour: str
    marker: int
    dashed: bool = False
    thick: bool = False
    dots: tuple[tuple[float, float], ...] = ()
    shift: float = 0.0


@dataclass(frozen=True)
class Layout:
    """How large a drawing is and how its radii are written.

    Args:
        width: Pixels.
        height: Pixels without the legend, which is put beneath.
        per: How many of the unit in which radii are written go into one.
        across: Words beneath the axis of the radii.
        over: What the axis holds, in a word or two, where it is not the radius.
        sign: Stands before a number of the axis in the words of a point.
    """

    width: int = 520
    height: int = 300
    per: float = 255.0
    across: str = "radius ε, in 255ths of the grey range (0: clean image)"
    over: str = "the radius"
    sign: str = "ε"

    def radius(self, eps: float) -> str:
        """A radius in the unit of the axis."""
        return f"{round(eps * self.per, 3):g}"


@dataclass(frozen=True)
class _Frame:
    """Numbers onto pixels."""

    right: float
    base: float
    most: float
    low: float
    high: float
    inset: float = 0.0

    def x(self, value: float) -> float:
        first, last = _LEFT + self.inset, self.right - self.inset
        return first + (last - first) * value / self.most

    def y(self, value: float) -> float:
        return self.base - (self.base - _TOP) * (value - self.low) / (self.high - self.low)


def drawing(drawn: Sequence[Curve], words: str, layout: Layout, unit: bool = False, note: str = "") -> str:
    """All curves in one frame.

    Args:
        drawn: The curves, at least one with at least one point.
        words: Heading.
        layout: Size and unit.
        unit: Whether the values are shares, so that the axis runs from 0 to 1 in every drawing.
        note: Words beneath the legend.
    """
    legend, rows = _legend(drawn, note, layout)
    full = layout.height + rows * _ROW + 6
    return frame_svg(f"{words}, over {layout.over}", layout.width, full, plot(drawn, words, layout, unit) + legend)


@dataclass(frozen=True)
class Panel:
    """One of several drawings that share a legend.

    Args:
        words: Heading.
        drawn: The curves, at least one with at least one point.
        across: Words beneath the axis of the radii.
        unit: Whether the values are shares, so that the axis runs from 0 to 1.
    """

    words: str
    drawn: Sequence[Curve]
    across: str
    unit: bool = False


def panels(several: Sequence[Panel], layout: Layout, note: str = "") -> str:
    """Drawings side by side, with one legend beneath.

    Args:
        several: At least one drawing.
        layout: Size of the whole, without the legend, and unit.
        note: Words beneath the legend.
    """
    wide = layout.width // len(several)
    inside = ""
    for place, each in enumerate(several):
        drawn = plot(each.drawn, each.words, replace(layout, width=wide, across=each.across), each.unit)
        inside += f'<g transform="translate({place * wide} 0)">{drawn}</g>'
    legend, rows = _legend([curve for each in several for curve in each.drawn], note, layout)
    words = "; ".join(each.words for each in several)
    return frame_svg(f"{words}, over {layout.over}", layout.width, layout.height + rows * _ROW + 6, inside + legend)


def plot(drawn: Sequence[Curve], words: str, layout: Layout, unit: bool = False) -> str:
    """Heading, axes and curves without a legend, for a drawing that has room for them; see `drawing`."""
    frame = _frame(drawn, layout, unit)
    lone = sum(one.dashed for one in drawn) == 1  # the shades of several controls would bury the rest
    return (
        f'<text x="{_LEFT}" y="19" font-size="14" font-weight="600">{text(words)}</text>'
        f"{_axes(frame, drawn, layout)}{''.join(_band(one, frame) for one in drawn if not one.dashed or lone)}"
        f"{''.join(_dots(one, frame) for one in drawn)}{''.join(_line(one, frame, layout) for one in drawn)}"
    )


def frame_svg(words: str, width: int, height: int, inside: str) -> str:
    """A whole drawing on white; `words` tell it to whom cannot see it, `inside` is ready-made markup."""
    return (
        f'<svg{_NAMESPACE} width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{text(words)}" font-family="system-ui, sans-serif" fill="{INK}">'
        f'<rect width="{width}" height="{height}" fill="#fff"/>{inside}</svg>'
    )


def _frame(drawn: Sequence[Curve], layout: Layout, unit: bool) -> _Frame:
    values = [value for one in drawn for point in one.points for value in point[1:] if value is not None]
    values += [value for one in drawn for _, value in one.dots]
    low, high = min(0.0, *values), max(1.0 if unit else 0.0, *values)
    if not unit and high > low:
        marks = ticks(low, high)
        high = max(high, 2 * marks[-1] - marks[-2]) if high > marks[-1] else high
    most = max(point[0] for one in drawn for point in one.points)
    furthest = max(abs(one.shift) for one in drawn)
    top, base = high if high > low else low + 1.0, layout.height - _BOTTOM
    return _Frame(layout.width - _RIGHT, base, most or 1.0, low, top, furthest and furthest + _SPARE)


def _axes(frame: _Frame, drawn: Sequence[Curve], layout: Layout) -> str:
    out = []
    for value in ticks(frame.low, frame.high):
        y = frame.y(value)
        out.append(f'<path d="M{_LEFT} {y:.1f}H{frame.right:.1f}" stroke="{RULE}"/>')
        out.append(f'<text x="{_LEFT - 7}" y="{y + 4:.1f}" font-size="12" text-anchor="end">{value:g}</text>')
    out.append(f'<path d="M{_LEFT} {_TOP}V{frame.base}H{frame.right:.1f}" fill="none" stroke="{_AXIS}"/>')
    last = -math.inf
    for eps in sorted({0.0, *(point[0] for one in drawn for point in one.points)}):
        x = frame.x(eps)
        out.append(f'<path d="M{x:.1f} {frame.base}v5" stroke="{_AXIS}"/>')
        if x - last >= 26:  # closer ones would run into each other
            label = layout.radius(eps)
            centre = min(x, layout.width - 4.2 * len(label))  # a long number at the right end stays inside
            place = f'x="{centre:.1f}" y="{frame.base + 18}"'
            out.append(f'<text {place} font-size="12" text-anchor="middle">{label}</text>')
            last = x
    centre = (_LEFT + frame.right) / 2
    out.append(
        f'<text x="{centre:.1f}" y="{frame.base + 37}" font-size="12" text-anchor="middle">{text(layout.across)}</text>'
    )
    return "".join(out)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, four to eight of them."""
    raw = (high - low) / 5
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(step * turn, 10) for turn in range(first, math.floor(high / step + 1e-9) + 1)]


def _band(one: Curve, frame: _Frame) -> str:
    """The interval as a shade; a point without one, such as the clean image, closes it to the line."""
    known = [
        (eps, value if low is None else low, value if high is None else high) for eps, value, low, high in one.points
    ]
    if all(low == high for _, low, high in known):
        return ""
    upper = [f"{frame.x(eps):.1f},{frame.y(high):.1f}" for eps, _, high in known]
    lower = [f"{frame.x(eps):.1f},{frame.y(low):.1f}" for eps, low, _ in reversed(known)]
    return f'<polygon points="{" ".join(upper + lower)}" fill="{one.colour}" fill-opacity="0.13"/>'


def _dots(one: Curve, frame: _Frame) -> str:
    return "".join(
        f'<circle cx="{frame.x(eps) + one.shift:.1f}" cy="{frame.y(value):.1f}" r="2" fill="{one.colour}" '
        'fill-opacity="0.6"/>'
        for eps, value in one.dots
    )


def _line(one: Curve, frame: _Frame, layout: Layout) -> str:
    way = " ".join(f"{frame.x(eps):.1f},{frame.y(value):.1f}" for eps, value, _, _ in one.points)
    dash = _DASHES if one.dashed else ""
    width = "2.6" if one.thick else "1.8"
    out = [f'<polyline points="{way}" fill="none" stroke="{one.colour}" stroke-width="{width}"{dash}/>']
    for eps, value, low, high in one.points:
        span = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
        told = f"{one.label}, {layout.sign} {layout.radius(eps)}: {value:.3f}{span}"
        out.append(_marker(frame.x(eps), frame.y(value), one, f"<title>{text(told)}</title>"))
    return "".join(out)


def _marker(x: float, y: float, one: Curve, inside: str = "") -> str:
    """A dot, square, triangle or diamond: lines are told apart without colour too."""
    if one.marker % 4 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{one.colour}">{inside}</circle>'
    shape = (
        ((-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)),
        ((0, -4.2), (4, 3.2), (-4, 3.2)),
        ((0, -4.6), (4.2, 0), (0, 4.6), (-4.2, 0)),
    )[one.marker % 4 - 1]
    corners = " ".join(f"{x + right:.1f},{y + down:.1f}" for right, down in shape)
    return f'<polygon points="{corners}" fill="{one.colour}">{inside}</polygon>'


def _legend(drawn: Sequence[Curve], note: str, layout: Layout) -> tuple[str, int]:
    """A piece of every line with its label, each label once, in as many rows as they need; and the number of rows."""
    out, x, row = [], float(_LEFT), 0
    first = {one.label: one for one in reversed(drawn)}
    for one in [first[label] for label in dict.fromkeys(one.label for one in drawn)]:
        needs = 40 + _LETTER * len(one.label)
        if x > _LEFT and x + needs > layout.width:
            x, row = float(_LEFT), row + 1
        y = layout.height + 8 + row * _ROW
        dash = _DASHES if one.dashed else ""
        out.append(f'<path d="M{x:.1f} {y}h22" stroke="{one.colour}" stroke-width="2"{dash}/>')
        out.append(_marker(x + 11, y, one))
        out.append(f'<text x="{x + 27:.1f}" y="{y + 4}" font-size="12">{text(one.label)}</text>')
        x += needs
    if note:
        row += 1
        out.append(f'<text x="{_LEFT}" y="{layout.height + 12 + row * _ROW}" font-size="12">{text(note)}</text>')
    return "".join(out), row + 1


def in_page(svg: str) -> str:
    """A drawing for the inside of a page, where it needs no namespace: a page names no address at all."""
    return svg.replace(_NAMESPACE, "")
