"""Metrics measured: against radiologists, ranking cases, or reports whose errors are known.

validation.json   the benchmark's figures, by metric
judged.jsonl      what judges by language models said of each pair, where there are any

With judges also answers.sqlite and requests.jsonl, see `models.asked_once`: a run that was stopped asks nothing twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cxrlab.core.endpoints import EgressData
from cxrlab.core.files import read_json
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.llm import llm_operational_fields
from cxrlab.core.metric_names import is_error_count
from cxrlab.core.runs import Run, finished
from cxrlab.core.tables import Table
from cxrlab.core.terminal import track
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.metric_choice import (
    OpenJudge,
    collect_evidence,
    count_answers,
    evidence_for_pair,
    format_unreadable_answers,
    open_judges,
    select_metrics,
    separate_judges,
)
from cxrlab.metrics.families import families, metric_names
from cxrlab.metrics.pairs import Batch
from cxrlab.metrics.tally import Family, Matrix, Tally

VALIDATION, JUDGED = "validation.json", "judged.jsonl"
# Each row makes a `Benchmark` from the settings.
BENCHMARKS = Table(
    "benchmark",
    {
        "radpref": "cxrlab.evaluation.published_benchmarks:RadPrefBenchmark",
        "radjudge": "cxrlab.evaluation.published_benchmarks:RadJudgeBenchmark",
        "rexval": "cxrlab.evaluation.published_benchmarks:RexValBenchmark",
        "phantom": "cxrlab.evaluation.phantom_benchmark:PhantomBenchmark",
    },
)
SYNTHETIC = ("phantom",)  # the others are reports of patients


class Benchmark(Protocol):
    """Pairs whose merit is known; made from the settings, it has read its files."""

    @property
    def batch(self) -> Batch:
        """The pairs."""
        ...

    def measured(self, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = ()) -> dict[str, Any]:
        """The figures of `validation.json`.

        Args:
            names: Names or groups of metrics; the default ones when None.
            judges: Judges by language models, open.
        """
        ...


def run_validation(config: ValidateConfig, out: Path | None = None) -> Mapping[str, Any]:
    """Run a benchmark and write RUN/validation.json; returns its content.

    A finished run with the same settings is left as it is.
    """
    if out is not None and finished(out, config, seed=config.seed, operational=llm_operational_fields()):
        stored: Mapping[str, Any] = read_json(out / VALIDATION)
        return stored
    names, judges = separate_judges(config.metrics or None)
    select_metrics(names, beside_judges=bool(judges))
    benchmark: Benchmark = BENCHMARKS.load(config.benchmark)(config)
    # Opened late: a wrong name, or a benchmark that cannot be read, leaves no folder behind. But before judges are
    # asked: their answers are kept in it as they come.
    with open_judges(judges, config.llm, [_shown(config)], out, config.judging) as opened:
        if out is None:
            return _measured(benchmark, names, opened)[0]
        with Run.open(out, config, seed=config.seed, operational=llm_operational_fields()) as run:
            found, judged = _measured(benchmark, names, opened)
            if opened:
                run.write(JUDGED, judged)
            run.write(VALIDATION, found)
    return found


def _measured(
    benchmark: Benchmark, names: Sequence[str] | None, judges: Sequence[OpenJudge]
) -> tuple[Mapping[str, Any], str]:
    """The content of both files."""
    found = benchmark.measured(names, judges)
    evidence = collect_evidence(judges, benchmark.batch)
    lines = [
        dumps({"id": pair.id, "judged": evidence_for_pair(evidence, place)})
        for place, pair in enumerate(benchmark.batch.pairs)
    ]
    told: Mapping[str, Any] = plain({**found, "judges": count_answers(evidence)})
    return told, "".join(f"{line}\n" for line in lines)


def _shown(config: ValidateConfig) -> EgressData:
    return EgressData(str(config.root or config.benchmark), config.benchmark in SYNTHETIC)


def score_pairs(
    batch: Batch, names: Sequence[str] | None = None, judges: Sequence[OpenJudge] = ()
) -> dict[str, Matrix]:
    """Metric → value of each pair [N], negated where lower is better; not-a-number where undefined.

    A metric whose value for a single pair means nothing is left out.

    Args:
        batch: The pairs.
        names: Names or groups of metrics; the default ones when None.
        judges: Judges by language models, whose metrics follow.
    """
    wanted = metric_names(names)
    tallies = [
        tally for family in track(families(names), "scoring") for tally in compute_tallies([family], batch, wanted)
    ]
    tallies += [tally for judge in track(judges, "asking judges") for tally in judge.tallies(batch)]
    return {tally.metric.name: higher_is_better(tally) for tally in tallies if tally.metric.by_pair}


def compare_with_raters(ratings: Matrix, raters: Sequence[str], name: str, judged: Matrix) -> dict[str, Any]:
    """The table of one judge, with the mean over the raters.

    Args:
        ratings: [pairs, raters], at least two raters; not-a-number where one did not rate.
        raters: Their names.
        name: The metric that sits in their seats.
        judged: Its values [pairs] in the raters' unit; a pair without one stays out, as `n` tells.
    """
    from cxrlab.metrics.statistics.agreement import leave_one_rater_out

    rows = [asdict(one) for one in leave_one_rater_out(ratings, judged)]
    means = {key: float(np.mean([row[key] for row in rows])) for key in ("rater_difference", "judge_difference")}
    by_rater = {raters[row["rater"]]: {key: value for key, value in row.items() if key != "rater"} for row in rows}
    return {"judge": name, "by_rater": by_rater, "mean": means}


def format_validation(found: Mapping[str, Any]) -> str:
    """What a validation came to, best metric first, for a terminal."""
    lines = _ranked(found) if found["benchmark"] == "radjudge" else _correlated(found)
    return "\n".join([*lines, *format_unreadable_answers(found.get("judges", {}))])


def _ranked(found: Mapping[str, Any]) -> Iterator[str]:
    metrics = found["metrics"]
    width = max(map(len, metrics), default=6)
    for name in sorted(filter(_whole, metrics), key=lambda name: -metrics[name]["passed"]):
        row = metrics[name]
        wrong = [case for case, right in row["cases"].items() if not right]
        failed = f"   wrong: {', '.join(wrong)}" if 0 < len(wrong) <= 10 else ""
        yield f"{name:<{width}}  {row['passed']:3d} of {row['of']}{failed}"
    yield f"values within {found['tie']:g} of each other count as equal"


def _correlated(found: Mapping[str, Any]) -> Iterator[str]:
    metrics = found["metrics"]
    width = max([6, *map(len, metrics)])
    extra = next((key for key in ("tau_significant", "preference_accuracy") if _any_has(metrics, key)), None)
    title = {"tau_significant": "tau, significant errors", "preference_accuracy": "right preferences"}.get(
        extra or "", ""
    )
    yield f"{'metric':<{width}}  {'tau':<24}  {title}"
    # A metric without an order (null) comes last.
    for name in sorted(filter(_whole, metrics), key=lambda name: -_order(metrics[name]["tau"])):
        row = metrics[name]
        last = "" if extra is None else _tau(row, "_significant") if extra == "tau_significant" else _number(row[extra])
        yield f"{name:<{width}}  {_tau(row, ''):<24}  {last:<24}  {_share(row, found)}".rstrip()
    ceiling = found.get("ceiling", {}).get("leave_one_out_tau")
    if ceiling:
        yield f"ceiling, one rater against the others: {', '.join(map(_number, ceiling))}"
    raters = found.get("raters", {})
    yield from _rater_lines({key: table for key, table in raters.items() if key != "judges"})
    yield from _judge_lines(raters.get("judges", {}), found.get("differences", {}))
    yield from _sensitivity_lines(found.get("sensitivity", {}))


def _judge_lines(judges: Mapping[str, Any], differences: Mapping[str, Any]) -> Iterator[str]:
    """Judges by language models side by side: in each rater's seat, and against the first of them."""
    if judges:
        yield (
            "judges in each rater's seat, one rater left out: mean absolute difference to the others beside the "
            "raters' own; judge minus rater, with a paired t-test, for each (below 0: the judge is closer)"
        )
    width = max((len(table["judge"]) for found in judges.values() for _, table in _tables(found)), default=0)
    for found in judges.values():
        for _, table in _tables(found):
            rows, mean = table["by_rater"], table["mean"]
            tests = ", ".join(f"{_who(rater)} {_gap(row)} ({_p(row['p'])})" for rater, row in rows.items())
            least = min(row["n"] for row in rows.values())
            both = f"{_number(mean['judge_difference'])} beside {_number(mean['rater_difference'])}"
            yield f"  {table['judge']:<{width}}  {both}  n {least}  {tests}"
    for judge, row in differences.items():
        for which in (key for key in ("total", "significant") if key in row):
            gap = row[which]
            ends = f"[{_number(gap['low'])}, {_number(gap['high'])}]"
            yield f"{judge} above {row['above']}, tau of {which} errors: {_number(gap['difference'])} {ends}"


