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

from cxrlab.core.errors import ConfigError
from cxrlab.core.randomness import generator
from cxrlab.core.records import ReportError
from cxrlab.core.vocabulary import ErrorKind
from cxrlab.findings.cases import CaseConfig, draw_patient
from cxrlab.findings.planted_errors import mistaken
from cxrlab.metrics.pairs import Batch, Context, Pair
from cxrlab.metrics.statistics.agreement import Agreement, tau_with_interval
from cxrlab.metrics.statistics.bootstrap import METHOD
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


def error_benchmark(
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
    tallies = tallies_of(families, batch, names)
    alone = [tally for tally in tallies if tally.metric.by_pair]
    total = np.array([len(case.errors) for case in cases], dtype=np.float64)
    weighty = np.array([sum(error.significant for error in case.errors) for case in cases], dtype=np.float64)
    patients = [case.pair.patient for case in cases]

    def against(tally: Tally, errors: Matrix) -> Agreement:
        rng = generator(seed, "error benchmark")
        return tau_with_interval(better(tally), -errors, patients, trials=trials, rng=rng)

    return ErrorBenchmark(
        n=len(cases),
        seed=seed,
        metrics={t.metric.name: MetricAgreement(against(t, total), against(t, weighty)) for t in alone},
        counts=_counting(cases, batch),
        corpus_only=tuple(tally.metric.name for tally in tallies if not tally.metric.by_pair),
    )


def tallies_of(families: Sequence[Family], batch: Batch, names: Collection[str] | None = None) -> list[Tally]:
    """The wanted metrics of these families over a batch; all of them when `names` is None."""
    tallies = (tally for family in families for tally in family.tallies(batch))
    return [tally for tally in tallies if names is None or tally.metric.name in names]


def better(tally: Tally) -> Matrix:
    """The value of each pair, turned so that more is better [N]; not-a-number where undefined."""
    return tally.by_pair if tally.metric.direction == "higher" else -tally.by_pair


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
