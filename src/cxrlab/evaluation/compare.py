"""Compare two or more scored runs with the first of them, paired by study and clustered by patient.

A metric is compared only where every run computed it in the same way. Each difference has an interval, a permutation
test and Holm's correction over all tests.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
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
from cxrlab.core.terminal import track
from cxrlab.evaluation.scored_runs import INDEX, ScoredRun, align_runs, read_tallies, select_comparable
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


def compare(
    runs: Sequence[str | os.PathLike[str]],
    noninferior: Mapping[str, float] | None = None,
    seed: int = 7,
    out: str | os.PathLike[str] | None = None,
    *,
    metrics: Sequence[str] = (),
    trials: int = 10_000,
    minimum_patients: int = MINIMUM_PATIENTS,
) -> ComparisonResult:
    """Compare scored runs with the first of them.

    Args:
        runs: Folders written by `score`, at least two, scored against the same references.
        noninferior: Metric → margin: how much worse than the baseline is still accepted. See `ComparisonResult.ok`.
        seed: Decides resamples and swaps.
        out: Run folder for comparison.json; nothing is written when left out.
        metrics: Names, patterns (`bleu*`) and groups to compare, over which Holm's correction counts; the headline
            metrics when empty, "all" for every shared one.
        trials: Swaps of the permutation test.
        minimum_patients: Fewest patients from which non-inferiority is established.
    """
    margins = dict(noninferior or {})
    for metric, margin in margins.items():
        check_margin(metric, margin)
    if len(runs) < 2:
        raise ConfigError(f"{len(runs)} run was given; a comparison needs at least two, the baseline first.")
    scored = align_runs([read_tallies(Path(run)) for run in runs])
    names, refused = select_comparable(scored, metrics, list(margins))
    result = _compare(scored, names, margins, minimum_patients, refused, trials, seed)
    if out is not None:
        config: dict[str, Any] = {
            "runs": [str(run.folder) for run in scored],
            # A run that was scored again is another comparison, though its folder has the same name.
            "content": [hashlib.sha256(read_bytes(run.folder / INDEX)).hexdigest()[:16] for run in scored],
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
    names: Sequence[str],
    margins: Mapping[str, float],
    minimum_patients: int,
    refused: Mapping[str, str],
    trials: int,
    seed: int,
) -> ComparisonResult:
    # Short labels: the folder's name, else its path, else a number behind it.
    labels = [run.folder.resolve().name for run in runs]
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
# Wide enough that no name is broken; a table takes what it needs.
WIDTH = 400


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
    """One metric of one run against the baseline.

    Args:
        run: Label of the run.
        difference: The run minus the baseline, with interval and test.
        p_holm: Its p after Holm's correction over every test of the comparison; not-a-number where there is
            nothing to test.
        verdict: better or worse when `p_holm` is below alpha; equal when the counts of every patient are the
            same; too few when no data of this size could reach alpha; unclear otherwise; undefined without a value.
        by_study: Wins, ties and losses; None where a single study has no value of its own.
        mcnemar: For a share of studies (each right or wrong); None for other metrics.
    """

    run: str
    difference: PairedDifference
    p_holm: float
    verdict: Verdict
    by_study: ByStudy | None
    mcnemar: McNemar | None


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


@dataclass(frozen=True)
class ComparisonResult:
    """The whole comparison: labels and folders of the runs, the baseline first, and one record per metric.

    Args:
        tests: Number of tests that Holm's correction counts.
        alpha: Level of the verdicts after correction.
        refused: Metric → why it was not compared.
        gates: Requirements of non-inferiority and their verdicts.
    """

    runs: tuple[str, ...]
    folders: tuple[str, ...]
    n: int
    patients: int
    tests: int
    alpha: float
    metrics: tuple[MetricComparison, ...]
    refused: Mapping[str, str]
    gates: tuple[Gate, ...]

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

    def text(self) -> str:
        """Tables and sentences for a terminal, without a final newline."""
        of = "1 patient" if self.patients == 1 else f"{self.patients} patients"
        tests = "1 test" if self.tests == 1 else f"{self.tests} tests"
        p = f" p: permutation by patient, after Holm over {tests}." if self.tests else ""
        parts = [f"{self.n} studies of {of}; baseline {self.runs[0]}. Intervals: 95 %, {METHOD}.{p}"]
        if len(self.runs) > 2:
            rows = [
                [one.metric, *(f"{_number(value.value)} ({value.rank or '–'})" for value in one.values.values())]
                for one in self.metrics
            ]
            parts.append(_table("values and ranks", ["metric", *self.runs], rows))
        parts += [_compare_with_baseline(self, run, number) for number, run in enumerate(self.runs[1:])]
        parts += [f"not compared: {metric} ({why})" for metric, why in self.refused.items()]
        for gate in self.gates:
            parts.append(f"gate {_MARKS[gate.verdict.verdict]} for {gate.run}: {gate.verdict.sentence}")
        return "\n".join(parts)


def _compare_with_baseline(result: ComparisonResult, run: str, number: int) -> str:
    """One table; metrics that are equal or undefined are only named."""
    rows = []
    silent: dict[str, list[str]] = {"equal": [], "undefined": []}
    for one in result.metrics:
        item = one.against[number]
        if item.verdict in silent:
            silent[item.verdict].append(one.metric)
            continue
        found, study = item.difference, item.by_study
        rows.append(
            [
                f"{one.metric} {ARROWS[one.direction]}",
                _number(found.a),
                _number(found.b),
                f"{_number(found.difference, '+')} [{_number(found.low, '+')}, {_number(found.high, '+')}]",
                "–" if math.isnan(item.p_holm) else "<0.0001" if item.p_holm < 0.0001 else f"{item.p_holm:.4f}",
                item.verdict,
                "–" if study is None else f"{study.win}/{study.tie}/{study.lose}",
            ]
        )
    head = ["metric", "baseline", run, "difference", "p", "verdict", "win/tie/lose"]
    lines = [_table(f"{run} against {result.runs[0]}", head, rows)] if rows else [f"{run} against {result.runs[0]}"]
    reasons = {"equal": "the same counts on every study", "undefined": "no value in one of the two"}
    lines += [f"{reasons[kind]}: {', '.join(names)}" for kind, names in silent.items() if names]
    return "\n".join(lines)


def _number(value: float, sign: str = "") -> str:
    return "–" if math.isnan(value) else f"{value:{sign}.4f}"


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, name in enumerate(head):
        table.add_column(Text(name), justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # names of folders may hold what rich reads as markup
    stream = io.StringIO()
    Console(file=stream, width=WIDTH, color_system=None).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines())
