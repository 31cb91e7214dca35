"""Drawings of an extraction: copies under each other, the curve over queries, and the map of sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.drawing import COLOURS, GREY, RULE, Curve, Layout, Point, drawing, frame_svg
from cxrlab.render.extraction_parts import FINDINGS, NONE, Copied, metric_title
from cxrlab.render.html import text
from cxrlab.render.robustness_parts import number, part

_DRAWN = len(COLOURS)  # curves in one drawing; more cannot be told apart
_WIDTH, _EDGE, _RIGHT, _TOP, _ROW, _FOOT, _LABEL = 520, 16, 168, 58, 36, 30, 62
_PLANE, _TALL, _MARGIN = 760, 460, 18
Spread = tuple[float, float | None, float | None]
CLEAN, PERTURBED = "clean", "perturbed"
SHADES = {CLEAN: COLOURS[0], PERTURBED: COLOURS[1]}


def curve_svg(copies: Sequence[Copied], metric: str = FINDINGS) -> str:
    """A metric of each copy over the queries that it was made of, with the victim as a line; empty without a curve.

    Args:
        copies: Runs of one victim; of more than eight the first eight are drawn.
        metric: Its name.
    """
    lines = [(one, points) for one in copies if one.asked and (points := _points(one, metric))]
    if not lines:
        return ""
    drawn = [
        Curve(_short(one.name, _LABEL), points, COLOURS[place], place)
        for place, (one, points) in enumerate(lines[:_DRAWN])
    ]
    most = max(point[0] for curve in drawn for point in curve.points)
    victim = spread_of(part(lines[0][0].found, "victim").get(metric))
    if victim:
        drawn.append(Curve("the victim", ((0.0, *victim), (most, *victim)), GREY, 0, dashed=True))
    layout = Layout(_WIDTH, 300, 1.0, "queries (0: the untouched surrogate)", "the queries", "queries")
    note = f"{_DRAWN} of {len(lines)} runs drawn" if len(lines) > _DRAWN else ""
    return drawing(drawn, f"{metric_title(metric)} of the copy", layout, unit=True, note=note)


def _points(one: Copied, metric: str) -> tuple[Point, ...]:
    """Queries and value, rising; the untouched surrogate begins the line where it was measured."""
    curve = part(one.found, "curve")
    found = {int(key): spread for key in curve if key.isdigit() and (spread := spread_of(part(curve, key).get(metric)))}
    if one.floor is not None and found and (floor := spread_of(part(one.floor.extraction, "surrogate").get(metric))):
        found.setdefault(0, floor)
    return tuple((float(key), *found[key]) for key in sorted(found))


def spread_of(found: Any) -> Spread | None:
    """Value and ends of a measurement; both ends or none, and nothing without a value."""
    value = number(found)
    if value is None:
        return None
    low, high = (number(part(found).get(side)) for side in ("low", "high"))
    return (value, low, high) if low is not None and high is not None else (value, None, None)


@dataclass(frozen=True)
class Bar:
    """One figure in a list of them.

    Args:
        label: Stands above it.
        spread: Value and the ends of its interval, or None.
        floor: Whether it is what is had without a query, drawn in grey.
        dots: Single measurements behind it, such as one a seed.
    """

    label: str
    spread: Spread
    floor: bool = False
    dots: tuple[float, ...] = ()


def copies_svg(copies: Sequence[Copied], metric: str = FINDINGS) -> str:
    """A metric of each copy with its interval under the others, against the victim's; empty for fewer than two.

    Args:
        copies: Runs of one victim.
        metric: Its name; a share, so that the axis runs from 0 to 1.
    """
    bars = [
        Bar(one.name, found, one.found.get("method") == NONE)
        for one in copies
        if (found := spread_of(part(one.found, "surrogate").get(metric)))
    ]
    return bars_svg(
        bars, f"{metric_title(metric)} of each copy", spread_of(part(copies[0].found, "victim").get(metric))
    )


def bars_svg(bars: Sequence[Bar], words: str, victim: Spread | None) -> str:
    """Shares under each other against the victim's; empty for fewer than two.

    Args:
        bars: Figures between 0 and 1.
        words: Heading.
        victim: The same figure of the victim.
    """
    if len(bars) < 2:
        return ""
    base = _TOP + _ROW * len(bars)
    head = f'<text x="{_EDGE}" y="19" font-size="14" font-weight="600">{text(words)}</text>'
    body = "".join(_row(one, _TOP + _ROW * place) for place, one in enumerate(bars))
    return frame_svg(words, _WIDTH, base + _FOOT, head + _grid(base) + _victim(victim, base) + body)


def _x(value: float) -> float:
    return _EDGE + (_WIDTH - _RIGHT - _EDGE) * min(max(value, 0.0), 1.0)


def _grid(base: float) -> str:
    out = []
    for value in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        x = _x(value)
        out.append(f'<path d="M{x:.1f} {_TOP - 8}V{base}" stroke="{RULE}"/>')
        out.append(f'<text x="{x:.1f}" y="{base + 17}" font-size="12" text-anchor="middle">{value:g}</text>')
    return "".join(out)


def _victim(found: Spread | None, base: float) -> str:
    """The victim as an upright line with its interval as a shade."""
    if found is None:
        return ""
    value, low, high = found
    top, x = _TOP - 8, _x(value)
    shade = ""
    if low is not None and high is not None:
        wide = max(_x(high) - _x(low), 0.5)
        shade = f'<rect x="{_x(low):.1f}" y="{top}" width="{wide:.1f}" height="{base - top}" fill="{GREY}" '
        shade += 'fill-opacity="0.15"/>'
    line = f'<path d="M{x:.1f} {top}V{base}" stroke="{GREY}" stroke-width="2" stroke-dasharray="5 4"/>'
    side = "end" if value > 0.5 else "start"
    return f'{shade}{line}<text x="{x:.1f}" y="{top - 6}" font-size="12" text-anchor="{side}">victim {value:.3f}</text>'


def _row(one: Bar, y: float) -> str:
    value, low, high = one.spread
    colour = GREY if one.floor else COLOURS[0]
    out = [_haloed(_EDGE + 4, y + 8, _short(one.label, _LABEL))]
    told = f"{value:.3f}"
    if low is not None and high is not None:
        line = f"M{_x(low):.1f} {y + 19}H{_x(high):.1f}"
        out.append(f'<path d="{line}" stroke="{colour}" stroke-width="3" stroke-opacity="0.6"/>')
        told += f" ({low:.3f} to {high:.3f})"
    out.append(f'<circle cx="{_x(value):.1f}" cy="{y + 19}" r="4.6" fill="{colour}"/>')
    out += [f'<circle cx="{_x(dot):.1f}" cy="{y + 28}" r="2" fill="{colour}"/>' for dot in one.dots]
    out.append(f'<text x="{_WIDTH - _RIGHT + 14}" y="{y + 23}" font-size="12">{text(told)}</text>')
    return "".join(out)


def _haloed(x: float, y: float, words: str) -> str:
    """A label that stays readable where lines run behind it."""
    halo = 'stroke="#fff" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
    return f'<text x="{x}" y="{y}" font-size="12" {halo}>{text(words)}</text>'


def map_svg(mapped: Mapping[str, Any]) -> str:
    """Sentences on a plane; the words of each show when it is pointed at; empty without a sentence.

    Args:
        mapped: Content of map.json. Circles are of untouched pictures, triangles of moved ones; filled points state
            something abnormal.
    """
    rows = [row for row in mapped.get("rows") or () if None not in (number(row.get("x")), number(row.get("y")))]
    if not rows:
        return ""
    across, down = (_fit([float(row[key]) for row in rows]) for key in ("x", "y"))
    points = []
    for row in sorted(rows, key=lambda one: one.get("source") == PERTURBED):
        x = _MARGIN + across(row["x"]) * (_PLANE - 2 * _MARGIN)
        y = _TALL - _MARGIN - down(row["y"]) * (_TALL - 2 * _MARGIN)
        points.append(_point(x, y, row))
    frame = f'<rect x="1" y="1" width="{_PLANE - 2}" height="{_TALL - 2}" fill="none" stroke="{RULE}"/>'
    return frame_svg("map of the sentences that the victim wrote", _PLANE, _TALL, frame + "".join(points))


def _fit(values: Sequence[float]) -> Any:
    low, high = min(values), max(values)
    wide = high - low
    return lambda value: (float(value) - low) / wide if wide else 0.5


def _point(x: float, y: float, row: Mapping[str, Any]) -> str:
    """One sentence; one that was written often is larger."""
    source = PERTURBED if row.get("source") == PERTURBED else CLEAN
    colour = SHADES[source]
    size = 4.0 + min(math.log2(max(number(row.get("count")) or 1.0, 1.0)), 5.0)
    fill = f'fill="{colour}" fill-opacity="0.75"' if row.get("abnormal") else 'fill="#fff" fill-opacity="0.6"'
    style = f'{fill} stroke="{colour}" stroke-width="1.3"'
    often = number(row.get("count"))
    times = f" (× {often:g})" if often and often > 1 else ""
    title = f"<title>{source}, round {text(row.get('round'))}: {text(row.get('text'))}{times}</title>"
    if source == CLEAN:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" {style}>{title}</circle>'
    shape = ((0, -1.2), (1.1, 0.8), (-1.1, 0.8))
    corners = " ".join(f"{x + size * right:.1f},{y + size * low:.1f}" for right, low in shape)
    return f'<polygon points="{corners}" {style}>{title}</polygon>'


def _short(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"
