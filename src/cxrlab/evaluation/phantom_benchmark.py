"""The phantom benchmark: how well each metric orders reports by a number of errors that is known exactly.

Each case is a report and a rewrite of it, in other words and with drawn mistakes. A metric sees the
two texts; its values are ranked against the true counts. No rater is involved, so there is no
ceiling below 1, and no report of a patient, so the cases can be drawn anew from any seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.randomness import generator
from cxrlab.core.records import ReportError
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import ErrorKind
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.metric_choice import OpenJudge
from cxrlab.evaluation.validate import compute_tallies, higher_is_better
from cxrlab.findings.cases import CaseConfig, draw_patient
from cxrlab.findings.edits import EDITS, Edited, EditRow, NarratedVisit, paraphrase
from cxrlab.findings.planted_errors import mistaken
from cxrlab.metrics.families import families, metric_names
from cxrlab.metrics.pairs import Batch, Context, Pair
from cxrlab.metrics.statistics.agreement import Agreement, tau_with_interval
from cxrlab.metrics.statistics.intervals import METHOD
from cxrlab.metrics.tally import Family, Matrix, Tally

# There is little to get wrong on a normal image: a tenth of them is enough.
CASES = CaseConfig(normal=0.1)
# A cell of the twelve counts: kind, and whether significant.
Cell = tuple[ErrorKind, bool]
CELLS: tuple[Cell, ...] = tuple((kind, weight) for weight in (True, False) for kind in ErrorKind)


@dataclass(frozen=True)
class ErrorCase:
    """One pair of reports and everything that is wrong with the second."""

    pair: Pair
    errors: tuple[ReportError, ...]


@dataclass(frozen=True)
class MetricAgreement:
    """How one metric orders the cases.

    Args:
        total: Against the number of all errors; +1 when the metric is always better where there are fewer.
        significant: Against the number of significant ones.
    """

    total: Agreement
    significant: Agreement

    def to_json(self) -> dict[str, Any]:
        """Flat, with the keys of `validation.json`."""
        suffix = {"": self.total, "_significant": self.significant}
        rows = {f"{key}{end}": getattr(tau, key) for end, tau in suffix.items() for key in ("tau", "low", "high")}
        return {**rows, "n": self.total.n}


@dataclass(frozen=True)
class Counting:
    """One of the twelve counts by rule against the truth, over all cases.

    Args:
        true: Errors that were made.
        counted: Errors that the rules saw.
        hit: Of each case the smaller of the two, summed.
    """

    true: int
    counted: int
    hit: int

    @property
    def recall(self) -> float:
        """Share of the errors made that were counted; not-a-number when none was made."""
        return self.hit / self.true if self.true else float("nan")

    @property
    def precision(self) -> float:
        """Share of the counted errors that were made; not-a-number when none was counted."""
        return self.hit / self.counted if self.counted else float("nan")

    def to_json(self) -> dict[str, Any]:
        """Counts and both shares."""
        shares = {"recall": self.recall, "precision": self.precision}
        return {"true": self.true, "counted": self.counted, "hit": self.hit, **shares}


@dataclass(frozen=True)
class ErrorBenchmark:
    """What the benchmark shows.

    Args:
        n: Cases.
        seed: They were drawn from.
        metrics: Name → agreement, for every metric that has a value for a single pair.
        counts: `kind.significant` or `kind.insignificant` → counting by rule.
        corpus_only: Metrics that mean nothing for a single pair and were left out.
    """

    n: int
    seed: int
    metrics: dict[str, MetricAgreement]
    counts: dict[str, Counting]
    corpus_only: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The form of `validation.json`."""
        return {
            "benchmark": "phantom",
            "interval": METHOD,
            "n": self.n,
            "seed": self.seed,
            "metrics": {name: row.to_json() for name, row in self.metrics.items()},
            "counts": {name: row.to_json() for name, row in self.counts.items()},
            "corpus_only": list(self.corpus_only),
        }

    def lines(self) -> Iterator[str]:
        """The metrics, best first, then the counts; one line each, for a terminal."""
        width = max([len("metric"), *map(len, self.metrics), *map(len, self.counts)])
        yield f"{'metric':<{width}}  tau, all errors        tau, significant        n"
        # A metric without an order (not-a-number) comes last.
        rank = {name: -row.total.tau if row.total.tau == row.total.tau else 2.0 for name, row in self.metrics.items()}
        for name in sorted(self.metrics, key=rank.__getitem__):
            row = self.metrics[name]
            taus = "  ".join(f"{t.tau:6.3f} [{t.low:6.3f}, {t.high:6.3f}]" for t in (row.total, row.significant))
            yield f"{name:<{width}}  {taus}  {row.total.n:4d}"
        yield ""
        yield f"{'count':<{width}}    true  counted  recall  precision"
        for name, count in self.counts.items():
            yield (f"{name:<{width}}  {count.true:6d}  {count.counted:7d}  {count.recall:6.3f}  {count.precision:9.3f}")


