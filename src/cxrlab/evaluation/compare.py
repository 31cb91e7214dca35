"""Compare two or more scored runs with the first of them, paired by study and clustered by patient.

A metric is compared only where every run computed it in the same way. Each difference has an interval, a permutation
test and Holm's correction over all tests.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_bytes
from cxrlab.core.headline_metrics import ARROWS
from cxrlab.core.json_values import plain
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.core.tables import Column, Interval, Table, as_html, as_text, output_width
from cxrlab.core.terminal import track
from cxrlab.evaluation.score import ScoreSheet
from cxrlab.evaluation.scored_runs import (
    INDEX,
    ScoredRun,
    align_runs,
    read_tallies,
    select_comparable,
    tallies_of_sheet,
)
from cxrlab.metrics.base import Tally, mean_of
from cxrlab.metrics.statistics.intervals import METHOD, SLACK, Clusters, Resamples
from cxrlab.metrics.statistics.paired_tests import (
    MINIMUM_PATIENTS,
    McNemar,
    NonInferiority,
    PairedDifference,
    check_margin,
    holm,
    mcnemar,
    non_inferior,
    paired_differences,
)

RESULT = "comparison.json"
ALPHA = 0.05


Scored = str | os.PathLike[str] | ScoreSheet


def compare(
    runs: Scored | Sequence[Scored],
    *others: Scored,
    noninferior: Mapping[str, float] | None = None,
    seed: int = 7,
    out: str | os.PathLike[str] | None = None,
    names: Sequence[str] = (),
    metrics: Sequence[str] = (),
    trials: int = 10_000,
    minimum_patients: int = MINIMUM_PATIENTS,
) -> ComparisonResult:
    """Compare scored runs with the first of them: `compare(a, b)` or `compare([a, b, c])`.

    Args:
        runs: Run folders of 'cxrlab score' or score sheets of `cxrlab.score`, scored against the same references; the
            baseline first.
        noninferior: Metric → margin: how much worse than the baseline is still accepted. See `ComparisonResult.ok`.
        seed: Decides resamples and swaps.
        out: Run folder for comparison.json; nothing is written when left out.
        names: What to call the runs; by default the names of their folders, or "sheet 1", "sheet 2", ….
        metrics: Names, patterns (`bleu*`) and groups to compare, over which Holm's correction counts; the headline
            metrics when empty, "all" for every shared one.
        trials: Swaps of the permutation test.
        minimum_patients: Fewest patients from which non-inferiority is established.
    """
    margins = dict(noninferior or {})
    for metric, margin in margins.items():
        check_margin(metric, margin)
    given: list[Scored] = [runs] if isinstance(runs, (str, os.PathLike, ScoreSheet)) else list(runs)
    given += others
    if len(given) < 2:
        raise ConfigError(f"{len(given)} run was given; a comparison needs at least two, the baseline first.")
    if names and (len(names) != len(given) or len(set(names)) < len(names)):
        raise ConfigError(f"names is {list(names)}; give {len(given)} different names, one for each run.")
    scored = align_runs(
        [
            tallies_of_sheet(run.batch, run.tallies, f"sheet {place}")
            if isinstance(run, ScoreSheet)
            else read_tallies(Path(run))
            for place, run in enumerate(given, 1)
        ]
    )
    chosen, refused = select_comparable(scored, metrics, list(margins))
    result = _compare(scored, list(names), chosen, margins, minimum_patients, refused, trials, seed)
    if out is not None:
        config: dict[str, Any] = {
            "runs": [str(run.folder) for run in scored],
            # A run that was scored again is another comparison, though its folder has the same name.
            "content": [
                run.digest[:16]
                if isinstance(run, ScoreSheet)
                else hashlib.sha256(read_bytes(Path(run) / INDEX)).hexdigest()[:16]
                for run in given
            ],
            "noninferior": margins,
            "minimum_patients": minimum_patients,
            "metrics": sorted(metrics),
            "trials": trials,
        }
        if not finished(Path(out), config, seed=seed):
            with Run.open(Path(out), config, seed=seed) as run:
                run.write(RESULT, result.to_json())
    return result


def _compare(
    runs: Sequence[ScoredRun],
    labels: list[str],
    names: Sequence[str],
    margins: Mapping[str, float],
    minimum_patients: int,
    refused: Mapping[str, str],
    trials: int,
    seed: int,
) -> ComparisonResult:
    # Short labels: the folder's name, else its path, else a number behind it.
    labels = labels or [run.folder.resolve().name for run in runs]
    labels = [x if labels.count(x) == 1 else str(run.folder) for x, run in zip(labels, runs, strict=True)]
    labels = [f"{x} ({labels[:k].count(x) + 1})" if labels[:k].count(x) else x for k, x in enumerate(labels)]
    groups = Clusters(runs[0].patients)
    tallies = [[run.tallies[name] for name in names] for run in runs]
    draws = Resamples(groups, rng=generator(seed, "compare", "intervals"))
    intervals = [draws.estimates(mine) for mine in tallies]
    found = [
        paired_differences(tallies[0], mine, groups, trials=trials, rng=generator(seed, "compare", "differences"))
        for mine in track(tallies[1:], "comparing runs")
    ]
    # Runs with the same counts on every study leave nothing to test, and are not counted by the correction.
    tests = [one.p if one.patients else math.nan for differences in found for one in differences]
    adjusted = np.array(holm(tests)).reshape(len(found), len(names))
    records = []
    for index, name in enumerate(names):
        mine = [row[index] for row in tallies]
        ends = [row[index] for row in intervals]
        places = rank_values([tally.value for tally in mine], mine[0].metric.direction)
        values = {
            label: RunValue(tally.value, found.low, found.high, tally.n, tally.undefined, place)
            for label, tally, found, place in zip(labels, mine, ends, places, strict=True)
        }
        card = mine[0].metric
        against = []
        for label, other, differences, p in zip(labels[1:], mine[1:], found, adjusted[:, index].tolist(), strict=True):
            difference = differences[index]
            verdict: Verdict = "too few" if difference.too_few else "unclear"
            if math.isnan(difference.difference):
                verdict = "undefined"
            elif not difference.patients:
                verdict = "equal"
            elif p < ALPHA:
                verdict = "better" if (difference.difference > 0) == (card.direction == "higher") else "worse"
            studies, right_or_wrong = count_wins(mine[0], other), _right_or_wrong(mine[0], other)
            against.append(BaselineComparison(label, difference, p, verdict, studies, right_or_wrong))
        records.append(MetricComparison(name, card.direction, runs[0].signatures[name], values, tuple(against)))
    gates = tuple(
        Gate(
            item.run,
            non_inferior(item.difference, record.direction, margins[record.metric], minimum_patients=minimum_patients),
        )
        for record in records
        if record.metric in margins
        for item in record.against
    )
    return ComparisonResult(
        runs=tuple(labels),
        folders=tuple(str(run.folder) for run in runs),
        n=len(runs[0].ids),
        patients=groups.count,
        tests=sum(not math.isnan(p) for p in tests),
        alpha=ALPHA,
        metrics=tuple(records),
        refused=dict(refused),
        gates=gates,
    )


def count_wins(a: Tally, b: Tally) -> ByStudy | None:
    """Studies that b does better, equally or worse; None when a single study has no value of its own."""
    if not a.metric.by_pair:
        return None
    mine, yours = a.by_pair, b.by_pair
    known = ~(np.isnan(mine) | np.isnan(yours))
    gain = (yours - mine)[known] * (1 if a.metric.direction == "higher" else -1)
    slack = SLACK * np.maximum(np.abs(mine), np.abs(yours))[known]
    win, lose = int((gain > slack).sum()), int((gain < -slack).sum())
    return ByStudy(win, len(gain) - win - lose, lose)


def _right_or_wrong(a: Tally, b: Tally) -> McNemar | None:
    """McNemar's test where the metric is a share of studies: a mean of zeros and ones, known of every study."""
    if not all(tally.value_of is mean_of and tally.defined.all() for tally in (a, b)):
        return None
    mine, yours = a.by_pair, b.by_pair
    if not (np.isin(mine, (0, 1)).all() and np.isin(yours, (0, 1)).all()):
        return None
    right = 1 if a.metric.direction == "higher" else 0
    return mcnemar(mine == right, yours == right)


