"""Sections on whole experiments: training variants over seeds, and two reference texts against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.metric_names import headline_metrics
from cxrlab.render.components import (
    Cell,
    Table,
    difference,
    figure,
    interval,
    over_seeds,
    part,
    published_table,
    readable,
)
from cxrlab.render.result_files import ABLATIONS, ANALYSIS
from cxrlab.render.run_folder import RunFolder


@dataclass(frozen=True)
class Ablations:
    """Variants of one recipe."""

    first: Table  # What each variant changes, and the first metric
    seeds: Sequence[Any]  # Trained for each variant
    n: Any  # Test studies of each
    metrics: Table  # Every metric, with the values of the seeds beneath
    published: Table | None  # The paper's own figures, where the study gives them


def ablations(runs: Sequence[RunFolder]) -> tuple[Ablations, ...]:
    """One row for each variant: what it changes, and each metric over the seeds."""
    found = [run.result(ABLATIONS) for run in runs]
    return tuple(_ablations(one) for one in found if one.get("metrics") and one.get("variants"))


def _ablations(found: Mapping[str, Any]) -> Ablations:
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
        every.append([name, *(_values(part(row, "metrics", metric)) for metric in metrics)])
    return Ablations(
        Table(["variant", "what is changed", metrics[0], "", "interval", "difference"], rows),
        found.get("seeds") or (),
        found.get("n"),
        Table(["variant", *metrics], every),
        published_table(variants, ["variant", "in the paper"], "paper"),
    )


def _values(own: Mapping[str, Any]) -> Cell:
    """Mean over seeds, and the value of each seed."""
    seeds = " ".join(map(figure, own.get("values") or ()))
    return Cell(figure(own.get("mean")), lines=(Cell(seeds, tone="later"),))


def _difference(gap: Mapping[str, Any]) -> Cell:
    return Cell(figure(gap, "+"), aside=interval(gap, "+"))


@dataclass(frozen=True)
class TwoTexts:
    """Text that rules extracted and processed text of the same studies."""

    metrics: Table  # The processed text scored against the rule text
    counts: Mapping[str, str]  # How many studies have which text
    predictions: tuple[tuple[str, Table], ...]  # Each model's name, and its scores against either text


def two_texts(runs: Sequence[RunFolder]) -> tuple[TwoTexts, ...]:
    """Two reference texts against each other, and a model against both."""
    return tuple(_two_texts(run.result(ANALYSIS)) for run in runs if run.result(ANALYSIS))


def _two_texts(found: Mapping[str, Any]) -> TwoTexts:
    metrics = part(found, "metrics")
    rows = [[name, figure(metrics[name]), interval(metrics[name])] for name in headline_metrics(metrics)]
    head = ["metric", "against the rule text", "against the processed text", "difference"]
    predictions = []
    for run, values in part(found, "predictions").items():
        lines = [
            [name, figure(values[name].get("a")), figure(values[name].get("b")), _difference(difference(values[name]))]
            for name in headline_metrics(values)
        ]
        predictions.append((run, Table(head, lines)))
    keys = ("studies", "both", "rule_only", "processed_only")
    counts = {key: readable(part(found, "texts").get(key)) for key in keys}
    return TwoTexts(Table(["metric", "value", "interval"], rows), counts, tuple(predictions))