def draw_cases(seed: int, n: int, *, exact: bool = False) -> list[ErrorCase]:
    """`n` cases, each the last visit of another patient; the first k of n are the k of the same seed.

    Args:
        seed: Of patients, words and mistakes.
        n: At least 1.
        exact: Give the metrics the reference's exact findings instead of its text alone.
    """
    if n < 1:
        raise ConfigError(f"n={n} is not a number of cases; give at least 1.")
    return [_case(seed, f"phantom{index:05d}", exact) for index in range(n)]


def _case(seed: int, name: str, exact: bool) -> ErrorCase:
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
    return ErrorCase(pair, drawn.errors)


def run_error_benchmark(
    cases: Sequence[ErrorCase],
    families: Sequence[Family],
    *,
    seed: int,
    trials: int = 1000,
    names: Collection[str] | None = None,
) -> ErrorBenchmark:
    """Rank the metrics of `families` against the truth of `cases`.

    Args:
        cases: From `draw_cases`.
        families: Metrics to measure.
        seed: Of the resamples for the intervals, and kept in the result.
        trials: Resamples.
        names: The metrics wanted of these families; None for all.
    """
    batch = Batch([case.pair for case in cases])
    tallies = compute_tallies(families, batch, names)
    alone = [tally for tally in tallies if tally.metric.by_pair]
    total = np.array([len(case.errors) for case in cases], dtype=np.float64)
    weighty = np.array([sum(error.significant for error in case.errors) for case in cases], dtype=np.float64)
    patients = [case.pair.patient for case in cases]

    def against(tally: Tally, errors: Matrix) -> Agreement:
        rng = generator(seed, "error benchmark")
        return tau_with_interval(higher_is_better(tally), -errors, patients, trials=trials, rng=rng)

    return ErrorBenchmark(
        n=len(cases),
        seed=seed,
        metrics={t.metric.name: MetricAgreement(against(t, total), against(t, weighty)) for t in alone},
        counts=_counting(cases, batch),
        corpus_only=tuple(tally.metric.name for tally in tallies if not tally.metric.by_pair),
    )


def _counting(cases: Sequence[ErrorCase], batch: Batch) -> dict[str, Counting]:
    """The twelve counts by rule against the truth."""
    true, counted, hit = Counter[Cell](), Counter[Cell](), Counter[Cell]()
    for case, comparison in zip(cases, batch.comparisons, strict=True):
        made, seen = _cells(case.errors), _cells(comparison.errors if comparison else ())
        true, counted, hit = true + made, counted + seen, hit + (made & seen)
    names = {cell: f"{cell[0].value}.{'significant' if cell[1] else 'insignificant'}" for cell in CELLS}
    return {names[cell]: Counting(true[cell], counted[cell], hit[cell]) for cell in CELLS}


def _cells(errors: Sequence[ReportError]) -> Counter[Cell]:
    return Counter((error.kind, error.significant) for error in errors)


# A change of this much counts as none: a hundredth of the scale for metrics of a bounded range, 0.01 for the others.
TOLERANCE = 0.01
# A row is right when at least this share of its cases is. A report states about four findings, all of which must
# be read right twice for a paraphrase not to move a count: one case in twenty is what a reader may miss.
RIGHT = 0.95
# Reports looked through for each case of a row, and at least; an edit for which fewer offer a place has a smaller n.
LOOKS, LEAST_LOOKS = 25, 400


