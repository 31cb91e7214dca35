"""Sections on whole experiments: training variants over seeds, and two reference texts against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.headline_metrics import headline_metrics
from cxrlab.render.components import (
    Cell,
    Table,
    difference,
    figure,
    interval,
    number,
    over_seeds,
    part,
    published_table,
    readable,
)
from cxrlab.render.run_folder import ABLATIONS, ANALYSIS, RunFolder, per_run


@dataclass(frozen=True)
class Ablations:
    """Variants of one recipe."""

    first: Table  # What each variant changes, and the first metric
    seeds: Sequence[Any]  # Trained for each variant
    n: Any  # Test studies of each
    metrics: Table  # Every metric, with the values of the seeds beneath
    published: Table | None  # The paper's own figures in percent, where the study gives them, and those of the study
    beside: bool  # Whether the study's own figures stand above the paper's
    notes: Sequence[str]  # Columns of the paper without a value and why, and what to know of the others


@per_run(ABLATIONS)
def ablations(run: RunFolder, found: Mapping[str, Any]) -> Ablations | None:
    """One row per variant: what it changes, and each metric over the seeds."""
    if not found.get("metrics") or not found.get("variants"):
        return None
    metrics, variants = [str(name) for name in found["metrics"]], found["variants"]
    rows, every = [], []
    for name, row in variants.items():
        own = part(row, "metrics", metrics[0])
        notes = [row.get("paper"), f"stands for {row['stands_for']}" if row.get("stands_for") else None]
        gap = part(own, "difference")
        rows.append(
            [
                Cell(name, lines=tuple(Cell(note, tone="later") for note in notes if note)),
                row.get("changes"),
                Cell(figure(own.get("mean")), css="figure"),
                Cell(bar=own.get("mean") or 0.0),
                interval(own),
                _difference(over_seeds(gap)) if gap else None,
            ]
        )
        cells: list[Any] = [name]
        for one in (part(row, "metrics", metric) for metric in metrics):
            seeds = " ".join(map(figure, one.get("values") or ()))
            cells.append(Cell(figure(one.get("mean")), lines=(Cell(seeds, tone="later"),)))
        every.append(cells)
    columns = found.get("columns") or ()
    heads = ["variant", "in the paper"]
    notes = [f"{row['label']}: {words}" for row in columns if (words := row.get("missing") or row.get("note"))]
    return Ablations(
        Table(["variant", "what is changed", metrics[0], "", "interval", "difference"], rows),
        found.get("seeds") or (),
        found.get("n"),
        Table(["variant", *metrics], every),
        _beside_the_paper(variants, columns, heads) if columns else published_table(variants, heads, "paper"),
        bool(columns),
        notes,
    )


def _beside_the_paper(variants: Mapping[str, Any], columns: Sequence[Mapping[str, Any]], heads: Sequence[str]) -> Table:
    """The columns of a preset in percent: the mean over seeds of the same convention, and the paper's figure beneath."""

    def cell(row: Mapping[str, Any], column: Mapping[str, Any]) -> Cell:
        mean = number(part(row, "metrics", str(column.get("metric"))).get("mean"))
        published = figure(part(row, "published").get(str(column["label"])), digits=1)
        return Cell(figure(None if mean is None else 100 * mean, digits=1), lines=(Cell(published, tone="later"),))

    rows = [[name, row.get("paper"), *(cell(row, column) for column in columns)] for name, row in variants.items()]
    return Table([*heads, *(column["label"] for column in columns)], rows, len(heads), dense=True)


def _difference(gap: Mapping[str, Any]) -> Cell:
    return Cell(figure(gap, "+"), aside=interval(gap, "+"))


@dataclass(frozen=True)
class TwoTexts:
    """Text that rules extracted and processed text of the same studies."""

    metrics: Table  # The processed text scored against the rule text
    counts: Mapping[str, str]  # How many studies have which text
    predictions: tuple[tuple[str, Table], ...]  # Each model's name, and its scores against either text


@per_run(ANALYSIS)
def two_texts(run: RunFolder, found: Mapping[str, Any]) -> TwoTexts:
    """Two reference texts against each other, and a model against both."""
    metrics = part(found, "metrics")
    rows = [[name, figure(metrics[name]), interval(metrics[name])] for name in headline_metrics(metrics)]
    head = ["metric", "against the rule text", "against the processed text", "difference"]
    predictions = []
    for model, values in part(found, "predictions").items():
        lines = [
            [name, figure(values[name].get("a")), figure(values[name].get("b")), _difference(difference(values[name]))]
            for name in headline_metrics(values)
        ]
        predictions.append((model, Table(head, lines)))
    keys = ("studies", "both", "rule_only", "processed_only")
    counts = {key: readable(part(found, "texts").get(key)) for key in keys}
    return TwoTexts(Table(["metric", "value", "interval"], rows), counts, tuple(predictions))
