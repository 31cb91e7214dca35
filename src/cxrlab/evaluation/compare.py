"""Two or more scored runs side by side, paired by study and clustered by patient.

The first run is the baseline. A metric is compared only where every run computed it in the same way,
and each difference comes with its interval, a permutation test and Holm's correction over all tests.
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
from cxrlab.core.json_values import plain
from cxrlab.core.metric_names import ARROWS
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.evaluation.scored_runs import INDEX, ScoredRun, align_runs, read_tallies, select_comparable
from cxrlab.metrics.statistics.bootstrap import Clusters, Resamples
from cxrlab.metrics.statistics.intervals import METHOD, SLACK
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
from cxrlab.metrics.tally import Metric, Tally, mean_of

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
        metrics: Names, patterns (`bleu*`) and groups to compare, which are also what Holm's correction counts; the
            headline ones when empty, "all" for every shared one.
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
    result = _compared(scored, names, margins, minimum_patients, refused, trials, seed)
    if out is not None:
        _write(Path(out), result, scored, margins, minimum_patients, sorted(metrics), trials, seed)
    return result


def _compared(
    runs: Sequence[ScoredRun],
    names: Sequence[str],
    margins: Mapping[str, float],
    minimum_patients: int,
    refused: Mapping[str, str],
    trials: int,
    seed: int,
) -> ComparisonResult:
    labels = _labels([run.folder for run in runs])
    groups = Clusters(runs[0].patients)
    tallies = [[run.tallies[name] for name in names] for run in runs]
    draws = Resamples(groups, rng=generator(seed, "compare", "intervals"))
    intervals = [draws.estimates(mine) for mine in tallies]
    found = [
        paired_differences(tallies[0], mine, groups, trials=trials, rng=generator(seed, "compare", "differences"))
        for mine in track(tallies[1:], "comparing runs")
    ]
    # Runs with the same counts on every study leave nothing to test, and what is no test is not corrected for.
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
        against = tuple(
            _against(labels[run + 1], mine[0], mine[run + 1], found[run][index], float(adjusted[run, index]))
            for run in range(len(found))
        )
        card = mine[0].metric
        records.append(MetricComparison(name, card.direction, runs[0].signatures[name], values, against))
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


def _against(run: str, a: Tally, b: Tally, difference: PairedDifference, p_holm: float) -> BaselineComparison:
    return BaselineComparison(
        run, difference, p_holm, _verdict(difference, p_holm, a.metric), count_wins(a, b), _right_or_wrong(a, b)
    )


def _verdict(difference: PairedDifference, p_holm: float, card: Metric) -> Verdict:
    if math.isnan(difference.difference):
        return "undefined"
    if not difference.patients:
        return "equal"
    if p_holm < ALPHA:
        return "better" if (difference.difference > 0) == (card.direction == "higher") else "worse"
    return "too few" if difference.too_few else "unclear"


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


def _labels(folders: Sequence[Path]) -> list[str]:
    """Short names that tell the runs apart: the folder's name, else its path, else a number behind it."""
    names = [folder.resolve().name for folder in folders]
    names = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    return [f"{name} ({names[:k].count(name) + 1})" if names[:k].count(name) else name for k, name in enumerate(names)]


def _write(
    out: Path,
    result: ComparisonResult,
    runs: Sequence[ScoredRun],
    margins: Mapping[str, float],
    minimum_patients: int,
    metrics: Sequence[str],
    trials: int,
    seed: int,
) -> None:
    """Write comparison.json; a finished comparison of the same content is left as it is."""
    config: dict[str, Any] = {
        "runs": [str(run.folder) for run in runs],
        # A run that was scored again is another comparison, though its folder has the same name.
        "content": [hashlib.sha256(read_bytes(run.folder / INDEX)).hexdigest()[:16] for run in runs],
        "noninferior": dict(margins),
        "minimum_patients": minimum_patients,
        "metrics": list(metrics),
        "trials": trials,
    }
    if finished(out, config, seed=seed):
        return
    with Run.open(out, config, seed=seed) as run:
        run.write(RESULT, result.to_json())


Verdict = Literal["better", "worse", "unclear", "too few", "equal", "undefined"]
_MARKS = {"non-inferior": "PASS", "not shown": "FAIL", "not established": "NOT ESTABLISHED"}
# Wide enough that no name is broken; a table takes what it needs.
WIDTH = 400


