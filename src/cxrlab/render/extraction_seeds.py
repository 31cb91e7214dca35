"""The section of a page on extractions over seeds: which way to copy brings more, beside what was published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cxrlab.render.drawing import COLOURS, Curve, Layout, drawing, in_page
from cxrlab.render.extraction_drawings import Bar, bars_svg, spread_of
from cxrlab.render.extraction_parts import FINDINGS, NONE, chapter, metric_title
from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, figure, grouped_table, section, table, text
from cxrlab.render.robustness_parts import cell, change, dense, folded, number, part

_ROUGE = "rougeL:coco"
_NOTE = (
    "Every way to copy with every seed, which decides pictures, draws and weights. Figures are means over seeds with "
    "Student's 95 % interval, wide for few seeds; dots are the seeds. A difference of two ways is paired by study, "
    "and its interval draws seeds and patients anew; ▲ and ▼ mark those that leave out zero. Many are compared, and "
    "none is corrected for that."
)
_PUBLISHED = (
    "The paper's own figures, in its units, with the share of its own victim in brackets. Its images, models and "
    "metrics are others: the order of rows can be held against ours, their height cannot."
)
_CONTROLS = (
    "Texts without an image behind them, scored like a report. Where one of them does as well as a model, the metric "
    "does not tell that model from nonsense."
)
_DRAWN = len(COLOURS)


def extraction_seeds(runs: Sequence[RunFolder]) -> str:
    """Every study of ways to copy: comparisons first, then each table, then what a metric is worth."""
    made = (_one(run.extraction_seeds) for run in runs if part(run.extraction_seeds, "variants"))
    return section("Copies over seeds", *made, note=_NOTE)


def _one(found: Mapping[str, Any]) -> str:
    seeds = ", ".join(text(seed) for seed in found.get("seeds") or ())
    told = f"Seeds {seeds}; {text(found.get('n'))} studies of {text(found.get('patients'))} patients."
    tables = part(found, "tables")
    parts = [
        f"<p class=small>{told}</p>",
        chapter("Which brings more", contrasts(found)),
        *(chapter(title, _table(found, part(tables, title))) for title in tables),
        chapter("Every way to copy", _ways(found, list(part(found, "variants")))) if not tables else "",
        chapter("Over the queries", _curves(found)),
        chapter("Report against report", _pairwise(found)),
        chapter("Texts without an image", _controls(part(found, "controls"))),
    ]
    return "".join(parts)


def over(found: Mapping[str, Any]) -> dict[str, Any]:
    """A figure over seeds as a measurement: its mean with Student's interval."""
    return {"value": found.get("mean"), "low": found.get("low"), "high": found.get("high")}


def contrasts(found: Mapping[str, Any]) -> str:
    """Findings F1 of every pair in the open, the other metrics folded away."""
    rows = found.get("contrasts") or ()
    metrics = [name for name in found.get("metrics") or () if name != FINDINGS]
    first = _contrasts(rows, FINDINGS, "higher")
    rest = "".join(
        f"<h3>{text(metric_title(name))}</h3>{inside}"
        for name in metrics
        if (inside := _contrasts(rows, name, str(part(found, "directions").get(name) or "")))
    )
    note = f"<p class=small>Findings F1; interval: {text(rows[0].get('how'))}.</p>" if rows and first else ""
    return first + note + folded("other metrics", rest)


def _contrasts(rows: Sequence[Mapping[str, Any]], metric: str, better: str) -> str:
    body = []
    for row in rows:
        one = part(row, "metrics", metric)
        if one:
            seeds = ", ".join(figure(number(seed.get("difference")), "+") for seed in one.get("by_seed") or ())
            pair = f"<b>{text(row.get('name'))}</b> − {text(row.get('against'))}"
            ratio = part(one, "ratio")
            times = "–" if number(ratio.get("low")) is None else cell(ratio)  # over nearly nothing it is no figure
            body.append([pair, change(part(one, "pooled"), better), seeds, times])
    return table(["compared", "difference", "by seed", "ratio"], body, 3) if body else ""


