"""The phantom benchmark: how well each metric orders reports by an exactly known number of errors.

Each case is a synthetic report and a rewrite of it, in other words and with planted errors. A metric gets the two
texts; its values are ranked against the true counts. Cases are drawn from any seed, and the ceiling is 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.randomness import generator
from cxrlab.core.records import ReportError
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import ErrorKind
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.select_metrics import OpenJudge
from cxrlab.evaluation.validate_metrics import compute_tallies, higher_is_better
from cxrlab.findings.planted_errors import mistaken
from cxrlab.findings.report_edits import EDITS, Edited, NarratedVisit, paraphrase
from cxrlab.findings.simulated_patients import CaseConfig, draw_patient
from cxrlab.metrics.base import Family, Matrix, Tally, families, metric_names
from cxrlab.metrics.report_pairs import Batch, Context, Pair
from cxrlab.metrics.statistics.agreement import Agreement, tau_with_interval
from cxrlab.metrics.statistics.intervals import METHOD

# Normal images offer few errors: a tenth of the cases is enough.
CASES = CaseConfig(normal=0.1)
# A cell of the twelve counts: kind, and whether significant.
Cell = tuple[ErrorKind, bool]
CELLS: tuple[Cell, ...] = tuple((kind, weight) for weight in (True, False) for kind in ErrorKind)


@dataclass(frozen=True)
class ErrorCase:
    """One pair of reports and all errors of the second."""

    pair: Pair
    errors: tuple[ReportError, ...]


@dataclass(frozen=True)
class MetricAgreement:
    """τ of one metric with fewer errors of all kinds, and with fewer significant ones."""

    total: Agreement
    significant: Agreement

    def to_json(self) -> dict[str, Any]:
        """Flat, with the keys of `validation.json`."""
        suffix = {"": self.total, "_significant": self.significant}
        rows = {f"{key}{end}": getattr(tau, key) for end, tau in suffix.items() for key in ("tau", "low", "high")}
        return {**rows, "n": self.total.n}


@dataclass(frozen=True)
class Counting:
    """Planted errors of one kind, those counted by rule, and the sum of the smaller number per case (`hit`)."""

    true: int
    counted: int
    hit: int

    @property
    def recall(self) -> float:
        """Share of the planted errors that were counted; not-a-number when none was planted."""
        return self.hit / self.true if self.true else float("nan")

    @property
    def precision(self) -> float:
        """Share of the counted errors that were planted; not-a-number when none was counted."""
        return self.hit / self.counted if self.counted else float("nan")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "recall": self.recall, "precision": self.precision}


@dataclass(frozen=True)
class ErrorBenchmark:
    """The result of the benchmark."""

    n: int
    seed: int
    metrics: dict[str, MetricAgreement]  # name → agreement, for every metric that has a value for a single pair
    counts: dict[str, Counting]  # `kind.significant` or `kind.insignificant` → counting by rule
    corpus_only: tuple[str, ...] = ()  # metrics without a value for a single pair, which were left out

    def to_json(self) -> dict[str, Any]:
        """The content of `validation.json`."""
        return {
            "benchmark": "phantom",
            "interval": METHOD,
            "n": self.n,
            "seed": self.seed,
            "metrics": {name: row.to_json() for name, row in self.metrics.items()},
            "counts": {name: row.to_json() for name, row in self.counts.items()},
            "corpus_only": list(self.corpus_only),
        }


def draw_cases(seed: int, n: int, *, exact: bool = False) -> list[ErrorCase]:
    """`n` cases, each the last visit of another patient; a smaller n of the same seed gives the first of them.

    With `exact`, metrics get the reference's exact findings instead of its text alone.
    """
    if n < 1:
        raise ConfigError(f"n={n} is not a number of cases; give at least 1.")
    cases = []
    for index in range(n):
        name = f"phantom{index:05d}"
        visit = draw_patient(seed, name, CASES).visits[-1]
        drawn = mistaken(visit, seed, name)
        pair = Pair(
            id=name,
            reference=drawn.reference.report.findings,
            candidate=drawn.candidate.report.findings,
            patient=name,
            findings=drawn.reference.findings if exact else None,
            context=Context(age=visit.age, indication=drawn.reference.report.indication),
        )
        cases.append(ErrorCase(pair, drawn.errors))
    return cases


def run_error_benchmark(
    cases: Sequence[ErrorCase],
    families: Sequence[Family],
    *,
    seed: int,
    trials: int = 1000,
    names: Collection[str] | None = None,
) -> ErrorBenchmark:
    """Rank the metrics of `families` (those in `names`; all when None) against the truth of `cases`."""
    batch = Batch([case.pair for case in cases])
    tallies = compute_tallies(families, batch, names)
    alone = [tally for tally in tallies if tally.metric.by_pair]
    total = np.array([len(case.errors) for case in cases], dtype=np.float64)
    significant = np.array([sum(error.significant for error in case.errors) for case in cases], dtype=np.float64)
    patients = [case.pair.patient for case in cases]

    def against(tally: Tally, errors: Matrix) -> Agreement:
        rng = generator(seed, "error benchmark")
        return tau_with_interval(higher_is_better(tally), -errors, patients, trials=trials, rng=rng)

    true, counted, hit = Counter[Cell](), Counter[Cell](), Counter[Cell]()
    for case, comparison in zip(cases, batch.comparisons, strict=True):
        made, seen = _count_cells(case.errors), _count_cells(comparison.errors if comparison else ())
        true, counted, hit = true + made, counted + seen, hit + (made & seen)
    return ErrorBenchmark(
        n=len(cases),
        seed=seed,
        metrics={t.metric.name: MetricAgreement(against(t, total), against(t, significant)) for t in alone},
        counts={
            f"{kind.value}.{'significant' if weight else 'insignificant'}": Counting(
                true[kind, weight], counted[kind, weight], hit[kind, weight]
            )
            for kind, weight in CELLS
        },
        corpus_only=tuple(tally.metric.name for tally in tallies if not tally.metric.by_pair),
    )


def _count_cells(errors: Sequence[ReportError]) -> Counter[Cell]:
    return Counter((error.kind, error.significant) for error in errors)


# A change of this much counts as none: a hundredth of the scale for metrics of a bounded range, 0.01 for the others.
TOLERANCE = 0.01
# A row is right when at least this share of its cases is. A report states about four findings, which must all be read
# correctly twice for a paraphrase not to change a count; the reader may miss one case in twenty.
RIGHT = 0.95
# Reports tried per case of a row, and at least; an edit that applies to fewer has a smaller n.
LOOKS, LEAST_LOOKS = 25, 400


@dataclass(frozen=True)
class CellSensitivity:
    """One metric in one row."""

    share: float  # share of cases with a value in which the metric fell, or stayed, as required
    mean_change: float  # mean change of the value, negative for worse whatever the metric's direction
    # Share of cases that scored below a paraphrase of the report; None in harmless rows.
    worse_than_paraphrase: float | None
    n: int  # cases with a value before and after the edit

    @property
    def right(self) -> bool:
        """Whether the metric passes; a metric without a value does not."""
        return self.n > 0 and self.share >= RIGHT

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "right": self.right}


@dataclass(frozen=True)
class Row:
    """One edit over its `n` cases; a metric must fall, or else stay."""

    must_fall: bool
    n: int
    metrics: dict[str, CellSensitivity]

    def to_json(self) -> dict[str, Any]:
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
        """`sensitivity` of `validation.json`."""
        tolerances = {"tolerance": TOLERANCE, "right_from": RIGHT}
        return {**tolerances, "rows": {name: row.to_json() for name, row in self.rows.items()}}


def measure_sensitivity(
    families: Sequence[Family],
    *,
    seed: int,
    n: int = 100,
    names: Collection[str] | None = None,
    quiet: bool | None = None,
) -> Sensitivity:
    """Fill the table for the metrics of `families` that have a value for a single pair.

    Args:
        n: Cases per row; a row whose edit applies to too few reports has fewer.
        names: The wanted metrics of these families; None for all.
        quiet: Show no progress bar; by default only in a terminal.
    """
    if n < 1:
        raise ConfigError(f"n={n} is not a number of cases; give at least 1.")
    reports: list[NarratedVisit] = []
    rows = {}
    for name, row in track(EDITS.items(), "sensitivity", quiet=quiet):
        cases: list[tuple[NarratedVisit, Edited]] = []
        for index in range(max(LEAST_LOOKS, LOOKS * n)):
            if index == len(reports):
                key = f"sensitivity{index:05d}"
                reports.append(NarratedVisit.of(draw_patient(seed, key).visits[-1], seed, key))
            if (edited := row.edit(reports[index])) is not None:
                cases.append((reports[index], edited))
            if len(cases) == n:
                break
        if not cases:
            raise DataError(f"no report of seed {seed} offers a place for an edit; take another seed.")
        rows[name] = Row(row.must_fall, len(cases), _measure_row(cases, row.must_fall, families, names))
    return Sensitivity(rows)


def _measure_row(
    cases: Sequence[tuple[NarratedVisit, Edited]],
    must_fall: bool,
    families: Sequence[Family],
    names: Collection[str] | None,
) -> dict[str, CellSensitivity]:
    """Metric → how its value of each report as its own candidate changes with the edit."""

    def measure(batch: Batch) -> dict[str, tuple[Tally, Matrix]]:
        tallies = compute_tallies(families, batch, names)
        return {tally.metric.name: (tally, higher_is_better(tally)) for tally in tallies if tally.metric.by_pair}

    pairs = []
    for narrated, edited in cases:
        text, context = edited.reference, Context(age=narrated.visit.age)
        pairs.append(Pair(narrated.name, text, text, patient=narrated.name, context=context))
    same = Batch(pairs)
    edits = measure(same.with_candidates([edited.candidate for _, edited in cases]))
    others = [paraphrase(narrated).candidate for narrated, _ in cases] if must_fall else None
    paraphrases = measure(same.with_candidates(others)) if others else {}
    cells = {}
    for name, (tally, before) in measure(same).items():
        after = edits[name][1]
        low, high = tally.metric.range
        tolerance = TOLERANCE * (high - low if np.isfinite(high - low) else 1.0)
        known = ~(np.isnan(before) | np.isnan(after))
        if not known.any():
            cells[name] = CellSensitivity(float("nan"), float("nan"), None, 0)
            continue
        change = after[known] - before[known]
        done = change < -tolerance if must_fall else np.abs(change) <= tolerance
        below = float((after[known] < paraphrases[name][1][known] - tolerance).mean()) if name in paraphrases else None
        cells[name] = CellSensitivity(float(done.mean()), float(change.mean()), below, int(known.sum()))
    return cells


class PhantomBenchmark:
    """Every metric against reports with planted errors, and its sensitivity to single edits.

    Judges are not asked about the edits: that would take several times as many questions as the cases.
    """

    def __init__(self, config: ValidateConfig) -> None:
        self._config, self._cases = config, draw_cases(config.seed, config.n)
        self.batch = Batch([case.pair for case in self._cases])

    def measure(
        self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = (), extra: Sequence[Family] = ()
    ) -> dict[str, Any]:
        """The content of `validation.json`; see `validate_metrics.Benchmark`."""
        seed, trials = self._config.seed, self._config.trials
        chosen, wanted = families(names), metric_names(names)
        everyone = [*chosen, *(judge.family for judge in judges)]
        metrics = (*wanted, *(name for judge in judges for name in judge.metrics))
        found = run_error_benchmark(self._cases, everyone, seed=seed, trials=trials, names=metrics).to_json()
        n = max(self._config.n // 5, 1)
        table = measure_sensitivity(chosen, seed=seed, n=n, names=wanted) if chosen else Sensitivity({})
        return {**found, "sensitivity": table.to_json()}