@dataclass(frozen=True)
class RunValue:
    """One metric of one run.

    Args:
        value: Over the run; not-a-number when no study has one.
        low: Lower end of its interval by patient.
        high: Upper end.
        n: Studies that entered it.
        undefined: Studies without a value.
        rank: 1 for the best run, ties share the better rank; None without a value.
    """

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
    """One metric over all runs.

    Args:
        metric: Name.
        direction: Whether higher or lower is better.
        signature: How it was computed, the same in every run.
        values: By label of the run, the baseline first.
        against: Every other run against the baseline.
    """

    metric: str
    direction: Literal["higher", "lower"]
    signature: str
    values: Mapping[str, RunValue]
    against: tuple[BaselineComparison, ...]


@dataclass(frozen=True)
class Gate:
    """A demand that a run must not be worse than the baseline by more than a margin."""

    run: str
    verdict: NonInferiority


@dataclass(frozen=True)
class ComparisonResult:
    """The whole comparison.

    Args:
        runs: Labels, the baseline first.
        folders: Where they are.
        n: Studies.
        patients: Patients; the unit that is drawn and swapped.
        tests: Number of tests that Holm's correction counts.
        alpha: Level of the verdicts after correction.
        metrics: One record a metric, in the order of the baseline.
        refused: Metric → why it was not compared.
        gates: Demands of non-inferiority and what became of them.
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
        return all(gate.verdict.shown for gate in self.gates)

    def to_json(self) -> dict[str, Any]:
        """As it is written into comparison.json."""
        return {
            "runs": list(self.runs),
            "folders": list(self.folders),
            "baseline": self.runs[0],
            "n": self.n,
            "patients": self.patients,
            "tests": self.tests,
            "alpha": self.alpha,
            "ok": self.ok,
            "metrics": {one.metric: _metric_json(one) for one in self.metrics},
            "refused": dict(self.refused),
            "interval": METHOD,
            "gates": [{"run": gate.run, **plain(gate.verdict), "shown": gate.verdict.shown} for gate in self.gates],
        }

    def text(self) -> str:
        """Tables and sentences for a terminal, without a final newline."""
        parts = [_head(self)]
        if len(self.runs) > 2:
            parts.append(_ranking(self))
        parts += [_versus(self, run, number) for number, run in enumerate(self.runs[1:])]
        parts += [f"not compared: {metric} ({why})" for metric, why in self.refused.items()]
        for gate in self.gates:
            parts.append(f"gate {_MARKS[gate.verdict.verdict]} for {gate.run}: {gate.verdict.sentence}")
        return "\n".join(parts)


def _metric_json(one: MetricComparison) -> dict[str, Any]:
    return {
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


def _head(result: ComparisonResult) -> str:
    of = "1 patient" if result.patients == 1 else f"{result.patients} patients"
    tests = "1 test" if result.tests == 1 else f"{result.tests} tests"
    p = f" p: permutation by patient, after Holm over {tests}." if result.tests else ""
    return f"{result.n} studies of {of}; baseline {result.runs[0]}. Intervals: 95 %, {METHOD}.{p}"


def _versus(result: ComparisonResult, run: str, number: int) -> str:
    """One table; metrics without a difference to speak of are only named."""
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
                _p(item.p_holm),
                item.verdict,
                "–" if study is None else f"{study.win}/{study.tie}/{study.lose}",
            ]
        )
    head = ["metric", "baseline", run, "difference", "p", "verdict", "win/tie/lose"]
    lines = [_table(f"{run} against {result.runs[0]}", head, rows)] if rows else [f"{run} against {result.runs[0]}"]
    told = {"equal": "the same counts on every study", "undefined": "no value in one of the two"}
    lines += [f"{told[kind]}: {', '.join(names)}" for kind, names in silent.items() if names]
    return "\n".join(lines)


def _ranking(result: ComparisonResult) -> str:
    rows = [
        [one.metric, *(f"{_number(value.value)} ({value.rank or '–'})" for value in one.values.values())]
        for one in result.metrics
    ]
    return _table("values and ranks", ["metric", *result.runs], rows)


def _number(value: float, sign: str = "") -> str:
    return "–" if math.isnan(value) else f"{value:{sign}.4f}"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "<0.0001" if value < 0.0001 else f"{value:.4f}"


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
