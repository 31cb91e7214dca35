"""The sensitivity table: does a metric fall when one thing is made wrong, and stay when nothing is?

Each row applies one edit of `findings.edits` to many narrated reports and compares the metric's value
of the edited report with that of the report itself, both against the report as the reference. A
harmful edit is also held against a faithful paraphrase of the same report: a metric that prefers
the flipped negation to other words for the truth is sensitive to words, not to meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.progress import track
from cxrlab.evaluation.error_benchmark import better, tallies_of
from cxrlab.findings.cases import draw_patient
from cxrlab.findings.edits import EDITS, Edited, EditRow, Told, paraphrase
from cxrlab.metrics.pairs import Batch, Context, Pair
from cxrlab.metrics.tally import Family, Matrix, Tally

# A change of this much counts as none: a hundredth of the scale for metrics of a bounded range, 0.01 for the others.
TOLERANCE = 0.01
# A row is right when at least this share of its cases is. A report states about four findings, all of which must
# be read right twice for a paraphrase not to move a count: one case in twenty is what a reader may miss.
RIGHT = 0.95
# Reports looked through for each case of a row, and at least; an edit for which fewer offer a place has a smaller n.
LOOKS, LEAST_LOOKS = 25, 400


@dataclass(frozen=True)
class Cell:
    """One metric in one row.

    Args:
        share: Cases in which the metric did as it must, of those with a value, in [0, 1].
        mean_change: Mean change of the value, negative for worse whatever the metric's direction.
        worse_than_paraphrase: Share of cases that scored below a paraphrase of the report; None in harmless rows.
        n: Cases in which the metric has a value before and after.
    """

    share: float
    mean_change: float
    worse_than_paraphrase: float | None
    n: int

    @property
    def right(self) -> bool:
        """Whether the metric passes; a metric without a value does not."""
        return self.n > 0 and self.share >= RIGHT

    def to_json(self) -> dict[str, Any]:
        """All fields and the verdict."""
        shares = {"share": self.share, "mean_change": self.mean_change}
        return {**shares, "worse_than_paraphrase": self.worse_than_paraphrase, "n": self.n, "right": self.right}


@dataclass(frozen=True)
class Row:
    """One edit over its cases.

    Args:
        must_fall: Whether a metric must fall; else it must stay.
        n: Cases.
        metrics: Name → what the metric did.
    """

    must_fall: bool
    n: int
    metrics: dict[str, Cell]

    def to_json(self) -> dict[str, Any]:
        """The row for `validation.json`."""
        cells = {name: cell.to_json() for name, cell in self.metrics.items()}
        return {"must": "fall" if self.must_fall else "stay", "n": self.n, "metrics": cells}


@dataclass(frozen=True)
class Sensitivity:
    """The whole table: name of the edit → row."""

    rows: dict[str, Row]

    def wrong(self, metric: str) -> tuple[str, ...]:
        """The rows in which this metric fails."""
        return tuple(name for name, row in self.rows.items() if not row.metrics[metric].right)

    def to_json(self) -> dict[str, Any]:
        """What stands under "sensitivity" in `validation.json`."""
        tolerances = {"tolerance": TOLERANCE, "right_from": RIGHT}
        return {**tolerances, "rows": {name: row.to_json() for name, row in self.rows.items()}}

    def lines(self) -> Iterator[str]:
        """One line a metric, one column an edit: per cent of cases in which it did as it must, `!` where that fails."""
        names = next(iter(self.rows.values())).metrics if self.rows else {}
        width = max([len("metric"), *map(len, names)])
        for verb, fall in (("fall", True), ("stay", False)):
            for name, row in self.rows.items():
                if row.must_fall is fall:
                    yield f"must {verb}: {name} ({row.n} cases)"
        yield f"{'metric':<{width}}  " + "  ".join(f"{name.split()[0]:>11}" for name in self.rows)
        for metric in names:
            cells = (row.metrics[metric] for row in self.rows.values())
            yield f"{metric:<{width}}  " + "  ".join(f"{_percent(cell):>11}" for cell in cells)


def _percent(cell: Cell) -> str:
    return f"{100 * cell.share:.0f}{' ' if cell.right else '!'}" if cell.n else "-!"


def sensitivity(
    families: Sequence[Family],
    *,
    seed: int,
    n: int = 100,
    names: Collection[str] | None = None,
    quiet: bool | None = None,
) -> Sensitivity:
    """Fill the table for the metrics of `families` that have a value for a single pair.

    Args:
        families: Metrics to measure.
        seed: Of patients, words and edits.
        n: Cases a row; a row whose edit finds no place in enough reports has fewer.
        names: The metrics wanted of these families; None for all.
        quiet: Show no progress; None to follow the surroundings.
    """
    if n < 1:
        raise ConfigError(f"n={n} is not a number of cases; give at least 1.")
    reports = _Reports(seed)
    measure = _Measure(families, names)
    rows = {name: _row(row, measure, reports, n) for name, row in track(EDITS.items(), "sensitivity", quiet=quiet)}
    return Sensitivity(rows)


@dataclass(frozen=True)
class _Measure:
    """The metrics of the table."""

    families: Sequence[Family]
    names: Collection[str] | None

    def __call__(self, batch: Batch) -> dict[str, tuple[Tally, Matrix]]:
        """Metric → its tally and the values of the pairs, more being better."""
        tallies = tallies_of(self.families, batch, self.names)
        return {tally.metric.name: (tally, better(tally)) for tally in tallies if tally.metric.by_pair}


class _Reports:
    """Narrated reports, told once however many rows ask for them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._told: list[Told] = []

    def __getitem__(self, index: int) -> Told:
        while len(self._told) <= index:
            name = f"sensitivity{len(self._told):05d}"
            self._told.append(Told.of(draw_patient(self.seed, name).visits[-1], self.seed, name))
        return self._told[index]


