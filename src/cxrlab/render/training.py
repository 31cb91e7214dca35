"""Section on trainings: summary, training loss and validation loss over the steps, and the best step."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.render.components import number, part
from cxrlab.render.drawing import COLOURS, Curve, Drawing, Layout, Point, draw_curves
from cxrlab.render.run_folder import HISTORY, RunFolder

_MOST = 40  # points of a curve; more would overlap


@dataclass(frozen=True)
class Training:
    """One training."""

    path: str  # Its run folder
    summary: Mapping[str, Any]  # Empty before its end
    curve: Drawing | None  # Losses over the steps; None with fewer than two points


def trainings(runs: Sequence[RunFolder]) -> tuple[Training, ...]:
    """One entry for each run that has a history."""
    return tuple(Training(str(run.path), run.summary, _losses(run)) for run in runs if run.records(HISTORY))


def _losses(run: RunFolder) -> Drawing | None:
    """Training loss and, where the run has one, validation loss with its best step."""
    trained: list[tuple[float, float]] = []
    validated: list[tuple[float, float]] = []
    for line in run.records(HISTORY):
        for points, found in ((trained, line), (validated, part(line, "evaluation"))):
            step, loss = number(line.get("step")), number(found.get("loss"))
            if step is not None and loss is not None:
                points.append((step, loss))
    if len(trained) + len(validated) < 2:
        return None
    curves = []
    if trained:
        curves.append(Curve("training loss", _averaged(trained), COLOURS[0], 0))
    if validated:
        best = min(validated, key=lambda point: point[1])
        shown = {round(place * (len(validated) - 1) / (_MOST - 1)) for place in range(_MOST)}
        chosen = [point for place, point in enumerate(validated) if len(validated) <= _MOST or place in shown]
        drawn = tuple((*point, None, None) for point in sorted({*chosen, best}))
        curves.append(Curve("validation loss", drawn, COLOURS[1], 1))
        curves.append(Curve(f"best step: {best[0]:g}", ((*best, None, None),), COLOURS[2], 3))
    layout = Layout(width=760, per=1.0, across="optimiser step", over="the steps", sign="step", from_zero=False)
    return draw_curves(curves, "loss", layout)


def _averaged(points: Sequence[tuple[float, float]]) -> tuple[Point, ...]:
    """At most so many points: the mean loss of consecutive lines, at the last step of each."""
    size = -(-len(points) // _MOST)
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    return tuple((group[-1][0], statistics.fmean(loss for _, loss in group), None, None) for group in groups)
