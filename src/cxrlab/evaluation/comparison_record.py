"""What a comparison of scored runs came to, and how it is told to a person."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cxrlab.core.headlines import ARROWS
from cxrlab.core.json_form import plain
from cxrlab.metrics.statistics.bootstrap import METHOD
from cxrlab.metrics.statistics.counts import McNemar
from cxrlab.metrics.statistics.noninferiority import NonInferiority
from cxrlab.metrics.statistics.paired import PairedDifference

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
class Against:
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
    against: tuple[Against, ...]


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
