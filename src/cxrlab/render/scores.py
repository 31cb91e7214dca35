"""Sections of a page on scored runs: the numbers beside their floors, errors by kind, and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.core.headlines import ARROWS, headlines
from cxrlab.core.vocabulary import ErrorKind
from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, bar, cautions, ends, section, table, text
from cxrlab.render.judges import judges
from cxrlab.render.marked import KINDS
from cxrlab.render.score_folder import ScoreFolder

Runs = Sequence[RunFolder]


def scores(runs: Runs) -> str:
    """One row a metric: value and interval of each run, and the best of the controls; the rest folded away."""
    scored = scored_runs(runs)
    if not scored:
        return ""
    names = list(dict.fromkeys(name for _, part in scored for name in part.scores["metrics"]))
    first = headlines(names)
    rest = [name for name in names if name not in first]
    told = cautions((run.name, part.scores.get("cautions")) for run, part in scored)
    parts = [told, _score_table(scored, first)]
    if rest:
        parts.append(
            f"<details><summary>{len(rest)} more metrics, with every signature</summary>"
            f"{_score_table(scored, rest)}{_signatures(scored, names)}</details>"
        )
    parts += [judges(part.scores, run.name if len(scored) > 1 else "") for run, part in scored]
    level = scored[0][0].config.get("level")
    share = f"{100 * level:g} % " if isinstance(level, float) else ""
    note = (
        f"Bars span the {share}interval by patient on the metric's own scale. The tick is the best floor: what the "
        "best of five controls scores that never saw an image (a repeated word, nothing, unrelated prose, one normal "
        "report for all, other patients' reports). ↑ higher is better, ↓ lower."
    )
    return section("Scores", *parts, note=note)


def errors(runs: Runs) -> str:
    """How often each kind of error was made, significant or not."""
    scored = scored_runs(runs)
    if not any(part.kinds for _, part in scored):
        return ""
    most = max(part.kinds[kind, True] + part.kinds[kind, False] for _, part in scored for kind in ErrorKind) or 1
    head = ["kind of error", *(cell for run, _ in scored for cell in (text(run.name), "significant", "other"))]
    rows = [
        [
            text(KINDS[kind]),
            *(
                cell
                for _, part in scored
                for cell in (
                    bar((part.kinds[kind, True] + part.kinds[kind, False]) / most),
                    text(part.kinds[kind, True]),
                    text(part.kinds[kind, False]),
                )
            ),
        ]
        for kind in ErrorKind
    ]
    note = "Counted by rule over all studies. Significant: likely to change what is done for the patient."
    return section("Errors by kind", table(head, rows), note=note)


def slices(runs: Runs) -> str:
    """The first headline metric by view, sex, age and device."""
    scored = [(run, part) for run, part in scored_runs(runs) if part.scores.get("slices") and part.scores["metrics"]]
    if not scored:
        return ""
    known = scored[0][1].scores["metrics"]
    name = headlines(known)[0]
    rows = []
    for key in dict.fromkeys(key for _, part in scored for key in part.scores["slices"]):
        found = [part.scores["slices"].get(key, {}).get(name) for _, part in scored]
        low, high = _scale([known[name], *(item for item in found if item)], [])
        first = next(item for item in found if item)
        few = " <span class=later>(few)</span>" if first.get("small") else ""
        cells = [cell for item in found for cell in (_value(item), _interval(item, None, low, high))]
        rows.append([text(key), *cells, f"{text(first.get('n'))}{few}"])
    head = ["slice", *(cell for run, _ in scored for cell in (text(run.name), "")), "n"]
    note = (
        f"{text(name)} {ARROWS.get(known[name].get('direction'), '')} in parts of the test set; few: under 30 patients."
    )
    return section("By view, sex, age and device", table(head, rows, 1), note=note)


def comparison(runs: Runs) -> str:
    """The difference of each run to the baseline, study by study."""
    parts = []
    for run in runs:
        found = run.comparison
        metrics = found.get("metrics")
        if not isinstance(metrics, Mapping) or not metrics:
            continue
        shown = headlines(metrics)
        for other in list(found.get("runs") or ())[1:]:
            rows = [
                _difference(name, metrics[name], against)
                for name in shown
                if (against := (metrics[name].get("against") or {}).get(other))
            ]
            head = ["metric", "baseline", "this run", "difference", "p", "win / tie / lose", "verdict"]
            parts.append(f"<h3>{text(other)} against {text(found.get('baseline'))}</h3>{table(head, rows)}")
        parts += [_gate(gate) for gate in found.get("gates") or ()]
    note = "Paired by study, drawn and swapped by patient; p after Holm's correction over all metrics compared."
    return section("Comparison", *parts, note=note)


def scored_runs(runs: Runs) -> list[tuple[RunFolder, ScoreFolder]]:
    """The runs that hold scores, with them."""
    return [(run, run.scored) for run in runs if run.scored is not None]


def _score_table(scored: Sequence[tuple[RunFolder, ScoreFolder]], names: Sequence[str]) -> str:
    head = ["metric", *(text(run.name) for run, _ in scored), "best floor", "n"]
    rows = []
    for name in names:
        found = [(part.scores["metrics"].get(name), part.scores.get("floors") or {}) for _, part in scored]
        known = next(score for score, _ in found if score)
        floors = [_best_floor(name, known, floor) for _, floor in found]
        low, high = _scale([score for score, _ in found if score], [floor[1] for floor in floors if floor])
        cells = [f"<span class=name>{text(name)} {ARROWS.get(known.get('direction'), '')}</span>"]
        for (score, _), floor in zip(found, floors, strict=True):
            cells.append(f"{_value(score)}{_interval(score, floor[1] if floor else None, low, high)}")
        # One for all where the runs share their references; else each its own, in the order of the runs.
        told = dict.fromkeys(f"{_figure(best[1])} <span class=later>{text(best[0])}</span>" for best in floors if best)
        cells.append(f"<span class=figure>{'<br>'.join(told) or UNKNOWN}</span>")
        left_out = f" <span class=later>({text(known['undefined'])} undefined)</span>" if known.get("undefined") else ""
        rows.append([*cells, f"{text(known.get('n'))}{left_out}"])
    return table(head, rows, 1)


def _value(score: Mapping[str, Any] | None) -> str:
    if not score:
        return UNKNOWN
    ends = (
        ""
        if score.get("low") is None
        else f" <span class=later>{_figure(score['low'])}–{_figure(score['high'])}</span>"
    )
    return f"<span class=figure>{_figure(score.get('value'))}{ends}</span>"


def _figure(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, (int, float)) and not isinstance(value, bool) else UNKNOWN


def _scale(found: Sequence[Mapping[str, Any]], floors: Sequence[float]) -> tuple[float, float]:
    """Both ends of the bar: the metric's range where it has one, else what has to fit on it."""
    low, high = (list(found[0].get("range") or ()) + [None, None])[:2]
    there = [value for score in found for key in ("value", "low", "high") if (value := score.get(key)) is not None]
    there += floors
    low = low if low is not None else min([0.0, *there])
    high = high if high is not None else max([0.0, *there]) * 1.05
    return (low, high) if high > low else (low, low + 1)