def rank_values(values: Sequence[float], direction: Literal["higher", "lower"]) -> list[int | None]:
    """1 for the best; equal values share the better rank; None for not-a-number."""
    signed = np.array(values, dtype=np.float64) * (1 if direction == "higher" else -1)
    slack = SLACK * np.abs(signed)
    return [
        None if math.isnan(one) else 1 + int((signed > one + margin).sum())
        for one, margin in zip(signed.tolist(), slack.tolist(), strict=True)
    ]


Verdict = Literal["better", "worse", "unclear", "too few", "equal", "undefined"]
_MARKS = {"non-inferior": "PASS", "not shown": "FAIL", "not established": "NOT ESTABLISHED"}


@dataclass(frozen=True)
class RunValue:
    """One metric of one run with its interval by patient; rank 1 is the best, ties share it, None without a value."""

    value: float
    low: float
    high: float
    n: int
    undefined: int
    rank: int | None


@dataclass(frozen=True)
class ByStudy:
    """On how many studies the other run does better than the baseline, equally well, or worse.

    Studies on which one of the two has no value are in none of the three.
    """

    win: int
    tie: int
    lose: int


@dataclass(frozen=True)
class BaselineComparison:
    """One metric of one run against the baseline."""

    run: str  # label of the run
    difference: PairedDifference  # the run minus the baseline, with interval and test
    # Its p after Holm's correction over every test of the comparison; not-a-number where there is nothing to test.
    p_holm: float
    # better or worse when `p_holm` is below alpha; equal when the counts of every patient are the same; too few when no
    # data of this size could reach alpha; unclear otherwise; undefined without a value.
    verdict: Verdict
    by_study: ByStudy | None  # wins, ties and losses; None where a single study has no value of its own
    mcnemar: McNemar | None  # for a share of studies (each right or wrong); None for other metrics


