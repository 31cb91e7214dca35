"""Sections on factuality by observation for several models, and on factual scores by the size of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.render.components import Cell, Table, figure, interval, interval_bar, number, part
from cxrlab.render.drawing import (
    COLOURS,
    CircleRow,
    Curve,
    Drawing,
    Layout,
    draw_circles,
    draw_curves,
    spread_of,
)
from cxrlab.render.run_folder import SCORES, RunFolder

Runs = Sequence[RunFolder]
# Labels by CheXbert before those by rules, which are other labels: one table never holds both.
_LABELS = tuple((labeler, policy) for labeler in ("chexbert", "chexpert") for policy in ("positive", "negative"))
_BY = {"chexbert": "CheXbert", "chexpert": "the built-in rules"}
# What size is drawn against: the first that a page has; the paper's figure has F1 by CheXbert.
_FACTUAL = (
    "chexbert14.micro.f1:uncertain-negative",
    "chexbert14.micro.f1:uncertain-positive",
    "radgraph.partial:cased",
    "radgraph.partial",
    "findings.f1",
    "chexpert14.micro.f1:uncertain-positive",
)


@dataclass(frozen=True)
class Observations:
    """F1 of each observation, most frequent first."""

    labeler: str  # What labelled both texts, in words
    policy: str  # How uncertain labels count
    drawing: Drawing | None  # With more than one model
    table: Table


def observations(runs: Runs) -> Observations | None:
    """F1 of the fourteen observations: a row each, the models beside each other with their intervals."""
    scored = [(run, part(run.result(SCORES), "metrics")) for run in runs if SCORES in run.results]
    for labeler, policy in _LABELS:
        metrics = {name: f"{labeler}.{name}.f1:uncertain-{policy}" for name in CHEXPERT_14}
        shown = [(run.name, {name: part(found, key) for name, key in metrics.items()}) for run, found in scored]
        shown = [(name, found) for name, found in shown if any(number(score) is not None for score in found.values())]
        if shown:
            return _observations(shown, _BY[labeler], policy)
    return None


def _observations(shown: Sequence[tuple[str, Mapping[str, Any]]], labeler: str, policy: str) -> Observations:
    def count(name: str) -> int:  # models on other studies have other references; the first model's are written
        known = (number(part(found[name], "support").get("reference")) for _, found in shown)
        return int(next((value for value in known if value is not None), 0))

    names = sorted(CHEXPERT_14, key=lambda name: -count(name))
    rows: list[list[Any]] = []
    circles = []
    for name in names:
        scores = [found[name] for _, found in shown]
        rows.append([f"{name} ({count(name):,})", *(_score(score) for score in scores)])
        circles.append(CircleRow(f"{name} ({count(name):,})", count(name), [spread_of(score) for score in scores]))
    heading = "F1 by observation (positive references)"
    drawing = draw_circles(circles, [model for model, _ in shown], heading) if len(shown) > 1 else None
    table = Table(["observation (positive references)", *(model for model, _ in shown)], rows, words=1)
    return Observations(labeler, policy, drawing, table)


def _score(score: Mapping[str, Any]) -> Cell:
    if number(score) is None:
        return Cell(None)
    return Cell(figure(score), aside=interval(score), css="figure", scale=interval_bar(score, 0.0, 1.0))


@dataclass(frozen=True)
class ModelSizes:
    """A factual score over the size of the models."""

    metric: str
    drawing: Drawing


def model_sizes(runs: Runs) -> ModelSizes | None:
    """Models as points: billions of weights, and the first factual score that all of them have."""
    sizes = {run.path.resolve(): size for run in runs if (size := number(run.summary.get("parameters")))}
    generated = {run.path.resolve(): run.name for run in runs}
    sized = []
    for run in runs:
        source = Path(str(run.config.get("predictions"))).resolve()
        if SCORES in run.results and source in sizes:
            sized.append((generated[source], sizes[source] / 1e9, part(run.result(SCORES), "metrics")))
    metric = next((name for name in _FACTUAL if all(number(found.get(name)) is not None for *_, found in sized)), None)
    if len(sized) < 2 or metric is None:
        return None
    curves = []
    for place, (model, size, found) in enumerate(sized):
        value, low, high = spread_of(found[metric]) or (0.0, None, None)
        point = (size, value, low, high)
        curves.append(
            Curve(model, (point,), COLOURS[place % len(COLOURS)], place, notes=(f"{size:.3g} billion weights",))
        )
    layout = Layout(per=1.0, across="billions of weights", over="model size", sign="")
    return ModelSizes(metric, draw_curves(curves, f"{metric} by model size", layout, unit=True))