@dataclass(frozen=True)
class CellSensitivity:
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
    metrics: dict[str, CellSensitivity]

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


def _percent(cell: CellSensitivity) -> str:
    return f"{100 * cell.share:.0f}{' ' if cell.right else '!'}" if cell.n else "-!"


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
        tallies = compute_tallies(self.families, batch, self.names)
        return {tally.metric.name: (tally, higher_is_better(tally)) for tally in tallies if tally.metric.by_pair}


class _Reports:
    """Narrated reports, narrated once however many rows ask for them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._narrated: list[NarratedVisit] = []

    def __getitem__(self, index: int) -> NarratedVisit:
        while len(self._narrated) <= index:
            name = f"sensitivity{len(self._narrated):05d}"
            self._narrated.append(NarratedVisit.of(draw_patient(self.seed, name).visits[-1], self.seed, name))
        return self._narrated[index]


def _row(row: EditRow, measure: _Measure, reports: _Reports, n: int) -> Row:
    cases: list[tuple[NarratedVisit, Edited]] = []
    for index in range(max(LEAST_LOOKS, LOOKS * n)):
        narrated = reports[index]
        edited = row.edit(narrated)
        if edited is not None:
            cases.append((narrated, edited))
        if len(cases) == n:
            break
    if not cases:
        raise DataError(f"no report of seed {reports.seed} offers a place for an edit; take another seed.")
    same = Batch([_pair(narrated, edited) for narrated, edited in cases])
    after = measure(same.with_candidates([edited.candidate for _, edited in cases]))
    others = [paraphrase(narrated).candidate for narrated, _ in cases] if row.must_fall else None
    faithful = measure(same.with_candidates(others)) if others else {}
    cells = {}
    for name, (tally, before) in measure(same).items():
        cells[name] = _cell(tally, before, after[name][1], faithful[name][1] if faithful else None)
    return Row(row.must_fall, len(cases), cells)


def _pair(narrated: NarratedVisit, edited: Edited) -> Pair:
    """The report as its own candidate."""
    text = edited.reference
    return Pair(narrated.name, text, text, patient=narrated.name, context=Context(age=narrated.visit.age))


def _cell(tally: Tally, before: Matrix, after: Matrix, paraphrased: Matrix | None) -> CellSensitivity:
    """`paraphrased` is given in harmful rows only, where the metric must fall."""
    low, high = tally.metric.range
    tolerance = TOLERANCE * (high - low if np.isfinite(high - low) else 1.0)
    known = ~(np.isnan(before) | np.isnan(after))
    if not known.any():
        return CellSensitivity(float("nan"), float("nan"), None, 0)
    change = after[known] - before[known]
    done = change < -tolerance if paraphrased is not None else np.abs(change) <= tolerance
    below = None if paraphrased is None else float((after[known] < paraphrased[known] - tolerance).mean())
    return CellSensitivity(float(done.mean()), float(change.mean()), below, int(known.sum()))


class PhantomBenchmark:
    """Every metric against reports with drawn errors, and the table of what must move it and what must not.

    Judges are not asked for that table: it would take several times as many questions as the cases.

    Args:
        config: Settings; the cases are drawn at once.
    """

    def __init__(self, config: ValidateConfig) -> None:
        self._config, self._cases = config, draw_cases(config.seed, config.n)
        self.batch = Batch([case.pair for case in self._cases])

    def measured(self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = ()) -> dict[str, Any]:
        """The figures; see `Benchmark`."""
        seed, trials = self._config.seed, self._config.trials
        chosen, wanted = families(names), metric_names(names)
        everyone = [*chosen, *(judge.family for judge in judges)]
        metrics = (*wanted, *(name for judge in judges for name in judge.metrics))
        found = run_error_benchmark(self._cases, everyone, seed=seed, trials=trials, names=metrics).to_json()
        looked = max(self._config.n // 5, 1)
        moved = measure_sensitivity(chosen, seed=seed, n=looked, names=wanted) if chosen else Sensitivity({})
        return {**found, "sensitivity": moved.to_json()}