@dataclass(frozen=True)
class MetricComparison:
    """One metric over all runs, by label, and every other run against the baseline."""

    metric: str
    direction: Literal["higher", "lower"]
    signature: str
    values: Mapping[str, RunValue]
    against: tuple[BaselineComparison, ...]


@dataclass(frozen=True)
class Gate:
    """A requirement that a run is not worse than the baseline by more than a margin."""

    run: str
    verdict: NonInferiority


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """The whole comparison: labels and folders of the runs, the baseline first, and one record per metric."""

    runs: tuple[str, ...]
    folders: tuple[str, ...]
    n: int
    patients: int
    tests: int  # number of tests that Holm's correction counts
    alpha: float  # level of the verdicts after correction
    metrics: tuple[MetricComparison, ...]
    refused: Mapping[str, str]  # metric → why it was not compared
    gates: tuple[Gate, ...]  # requirements of non-inferiority and their verdicts

    @property
    def ok(self) -> bool:
        """Whether every gate was passed; True without gates."""
        return all(gate.verdict.established for gate in self.gates)

    def to_json(self) -> dict[str, Any]:
        """The content of comparison.json."""
        return {
            "runs": list(self.runs),
            "folders": list(self.folders),
            "baseline": self.runs[0],
            "n": self.n,
            "patients": self.patients,
            "tests": self.tests,
            "alpha": self.alpha,
            "ok": self.ok,
            "metrics": {
                one.metric: {
                    "direction": one.direction,
                    "signature": one.signature,
                    "values": plain(one.values),
                    "against": {
                        item.run: {
                            **plain(item.difference),
                            "p_holm": plain(item.p_holm),
                            "verdict": item.verdict,
                            "by_study": plain(item.by_study),
                            "mcnemar": plain(item.mcnemar),
                        }
                        for item in one.against
                    },
                }
                for one in self.metrics
            },
            "refused": dict(self.refused),
            "interval": METHOD,
            "gates": [
                {"run": gate.run, **plain(gate.verdict), "shown": gate.verdict.established} for gate in self.gates
            ],
        }

    def __repr__(self) -> str:
        verdicts = Counter(item.verdict for one in self.metrics for item in one.against)
        counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
        return f"ComparisonResult({', '.join(self.runs)}; {self.n:,} studies; {counts})"

    def __str__(self) -> str:
        return self.text(output_width())

    def _repr_html_(self) -> str:
        return as_html(self.parts())

    def to_frame(self) -> Any:
        """A pandas data frame with a row per metric and compared run: values, difference, p, verdict."""
        rows = tuple(row for run in self.runs[1:] for row in _difference_table(self, run).rows)
        return Table(_COLUMNS, rows).to_frame()

    def text(self, width: int | None = None) -> str:
        """Tables and sentences, without a final newline, in lines of at most `width` characters."""
        return as_text(self.parts(), width)

    def parts(self) -> list[str | Table]:
        """Sentences and tables in order."""
        of = "1 patient" if self.patients == 1 else f"{self.patients} patients"
        tests = "1 test" if self.tests == 1 else f"{self.tests} tests"
        p = f" p: permutation by patient, after Holm over {tests}." if self.tests else ""
        parts: list[str | Table] = [f"{self.n} studies of {of}; baseline {self.runs[0]}. Intervals: 95 %, {METHOD}.{p}"]
        if len(self.runs) > 2:
            rows = [
                (one.metric, *(f"{_number(value.value)} ({value.rank or '–'})" for value in one.values.values()))
                for one in self.metrics
            ]
            columns = (Column("metric"), *map(Column, self.runs))
            parts += ["", Table(columns, tuple(rows), "values and ranks", summary=True)]
        for run in self.runs[1:]:
            parts += ["", _difference_table(self, run)]
        parts += [f"not compared: {metric} ({why})" for metric, why in self.refused.items()]
        for gate in self.gates:
            parts.append(f"gate {_MARKS[gate.verdict.verdict]} for {gate.run}: {gate.verdict.sentence}")
        return parts


def _difference_table(result: ComparisonResult, run: str) -> Table:
    """One run against the baseline; metrics that are equal or undefined have a row too."""
    place = result.runs.index(run) - 1
    rows = []
    for one in result.metrics:
        item = one.against[place]
        found, study = item.difference, item.by_study
        counts = (None, None, None) if study is None else (study.win, study.tie, study.lose)
        rows.append(
            (
                f"{one.metric} {ARROWS[one.direction]}", one.metric, one.direction, run, found.a, found.b,
                Interval(found.difference, found.low, found.high), item.p_holm, item.verdict,
                "–" if study is None else "/".join(map(str, counts)), *counts,
            )
        )  # fmt: skip
    return Table(_COLUMNS, tuple(rows), f"{run} against {result.runs[0]}")


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "<0.0001" if value < 0.0001 else f"{value:.4f}"


_COLUMNS = (
    Column("metric", only="text"),
    *(Column(name, only="data") for name in ("metric", "direction", "run")),
    Column("baseline"),
    Column("run", "value"),
    Column("difference", sign="+"),
    Column("p", "p_holm", write=_p),
    Column("verdict"),
    Column("win/tie/lose", only="text"),
    *(Column(name, only="data") for name in ("win", "tie", "lose")),
)
