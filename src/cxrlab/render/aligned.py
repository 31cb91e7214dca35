"""The section of a page on preference alignment: what was gained, what it cost, and reward against length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.core.headlines import ARROWS
from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, ends, figure, section, table, text

_NOTE = (
    "The model before and after alignment on the same studies of a split that is kept from judging and training. "
    "Differences are after minus before, paired by study, with intervals by patient; the verdict is corrected for the "
    "number of tests, that of errors by kind and of error-free reports among themselves. A judge can be pleased by "
    "length alone: look at the words beside the scores. Drift is KL(after from before), of reports that the aligned "
    "model drew."
)
_WIDTH, _HEIGHT, _EDGE = 460, 220, 44
_LINES = (("reward", "plain judgement", "#2b6cb0"), ("reward_length_controlled", "length-controlled", "#b7791f"))


def aligned(runs: Sequence[RunFolder]) -> str:
    """What became of every model that was aligned."""
    return section("Before and after alignment", *(_one(run) for run in runs if run.preference), note=_NOTE)


def beside_start(selection: Mapping[str, Any]) -> str:
    """A sentence where the step that was kept pleases the judge no more than the start did; nothing where it does."""
    score, start = selection.get("score"), selection.get("start_score")
    if score is None or start is None or score > start:
        return ""
    return f"No step pleased the judge more than the start on the images that were watched: {score:.3f}, {start:.3f}."


def _one(run: RunFolder) -> str:
    found = run.preference
    gaps = found.get("difference") or {}
    rows: list[list[str]] = []
    kinds: list[list[str]] = []
    for name, gap in gaps.items():
        if _counts(found, name):
            (kinds if name.startswith("errors.") and name.count(".") > 1 else rows).append(_row(name, found, gap))
    head = ["metric", "", "before", "after", "difference", "interval", "verdict", "win / tie / lose"]
    chosen = found.get("selection") or {}
    told = (
        f"{text(found.get('n'))} studies of {text(found.get('patients'))} patients; the weights of step "
        f"{text(chosen.get('step'))} of {text(chosen.get('of'))} were kept ({text(chosen.get('select'))}). "
        f"{text(beside_start(chosen))}"
    )
    parts = [f"<h3>{text(run.name)}</h3><p class=small>{told}</p>", table(head, rows)]
    if kinds:
        parts.append(f"<details><summary>errors by kind</summary>{table(head, kinds)}</details>")
    parts.append(_cost(found))
    return "".join([*parts, _curve(found.get("watched") or ())])


def _counts(found: Mapping[str, Any], name: str) -> bool:
    """Whether a metric says anything: an error that nobody made before or after is left out."""
    return any((found.get(side) or {}).get(name, {}).get("value") for side in ("before", "after"))


def _row(name: str, found: Mapping[str, Any], gap: Mapping[str, Any]) -> list[str]:
    by_study = gap.get("by_study") or {}
    return [
        text(name),
        ARROWS.get(str(gap.get("direction")), ""),
        figure((found.get("before") or {}).get(name, {}).get("value")),
        figure((found.get("after") or {}).get(name, {}).get("value")),
        f"<b>{figure(gap.get('difference'), '+')}</b>",
        ends(gap, "+"),
        text(gap.get("verdict")),
        " / ".join(text(by_study.get(key)) for key in ("win", "tie", "lose")) if by_study else UNKNOWN,
    ]


def _cost(found: Mapping[str, Any]) -> str:
    """Length, certainty, drift and closed questions."""
    length, asked = found.get("length") or {}, found.get("questions") or {}
    drift, errors = found.get("drift") or {}, asked.get("calibration_error") or {}
    looked = found.get("retrieval") or {}
    lines = [
        ("words a report", length.get("words")),
        ("mean log-probability of its words", length.get("mean_logprob")),
        ("closed questions answered rightly", asked.get("accuracy")),
        ("squared error of P(yes)", asked.get("squared_error")),
        *((f"report finds its image, {name}", one) for name, one in looked.items() if name.startswith("recall@")),
    ]
    rows = [
        [text(name), figure(one.get("before")), figure(one.get("after")), figure(one.get("difference"), "+"), ends(one)]
        for name, one in lines
        if one
    ]
    if errors:
        rows.append(["calibration error", figure(errors.get("before")), figure(errors.get("after")), UNKNOWN, UNKNOWN])
    told = f"<p class=small>References have {figure(length.get('reference'))} words. "
    if drift:
        told += (
            f"Drift: {figure(drift.get('kl_report'))} nats a report ({ends(drift)}), {figure(drift.get('kl_token'))} a "
            "token."
        )
    head = ["what it cost", "before", "after", "difference", "interval"]
    return (table(head, rows) + f"{told}</p>") if rows else ""


def _curve(watched: Sequence[Mapping[str, Any]]) -> str:
    """Judgement against words, step after step, as a drawing; empty where fewer than two steps were watched."""
    points = [one for one in watched if _number(one.get("words"))]
    if len(points) < 2:
        return ""
    values = [float(one[key]) for one in points for key, _, _ in _LINES if _number(one.get(key))]
    across = _Axis([float(one["words"]) for one in points], _EDGE, _WIDTH - 12)
    up = _Axis(values, _HEIGHT - _EDGE, 12)
    marks = []
    for key, label, colour in _LINES:
        dots = [(across(one["words"]), up(one[key]), one.get("step")) for one in points if _number(one.get(key))]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in dots)
        marks.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        marks += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{text(label)}, step {text(step)}</title>'
            "</circle>"
            for x, y, step in dots
        ]
    keys = " &nbsp; ".join(f'<span style="color:{colour}">●</span> {text(label)}' for _, label, colour in _LINES)
    size = f'width="{_WIDTH}" height="{_HEIGHT}"'
    drawing = f'<svg {size} role="img" aria-label="reward against length">{_axes(across, up)}{"".join(marks)}</svg>'
    return f"<h3>Reward against length while it was trained</h3>{drawing}<p class=small>{keys}; each dot is a step.</p>"


class _Axis:
    """Numbers onto pixels; a range of nothing is widened so that it has a middle."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        low, high = min(values), max(values)
        pad = 0.05 * (high - low) or 0.5 * abs(high) or 0.5
        self.low, self.high, self._first, self._last = low - pad, high + pad, first, last

    def __call__(self, value: float) -> float:
        share = (float(value) - self.low) / (self.high - self.low)
        return self._first + share * (self._last - self._first)


def _axes(across: _Axis, up: _Axis) -> str:
    base, left = _HEIGHT - _EDGE, _EDGE
    lines = (
        f'<path d="M{left} 12V{base}H{_WIDTH - 12}" fill="none" stroke="#999"/>'
        f'<text x="{(_WIDTH + left) / 2:.0f}" y="{_HEIGHT - 8}" font-size="12" text-anchor="middle">'
        "words a report</text>"
    )
    for share in (0.0, 0.5, 1.0):
        words, reward = (one.low + share * (one.high - one.low) for one in (across, up))
        lines += (
            f'<text x="{across(words):.0f}" y="{base + 16}" font-size="11" text-anchor="middle">{words:.0f}</text>'
            f'<text x="{left - 5}" y="{up(reward) + 4:.0f}" font-size="11" text-anchor="end">{reward:.2f}</text>'
        )
    return lines


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
