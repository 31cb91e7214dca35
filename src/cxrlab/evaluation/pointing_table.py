"""The table of the pointing game: means over findings, with intervals by patient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.json_form import number_of
from cxrlab.core.randomness import generator
from cxrlab.evaluation.config import PointingConfig
from cxrlab.evaluation.map_names import MapName
from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.tally import Matrix, Metric, mean_tally

FIGURES = ("hit", "chance", "mass", "area")


@dataclass(frozen=True)
class Figure:
    """A mean over findings; the ends of its 95 % interval are not-a-number where there are too few patients."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class MapRow:
    """How one map fares.

    Args:
        localised: Over findings with a small mask: `hit`, `chance`, `mass` and `area` (see `aim.py`).
        all: Over all findings.
        by_observation: Observation → share of hits.
    """

    localised: Mapping[str, Figure]
    all: Mapping[str, Figure]
    by_observation: Mapping[str, Figure]


@dataclass(frozen=True)
class PointingTable:
    """What a run of the pointing game came to.

    Args:
        model: Name of the model.
        split: Of the corpus.
        report: `generated` or `reference`.
        studies: Images looked at.
        present: Findings on them that have a mask.
        told: Those of them that the report tells with the right kind and side; only these are scored.
        localised: Largest share of the image that a localised finding's mask covers.
        tolerance: How near is a hit, in words.
        maps: Map → its figures.
    """

    model: str
    split: str
    report: str
    studies: int
    present: int
    told: int
    localised: float
    tolerance: str
    maps: Mapping[str, MapRow]

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> PointingTable:
        """What an earlier run wrote down."""
        maps = {name: MapRow(**{part: _figures(row[part]) for part in row}) for name, row in found["maps"].items()}
        return cls(**{**found, "maps": maps})


def table_of(records: Iterable[Mapping[str, Any]], names: Sequence[MapName], config: PointingConfig) -> PointingTable:
    """The table from the lines of `pointing.jsonl`.

    A split in which no report tells a finding that is there is a `DataError`: there is nothing to point at.
    """
    studies = present = 0
    patients: list[str] = []
    kinds: list[str] = []
    aims: list[list[list[float]]] = []
    for record in records:
        studies, present = studies + 1, present + int(record["present"])
        for finding in record["told"]:
            patients.append(str(record["patient"]))
            kinds.append(str(finding["observation"]))
            aims.append([[finding["maps"][name.text][key] for key in FIGURES] for name in names])
    if not aims:
        raise DataError(
            f"none of the {present} findings with a mask on {studies} images is told with the right kind and side, so "
            "there is nothing to point at; train the model further, or give --report reference."
        )
    values = np.array(aims)  # [findings, maps, figures]
    small = values[:, 0, FIGURES.index("area")] <= config.localised
    resamples = Resamples(patients, trials=config.trials, rng=generator(config.seed, "pointing", "resamples"))
    rows = {name.text: _row(values[:, k], np.array(kinds), small, resamples) for k, name in enumerate(names)}
    return PointingTable(
        model=config.model,
        split=config.split,
        report=config.report,
        studies=studies,
        present=present,
        told=len(aims),
        localised=config.localised,
        tolerance="half a cell of the model's grid; of one of 37 x 37 where it has none",
        maps=rows,
    )


def _row(values: Matrix, kinds: Any, small: Any, resamples: Resamples) -> MapRow:
    """The figures of one map from its values [findings, figures]."""
    columns = {name: values[:, k] for k, name in enumerate(FIGURES)}
    asked: list[Matrix] = [np.where(small, column, np.nan) for column in columns.values()]
    asked += list(columns.values())
    names = sorted(set(kinds.tolist()))
    asked += [np.where(kinds == name, columns["hit"], np.nan) for name in names]
    found = _means(asked, resamples)
    count = len(FIGURES)
    return MapRow(
        localised=dict(zip(FIGURES, found[:count], strict=True)),
        all=dict(zip(FIGURES, found[count : 2 * count], strict=True)),
        by_observation=dict(zip(names, found[2 * count :], strict=True)),
    )


def _means(columns: Sequence[Matrix], resamples: Resamples) -> list[Figure]:
    card = Metric("pointing", "higher", (0.0, 1.0), None, "findings outside the group")
    tallies = [mean_tally(card, column) for column in columns]
    ends = resamples.intervals(tallies)
    return [Figure(t.value, end.low, end.high, t.n) for t, end in zip(tallies, ends, strict=True)]


def _figures(row: Mapping[str, Any]) -> dict[str, Figure]:
    """Figures from their JSON form."""
    return {
        name: Figure(number_of(figure["value"]), number_of(figure["low"]), number_of(figure["high"]), figure["n"])
        for name, figure in row.items()
    }