def _row(row: EditRow, measure: _Measure, reports: _Reports, n: int) -> Row:
    cases: list[tuple[Told, Edited]] = []
    for index in range(max(LEAST_LOOKS, LOOKS * n)):
        told = reports[index]
        edited = row.edit(told)
        if edited is not None:
            cases.append((told, edited))
        if len(cases) == n:
            break
    if not cases:
        raise DataError(f"no report of seed {reports.seed} offers a place for an edit; take another seed.")
    same = Batch([_pair(told, edited) for told, edited in cases])
    after = measure(same.with_candidates([edited.candidate for _, edited in cases]))
    others = [paraphrase(told).candidate for told, _ in cases] if row.must_fall else None
    faithful = measure(same.with_candidates(others)) if others else {}
    cells = {}
    for name, (tally, before) in measure(same).items():
        cells[name] = _cell(tally, before, after[name][1], faithful[name][1] if faithful else None)
    return Row(row.must_fall, len(cases), cells)


def _pair(told: Told, edited: Edited) -> Pair:
    """The report as its own candidate."""
    text = edited.reference
    return Pair(told.name, text, text, patient=told.name, context=Context(age=told.visit.age))


def _cell(tally: Tally, before: Matrix, after: Matrix, paraphrased: Matrix | None) -> Cell:
    """`paraphrased` is given in harmful rows only, where the metric must fall."""
    low, high = tally.metric.range
    tolerance = TOLERANCE * (high - low if np.isfinite(high - low) else 1.0)
    known = ~(np.isnan(before) | np.isnan(after))
    if not known.any():
        return Cell(float("nan"), float("nan"), None, 0)
    change = after[known] - before[known]
    done = change < -tolerance if paraphrased is not None else np.abs(change) <= tolerance
    below = None if paraphrased is None else float((after[known] < paraphrased[known] - tolerance).mean())
    return Cell(float(done.mean()), float(change.mean()), below, int(known.sum()))