def _tables(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What was counted → the table of the raters; a benchmark with one scale has one table."""
    yield from [("", found)] if "by_rater" in found else found.items()


def _rater_lines(raters: Mapping[str, Any]) -> Iterator[str]:
    for which, table in _tables(raters):
        for rater, row in table["by_rater"].items():
            who = f"{which} errors, {_who(rater)}" if which else _who(rater)
            yield (
                f"{who}: {_number(row['rater_difference'])} from the other raters on average, {table['judge']} "
                f"{_number(row['judge_difference'])} ({_p(row['p'])})"
            )


def _sensitivity_lines(table: Mapping[str, Any]) -> Iterator[str]:
    rows = table.get("rows", {})
    if not rows:
        return
    yield "sensitivity: does each metric fall where something is made wrong, and stay where nothing is?"
    for name in filter(_whole, next(iter(rows.values()))["metrics"]):
        wrong = [edit for edit, row in rows.items() if not row["metrics"][name]["right"]]
        yield f"  {name}: {'right' if not wrong else 'wrong at ' + ', '.join(wrong)}"


def _whole(name: str) -> bool:
    """False for one of the twelve counts, which measures one kind of error alone and fills a terminal."""
    return not is_error_count(name)


def _order(tau: float | None) -> float:
    return -2.0 if tau is None else tau


def _any_has(metrics: Mapping[str, Mapping[str, Any]], key: str) -> bool:
    return any(key in row for row in metrics.values())


def _tau(row: Mapping[str, Any], suffix: str) -> str:
    return f"{_number(row[f'tau{suffix}'])} [{_number(row[f'low{suffix}'])}, {_number(row[f'high{suffix}'])}]"


def _share(row: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """How many pairs a metric has a value for, where it has not one for each: those left out may be the hard ones."""
    known, pairs = row.get("n"), found.get("n")
    return f"n {known:,} of {pairs:,}" if known is not None and pairs is not None and known < pairs else ""


def _who(rater: str) -> str:
    return f"rater {rater}" if rater.isdigit() else rater


def _gap(row: Mapping[str, Any]) -> str:
    judge, rater = row["judge_difference"], row["rater_difference"]
    return "–" if judge is None or rater is None else f"{judge - rater:+.3f}"


def _p(value: float | None) -> str:
    return "p undefined" if value is None else "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def compute_tallies(families: Sequence[Family], batch: Batch, names: Collection[str] | None = None) -> list[Tally]:
    """The wanted metrics of these families over a batch; all of them when `names` is None."""
    tallies = (tally for family in families for tally in family.tallies(batch))
    return [tally for tally in tallies if names is None or tally.metric.name in names]


def higher_is_better(tally: Tally) -> Matrix:
    """The value of each pair, turned so that more is better [N]; not-a-number where undefined."""
    return tally.by_pair if tally.metric.direction == "higher" else -tally.by_pair
