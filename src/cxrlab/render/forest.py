"""Differences with their intervals under each other, against a line at zero, as an SVG that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cxrlab.render.drawing import COLOURS, GREY, INK, RULE, frame_svg, ticks
from cxrlab.render.html import text

Spread = tuple[float, float | None, float | None]
_NAMES, _NUMBERS, _CLEAR, _TOP, _LETTER = 176, 276, 198, 62, 7.4
_ABOVE, _GAP, _FOOT = 11, 14, 38
_ALONE = 5.5  # pixels between single measurements
_MEAN = COLOURS[0]


@dataclass(frozen=True)
class Row:
    """One difference.

    Args:
        label: What it is, within its group.
        mean: Value and the ends of its interval, or None.
        alone: The single measurements behind it, likewise.
        told: Words at the end of the row.
    """

    label: str
    mean: Spread
    alone: tuple[Spread, ...] = ()
    told: str = ""


@dataclass(frozen=True)
class Group:
    """Rows that belong together.

    Args:
        name: Stands once, beside the first row.
        rows: At least one.
    """

    name: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class _Scale:
    left: float
    right: float
    low: float
    high: float

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * (value - self.low) / (self.high - self.low)


def forest(
    groups: Sequence[Group], words: str, ways: tuple[str, str], columns: tuple[str, str], width: int = 900
) -> str:
    """Every row of every group: the mean as a dot with a strong line, beneath it the single measurements, thin.

    Args:
        groups: At least one.
        words: Heading.
        ways: What lies below zero, and what above.
        columns: Headings of the two columns at the right: the mean with its interval, and the words of a row.
        width: Pixels.
    """
    scale = _scale(groups, width)
    body: list[str] = []
    y = float(_TOP)
    for place, group in enumerate(groups):
        if place:
            body.append(f'<path d="M14 {y + _GAP / 2:.1f}H{width - 14}" stroke="{RULE}"/>')
            y += _GAP
        for turn, row in enumerate(group.rows):
            body.append(_row(row, group.name if not turn else "", y + _ABOVE, scale))
            y += 2 * _ABOVE + _ALONE * len(row.alone)
    head = f'<text x="14" y="20" font-size="14" font-weight="600">{text(words)}</text>'
    return frame_svg(words, width, round(y) + _FOOT, head + _axis(scale, y, ways, columns) + "".join(body))


def _scale(groups: Sequence[Group], width: int) -> _Scale:
    """As far to the left of zero as to the right."""
    rows = [row for group in groups for row in group.rows]
    values = [value for row in rows for one in (row.mean, *row.alone) for value in one if value is not None]
    most = 1.05 * max(abs(value) for value in values) or 1.0
    return _Scale(_NAMES, width - _NUMBERS, -most, most)


def _axis(scale: _Scale, base: float, ways: tuple[str, str], columns: tuple[str, str]) -> str:
    out = []
    for value in ticks(scale.low, scale.high):
        x = scale.x(value)
        colour = INK if value == 0 else RULE
        out.append(f'<path d="M{x:.1f} {_TOP - 6}V{base + 4:.1f}" stroke="{colour}"/>')
        told = f"{value:+g}" if value else "0"
        out.append(f'<text x="{x:.1f}" y="{base + 20:.1f}" font-size="12" text-anchor="middle">{told}</text>')
    zero, y = scale.x(0.0), _TOP - 15
    out.append(f'<text x="{zero - 10:.1f}" y="{y}" font-size="12" text-anchor="end">← {text(ways[0])}</text>')
    out.append(f'<text x="{zero + 10:.1f}" y="{y}" font-size="12">{text(ways[1])} →</text>')
    out.append(f'<text x="{scale.right + 16:.1f}" y="{y}" font-size="12">{text(columns[0])}</text>')
    out.append(f'<text x="{scale.right + _CLEAR:.1f}" y="{y}" font-size="12">{text(columns[1])}</text>')
    return "".join(out)


def _row(row: Row, name: str, y: float, scale: _Scale) -> str:
    out = [f'<text x="14" y="{y + 4:.1f}" font-size="13" font-weight="600">{text(_short(name))}</text>'] if name else []
    out.append(f'<text x="{scale.left - 12}" y="{y + 4:.1f}" font-size="12" text-anchor="end">{text(row.label)}</text>')
    for place, one in enumerate(row.alone, 1):
        out.append(_spread(one, y + 3 + _ALONE * place, scale, GREY, "1", 1.9))
    out.append(_spread(row.mean, y, scale, _MEAN, "3", 4.6))
    value, low, high = row.mean
    span = "" if low is None or high is None else f" ({low:+.3f} to {high:+.3f})"
    told = f"{round(value, 3) + 0.0:+.3f}{span}"  # 0 for -0
    out.append(f'<text x="{scale.right + 16:.1f}" y="{y + 4:.1f}" font-size="12">{text(told)}</text>')
    out.append(f'<text x="{scale.right + _CLEAR:.1f}" y="{y + 4:.1f}" font-size="12">{text(row.told)}</text>')
    return "".join(out)


def _spread(one: Spread, y: float, scale: _Scale, colour: str, stroke: str, size: float) -> str:
    value, low, high = one
    out = f'<circle cx="{scale.x(value):.1f}" cy="{y:.1f}" r="{size}" fill="{colour}"/>'
    if low is None or high is None:
        return out
    line = f"M{scale.x(low):.1f} {y:.1f}H{scale.x(high):.1f}"
    return f'<path d="{line}" stroke="{colour}" stroke-width="{stroke}" stroke-opacity="0.75"/>{out}'


def _short(name: str) -> str:
    most = int((_NAMES - 70) / _LETTER)
    return name if len(name) <= most else f"{name[: most - 1]}…"