def _interval(score: Mapping[str, Any] | None, floor: float | None, low: float, high: float) -> str:
    if not score or score.get("value") is None:
        return ""

    def place(value: float) -> float:
        return 100 * min(max((value - low) / (high - low), 0.0), 1.0)

    ends = [score["value"] if score.get(key) is None else score[key] for key in ("low", "high")]
    left, right = map(place, ends)
    tick = "" if floor is None else f'<i style="left:{place(floor):.1f}%"></i>'
    dot = f'<b style="left:{place(score["value"]):.1f}%"></b>'
    span = f'<span style="left:{left:.1f}%;width:{max(right - left, 0.5):.1f}%"></span>'
    return f"<span class=scale>{span}{tick}{dot}</span>"


def _best_floor(
    name: str, score: Mapping[str, Any], floors: Mapping[str, Mapping[str, float | None]]
) -> tuple[str, float] | None:
    known = [(control, value) for control, values in floors.items() if (value := values.get(name)) is not None]
    sign = 1 if score.get("direction") == "higher" else -1
    return max(known, key=lambda item: sign * item[1], default=None)


def _signatures(scored: Sequence[tuple[RunFolder, ScoreFolder]], names: Sequence[str]) -> str:
    known = {name: score for _, part in scored for name, score in part.scores["metrics"].items()}
    return table(["metric", "signature"], [[text(name), text(known[name].get("signature"))] for name in names])


def _gate(gate: Mapping[str, Any]) -> str:
    unclear = gate.get("verdict") == "not established"
    style, word = (
        ("here", "passed") if gate.get("shown") is True else ("bad", "not established" if unclear else "failed")
    )
    return f"<p>Gate <span class={style}>{word}</span> for {text(gate.get('run'))}: {text(gate.get('sentence'))}</p>"


def _p(value: Any) -> str:
    return "&lt;0.001" if isinstance(value, (int, float)) and 0 <= value < 0.001 else _figure(value)


def _difference(name: str, metric: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    study = found.get("by_study") or {}
    tally = " / ".join(text(study.get(key)) for key in ("win", "tie", "lose")) if study else UNKNOWN
    gap = f"{_figure(found.get('difference'))} <span class=later>{ends(found)}</span>"
    style = {"better": "here", "worse": "bad"}.get(str(found.get("verdict")), "later")
    verdict = f"<span class={style}>{text(found.get('verdict'))}</span>"
    arrow = ARROWS.get(metric.get("direction", ""), "")
    return [
        f"{text(name)} {arrow}",
        _figure(found.get("a")),
        _figure(found.get("b")),
        gap,
        _p(found.get("p_holm")),
        tally,
        verdict,
    ]