def _table(found: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    names = [name for name in told.get("variants") or () if part(found, "variants", name)]
    about = f"<p class=small>{text(told.get('about'))}</p>" if told.get("about") else ""
    return about + _ways(found, names) + _published(told)


def _ways(found: Mapping[str, Any], names: Sequence[str]) -> str:
    """One row a way to copy, victims first, and the same as a drawing."""
    rows = [*_victims(found, names), *(_way(part(found, "variants", name), name) for name in names)]
    groups = [
        ("", ["way", "what it is"]),
        ("findings F1", ["copy", "÷ victim", "fidelity"]),
        ("ROUGE-L", ["copy", "÷ victim"]),
        ("transcript", ["finding sets", "abnormal"]),
    ]
    drawn = in_page(_bars(found, names))
    plots = f'<div class="plots lone">{drawn}</div>' if drawn else ""
    return dense(grouped_table(groups, rows, words=2)) + plots if names else ""


def _metric(variant: Mapping[str, Any], metric: str, side: str) -> dict[str, Any]:
    return over(part(variant, "metrics", metric, side))


def _asked(found: Mapping[str, Any], names: Sequence[str]) -> dict[str, list[str]]:
    """Each victim → the ways to copy it."""
    ways: dict[str, list[str]] = {}
    for name in names:
        ways.setdefault(str(part(found, "variants", name, "asked").get("victim")), []).append(name)
    return ways


def _victims(found: Mapping[str, Any], names: Sequence[str]) -> Iterator[list[str]]:
    asked = _asked(found, names)
    for ways in asked.values():
        one = part(found, "variants", ways[0])
        own, rouge = (cell(_metric(one, metric, "victim"), digits=2) for metric in (FINDINGS, _ROUGE))
        of = text(f"of {', '.join(ways)}") if len(asked) > 1 else ""
        whose = ["<span class=later>victim</span>", f"<span class=small>{of}</span>"]
        yield [*whose, own, UNKNOWN, UNKNOWN, rouge, UNKNOWN, UNKNOWN, UNKNOWN]


def _way(variant: Mapping[str, Any], name: str) -> list[str]:
    said = part(variant, "transcript")
    sides = [(FINDINGS, side) for side in ("surrogate", "ratio", "fidelity")]
    sides += [(_ROUGE, side) for side in ("surrogate", "ratio")]
    return [
        f"<b>{text(name)}</b>",
        f'<span class="small verdict">{text(variant.get("changes") or "")}</span>',
        *(cell(_metric(variant, metric, side), digits=2) for metric, side in sides),
        text(number(part(said, "distinct_finding_sets").get("mean"))),
        cell(over(part(said, "abnormal_share")), digits=2),
    ]


def _bars(found: Mapping[str, Any], names: Sequence[str]) -> str:
    bars = []
    for name in names:
        variant = part(found, "variants", name)
        if spread := spread_of(_metric(variant, FINDINGS, "surrogate")):
            dots = _numbers(part(variant, "metrics", FINDINGS, "surrogate").get("values") or ())
            bars.append(Bar(name, spread, part(variant, "asked").get("method") == NONE, dots))
    one = len(_asked(found, names)) == 1
    victim = spread_of(_metric(part(found, "variants", names[0]), FINDINGS, "victim")) if one else None
    return bars_svg(bars, "findings F1 of each copy, over seeds", victim)


def _numbers(values: Iterable[Any]) -> tuple[float, ...]:
    return tuple(known for value in values if (known := number(value)) is not None)


def _published(told: Mapping[str, Any]) -> str:
    """The paper's figures beside; empty where the table names none."""
    own, ratios = part(told, "published"), part(told, "published_ratio")
    metrics = list(dict.fromkeys(metric for row in own for metric in part(own, row)))
    rows = [[text(row), *(_with_share(part(own, row), part(ratios, row), metric) for metric in metrics)] for row in own]
    if not rows:
        return ""
    shown = dense(table(["published", *map(text, metrics)], rows, len(metrics)))
    return f"<h3>As published</h3>{shown}<p class=small>{_PUBLISHED}</p>"


def _with_share(own: Mapping[str, Any], ratios: Mapping[str, Any], metric: str) -> str:
    value, ratio = number(own.get(metric)), number(ratios.get(metric))
    share = "" if ratio is None else f" <span class=small>({ratio:.2f})</span>"
    return UNKNOWN if value is None else f"{value:g}{share}"


def _curves(found: Mapping[str, Any]) -> str:
    """Findings F1 over the queries, of every way that was measured at several budgets."""
    lines = []
    for name in part(found, "variants"):
        curve = part(found, "variants", name, "curve")
        budgets = sorted(int(key) for key in curve if key.isdigit())
        spreads = [(float(one), spread_of(over(part(curve, str(one), FINDINGS)))) for one in budgets]
        points = tuple((one, *spread) for one, spread in spreads if spread)
        if len(points) > 1:
            lines.append((name, points))
    drawn = [Curve(name, points, COLOURS[at], at) for at, (name, points) in enumerate(lines[:_DRAWN])]
    note = f"{_DRAWN} of {len(lines)} drawn" if len(lines) > _DRAWN else ""
    layout = Layout(per=1.0, across="queries", over="the queries", sign="queries")
    inside = drawing(drawn, "findings F1 of the copy, mean over seeds", layout, unit=True, note=note) if drawn else ""
    return f'<div class="plots lone">{in_page(inside)}</div>' if inside else ""


def _pairwise(found: Mapping[str, Any]) -> str:
    rows = [
        [
            f"{text(one.get('a'))} against {text(one.get('b'))}",
            text(one.get("judge")),
            *(cell(over(part(one, key)), digits=2) for key in ("a_better", "equal", "b_better")),
            cell(over(part(one, "net")), "+", 2),
            text(one.get("n")),
        ]
        for one in found.get("pairwise") or ()
    ]
    head = ["first against second", "judge", "first better", "equal", "second better", "net", "n by seed"]
    return dense(table(head, rows, 5)) if rows else ""


def _controls(found: Mapping[str, Any]) -> str:
    """What nonsense scores beside models, and where it does as well."""
    values = part(found, "values")
    metrics = list(dict.fromkeys(metric for name in values for metric in part(values, name)))
    if not metrics:
        return ""
    rows = [
        [text(metric_title(one)), *(cell(part(values, name).get(one), digits=2) for name in values)] for one in metrics
    ]
    reached = part(found, "reached")
    lines = [
        f"<li>{text(metric_title(metric))}: {_quoted(controls)} as well as {text(run)}</li>"
        for metric in reached
        for run, controls in part(reached, metric).items()
    ]
    fooled = f"<ul class=faults>{''.join(lines)}</ul>" if lines else "<p class=small>No text without an image does.</p>"
    shown = dense(table(["metric", *map(text, values)], rows, len(values)))
    return f"<p class=small>{_CONTROLS}</p>{fooled}{folded('every metric of models and controls', shown)}"


def _quoted(names: Iterable[Any]) -> str:
    return text(", ".join(f"“{name}”" for name in names))
