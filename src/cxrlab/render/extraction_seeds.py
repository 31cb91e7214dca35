"""Section on extraction over seeds: which way to copy brings more, beside published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.components import Cell, Table, changed, figure, grouped_table, measured, number, over_seeds, part
from cxrlab.render.drawing import COLOURS, Curve, Drawing, Layout, Row, draw_curves, share_forest
from cxrlab.render.extraction import NONE, spread_of
from cxrlab.render.metric_names import FINDINGS, ROUGE, metric_title
from cxrlab.render.run_folder import EXTRACTION_SEEDS, RunFolder, per_run


@dataclass(frozen=True)
class Ways:
    """Ways to copy that are shown together."""

    title: str  # Of the table
    about: Any  # What it shows
    table: Table  # One row for each way, victims first
    drawing: Drawing | None  # The copies under each other
    published: Table | None = None  # The paper's figures


@dataclass(frozen=True)
class ExtractionSeeds:
    """A study of ways to copy."""

    seeds: Sequence[Any]  # All of them
    counts: tuple[Any, Any]  # Studies and patients
    contrasts: Table  # Findings F1 of every pair
    how: Any  # How their intervals were computed
    other_contrasts: tuple[tuple[str, Table], ...]  # The other metrics of every pair
    ways: tuple[Ways, ...]  # The tables
    curve: Drawing | None  # Findings F1 over the queries
    pairwise: Table  # Reports against reports, by a judge
    controls: Controls | None  # Texts without an image behind them


@dataclass(frozen=True)
class Controls:
    """Texts without an image, scored like a report: every metric, and where one does as well as a model."""

    reached: tuple[tuple[str, str, str], ...]
    table: Table


@per_run(EXTRACTION_SEEDS)
def extraction_seeds(run: RunFolder, found: Mapping[str, Any]) -> ExtractionSeeds | None:
    """A study of ways to copy: comparisons first, then each table, then what a metric is worth."""
    if not part(found, "variants"):
        return None
    compared, tables = found.get("contrasts") or (), part(found, "tables")
    others = [str(name) for name in found.get("metrics") or () if name != FINDINGS]
    contrasts = {name: _contrasts(compared, name, str(part(found, "directions").get(name) or "")) for name in others}
    ways = []
    for title in tables:
        table = part(tables, title)
        names = [name for name in table.get("variants") or () if part(found, "variants", name)]
        own, ratios = part(table, "published"), part(table, "published_ratio")  # the paper's figures
        metrics = list(dict.fromkeys(metric for row in own for metric in part(own, row)))
        rows = []
        for row in own:
            cells = []
            for metric in metrics:
                value, share = number(part(own, row).get(metric)), number(part(ratios, row).get(metric))
                aside = None if share is None else f"({share:.2f})"
                cells.append(Cell(None) if value is None else Cell(f"{value:g}", aside=aside))
            rows.append([row, *cells])
        published = Table(["published", *metrics], rows, words=1, dense=True) if rows else None
        ways.append(_ways(found, title, table.get("about"), names, published))
    pairwise = [
        [
            f"{one.get('a')} against {one.get('b')}",
            one.get("judge"),
            *(measured(over_seeds(part(one, key)), digits=2) for key in ("a_better", "equal", "b_better")),
            measured(over_seeds(part(one, "net")), "+", 2),
            one.get("n"),
        ]
        for one in found.get("pairwise") or ()
    ]
    pairwise_head = ["first against second", "judge", "first better", "equal", "second better", "net", "n by seed"]
    return ExtractionSeeds(
        seeds=found.get("seeds") or (),
        counts=(found.get("n"), found.get("patients")),
        contrasts=_contrasts(compared, FINDINGS, "higher"),
        how=compared[0].get("how") if compared else None,
        other_contrasts=tuple((metric_title(name), table) for name, table in contrasts.items() if table),
        ways=tuple(ways) or (_ways(found, "Every way to copy", None, list(part(found, "variants"))),),
        curve=_curve(found),
        pairwise=Table(pairwise_head, pairwise, words=2, dense=True),
        controls=_controls(part(found, "controls")),
    )


def _contrasts(rows: Sequence[Mapping[str, Any]], metric: str, better: str) -> Table:
    body = []
    for row in rows:
        if one := part(row, "metrics", metric):
            seeds = ", ".join(figure(seed.get("difference"), "+") for seed in one.get("by_seed") or ())
            ratio = part(one, "ratio")
            times = None if number(ratio.get("low")) is None else measured(ratio)  # over almost nothing it says nothing
            pair = Cell(f"{row.get('name')} − {row.get('against')}")
            body.append([pair, changed(part(one, "pooled"), better), seeds, times])
    return Table(["compared", "difference", "by seed", "ratio"], body, words=1)


def _ways(
    found: Mapping[str, Any], title: str, about: Any, names: Sequence[str], published: Table | None = None
) -> Ways:
    groups = [
        ("", ["way", "what it is"]),
        ("findings F1", ["copy", "÷ victim", "fidelity"]),
        ("ROUGE-L", ["copy", "÷ victim"]),
        ("transcript", ["finding sets", "abnormal"]),
    ]
    rows: list[list[Any]] = []
    victims: dict[str, list[str]] = {}  # victim → the ways to copy it
    for name in names:
        victims.setdefault(str(part(found, "variants", name, "asked").get("victim")), []).append(name)
    for copies in victims.values():
        one = part(found, "variants", copies[0])
        own, rouge = (measured(_side(one, metric, "victim"), digits=2) for metric in (FINDINGS, ROUGE))
        of = f"of {', '.join(copies)}" if len(victims) > 1 else ""
        rows.append([Cell("victim", tone="later"), Cell(of, css="small"), own, None, None, rouge, None, None, None])
    sides = [(FINDINGS, side) for side in ("surrogate", "ratio", "fidelity")]
    sides += [(ROUGE, side) for side in ("surrogate", "ratio")]
    for name in names:
        variant = part(found, "variants", name)
        figures = (measured(_side(variant, metric, side), digits=2) for metric, side in sides)
        finding_sets = number(part(variant, "transcript", "distinct_finding_sets").get("mean"))
        abnormal = measured(over_seeds(part(variant, "transcript", "abnormal_share")), digits=2)
        about_it = Cell(variant.get("changes") or "", css="small verdict")
        rows.append([Cell(name, strong=True), about_it, *figures, finding_sets, abnormal])
    table = grouped_table(groups, rows, words=2)
    drawn = []
    for name in names:
        variant = part(found, "variants", name)
        if spread := spread_of(_side(variant, FINDINGS, "surrogate")):
            values = part(variant, "metrics", FINDINGS, "surrogate").get("values") or ()
            alone = tuple((known, None, None) for value in values if (known := number(value)) is not None)
            drawn.append(Row(name, spread, alone, quiet=part(variant, "asked").get("method") == NONE))
    victim = None
    if len(victims) == 1:
        victim = spread_of(_side(part(found, "variants", names[0]), FINDINGS, "victim"))
    forest = share_forest(drawn, "findings F1 of each copy, over seeds", ("victim", victim) if victim else None)
    return Ways(title, about, table, forest, published)


def _side(variant: Mapping[str, Any], metric: str, side: str) -> dict[str, Any]:
    return over_seeds(part(variant, "metrics", metric, side))


def _curve(found: Mapping[str, Any]) -> Drawing | None:
    """Findings F1 over the queries, of every way that was measured at several budgets."""
    lines = []
    for name in part(found, "variants"):
        curve = part(found, "variants", name, "curve")
        budgets = sorted(int(key) for key in curve if key.isdigit())
        spreads = [(float(one), spread_of(over_seeds(part(curve, str(one), FINDINGS)))) for one in budgets]
        points = tuple((one, *spread) for one, spread in spreads if spread)
        if len(points) > 1:
            lines.append((name, points))
    most = len(COLOURS)  # more cannot be told apart
    drawn = [Curve(name, points, COLOURS[at], at) for at, (name, points) in enumerate(lines[:most])]
    note = f"{most} of {len(lines)} drawn" if len(lines) > most else ""
    layout = Layout(per=1.0, across="queries", over="the queries", sign="queries")
    title = "findings F1 of the copy, mean over seeds"
    return draw_curves(drawn, title, layout, unit=True, note=note) if drawn else None


def _controls(found: Mapping[str, Any]) -> Controls | None:
    values, reached = part(found, "values"), part(found, "reached")
    metrics = list(dict.fromkeys(metric for name in values for metric in part(values, name)))
    if not metrics:
        return None
    rows = [
        [metric_title(one), *(measured(part(values, name).get(one), digits=2) for name in values)] for one in metrics
    ]
    lines = tuple(
        (metric_title(metric), ", ".join(f"“{name}”" for name in controls), run)
        for metric in reached
        for run, controls in part(reached, metric).items()
    )
    return Controls(lines, Table(["metric", *values], rows, words=1, dense=True))
