"""Validate metrics against radiologists' ratings, ranking cases, or reports with known errors.

    validation.json   the benchmark's figures, by metric
    judged.jsonl      the answers of judges by language models for each pair, where there are any

With judges also answers.sqlite and requests.jsonl, see `models.llm_cache`: a resumed run asks nothing twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cxrlab.core.egress import EgressData
from cxrlab.core.files import read_json
from cxrlab.core.headline_metrics import is_error_count
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.llm_requests import llm_operational_fields
from cxrlab.core.registry import Registry
from cxrlab.core.runs import Run, finished
from cxrlab.core.tables import Column, Interval, Table
from cxrlab.core.terminal import track
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.select_metrics import (
    OpenJudge,
    build_extra_families,
    collect_evidence,
    count_answers,
    evidence_for_pair,
    format_unreadable_answers,
    list_given_families,
    open_judges,
    select_metrics,
    separate_judges,
)
from cxrlab.metrics.base import Family, Matrix, Tally, families
from cxrlab.metrics.report_pairs import Batch
from cxrlab.metrics.statistics.agreement import compare_with_each_rater

VALIDATION, JUDGED = "validation.json", "judged.jsonl"
# Each row makes a `Benchmark` from the settings.
BENCHMARKS = Registry(
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
    """Pairs of known quality; constructed from the settings, it has read its files."""

    @property
    def batch(self) -> Batch:
        """The pairs."""
        ...

    def measure(
        self,
        names: Sequence[str] | None = None,
        judges: Sequence[OpenJudge] = (),
        extra: Sequence[Family] = (),
    ) -> dict[str, Any]:
        """The content of `validation.json`.

        Args:
            names: Metrics that need only two texts; the default ones when None.
            judges: Language models that judge too.
            extra: Families of metrics with the user's graphs and weights.
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
    select_metrics(names, list_given_families(config), beside_judges=bool(judges))
    benchmark: Benchmark = BENCHMARKS.load(config.benchmark)(config)
    # Opened late: a wrong name, or a benchmark that cannot be read, leaves no folder behind. But before judges are
    # asked: their answers are stored in it as they come.
    source = EgressData(str(config.root or config.benchmark), config.benchmark in SYNTHETIC)
    with open_judges(judges, config.llm, [source], out, config.judging) as opened:
        extra = build_extra_families(config)
        if out is None:
            return _measure(benchmark, names, opened, extra)[0]
        with Run.open(out, config, seed=config.seed, operational=llm_operational_fields()) as run:
            figures, judged = _measure(benchmark, names, opened, extra)
            if opened:
                run.write(JUDGED, judged)
            run.write(VALIDATION, figures)
    return figures


def _measure(
    benchmark: Benchmark, names: Sequence[str] | None, judges: Sequence[OpenJudge], extra: Sequence[Family]
) -> tuple[Mapping[str, Any], str]:
    """The content of both files."""
    figures = benchmark.measure(names, judges, extra)
    evidence = collect_evidence(judges, benchmark.batch)
    lines = [
        dumps({"id": pair.id, "judged": evidence_for_pair(evidence, place)})
        for place, pair in enumerate(benchmark.batch.pairs)
    ]
    content: Mapping[str, Any] = plain({**figures, "judges": count_answers(evidence)})
    return content, "".join(f"{line}\n" for line in lines)


def score_pairs(
    batch: Batch,
    names: Sequence[str] | None = None,
    judges: Sequence[OpenJudge] = (),
    extra: Sequence[Family] = (),
) -> dict[str, Matrix]:
    """Metric → value of each pair [N], negated where lower is better; not-a-number where undefined.

    Metrics of the families `extra` and of judges follow those of `names`. A metric whose value for a single pair means
    nothing is left out.
    """
    chosen = select_metrics(names, extra, beside_judges=bool(judges))
    wanted = (*chosen.ready, *chosen.extra)
    counting = [*families(chosen.ready), *extra]
    tallies = [tally for family in track(counting, "scoring") for tally in compute_tallies([family], batch, wanted)]
    tallies += [tally for judge in track(judges, "asking judges") for tally in judge.tallies(batch)]
    return {tally.metric.name: higher_is_better(tally) for tally in tallies if tally.metric.by_pair}


def compare_with_raters(ratings: Matrix, raters: Sequence[str], name: str, judged: Matrix) -> dict[str, Any]:
    """The table of one judge, with the mean over the raters.

    Args:
        ratings: [pairs, raters], at least two raters; not-a-number where one did not rate.
        name: The metric that judges.
        judged: Its values [pairs] in the raters' unit; a pair without one stays out and is not counted in `n`.
    """
    rows = [asdict(one) for one in compare_with_each_rater(ratings, judged)]
    means = {key: float(np.mean([row[key] for row in rows])) for key in ("rater_difference", "judge_difference")}
    by_rater = {raters[row["rater"]]: {key: value for key, value in row.items() if key != "rater"} for row in rows}
    return {"judge": name, "by_rater": by_rater, "mean": means}


def validation_parts(found: Mapping[str, Any]) -> list[str | Table]:
    """The figures of a validation: a table with the best metric first, then what else was measured."""
    parts = _case_parts(found) if found["benchmark"] == "radjudge" else _correlation_parts(found)
    return [*parts, *format_unreadable_answers(found.get("judges", {}))]


def _case_parts(found: Mapping[str, Any]) -> Iterator[str | Table]:
    metrics = found["metrics"]
    rows = []
    for name in sorted(_hide_error_counts(metrics), key=lambda name: -metrics[name]["passed"]):
        row = metrics[name]
        wrong = ", ".join(case for case, right in row["cases"].items() if not right)
        few = wrong if 0 < wrong.count(", ") + bool(wrong) <= 10 else ""
        rows.append((name, f"{row['passed']} of {row['of']}", row["passed"], row["of"], wrong, few))
    columns = (
        Column("metric"),
        Column("right", only="text"),
        Column("passed", only="data"),
        Column("of", only="data"),
        Column("wrong", only="data"),
        Column("wrong", only="text"),
    )
    yield Table(columns, tuple(rows))
    yield f"values within {found['tie']:g} of each other count as equal"


def _correlation_parts(found: Mapping[str, Any]) -> Iterator[str | Table]:
    metrics = found["metrics"]
    titles = {"tau_significant": "tau, significant errors", "preference_accuracy": "right preferences"}
    extra = [key for key in titles if any(key in row for row in metrics.values())][:1]
    pairs = found.get("n")
    # A metric without an order (null) comes last.
    taus = {name: -2.0 if row["tau"] is None else row["tau"] for name, row in metrics.items()}
    rows = []
    for name in sorted(_hide_error_counts(metrics), key=lambda name: -taus[name]):
        row = metrics[name]
        last = [_tau(row, "_significant") if key == "tau_significant" else row[key] for key in extra]
        # The pairs that a metric leaves out may be the hard ones.
        n = row.get("n")
        share = f"{n:,} of {pairs:,}" if n is not None and pairs is not None and n < pairs else ""
        rows.append((name, _tau(row, ""), *last, n, share))
    more = [Column(titles[key], key) for key in extra]
    yield Table((Column("metric"), Column("tau"), *more, Column("n", only="data"), _N_OF), tuple(rows))
    if ceiling := found.get("ceiling", {}).get("leave_one_out_tau"):
        yield f"ceiling, one rater against the others: {', '.join(map(_number, ceiling))}"
    raters = found.get("raters", {})
    for which, table in _tables({key: table for key, table in raters.items() if key != "judges"}):
        for rater, row in table["by_rater"].items():
            who = f"{which} errors, {_who(rater)}" if which else _who(rater)
            yield (
                f"{who}: {_number(row['rater_difference'])} from the other raters on average, {table['judge']} "
                f"{_number(row['judge_difference'])} ({_p(row['p'])})"
            )
    yield from _format_judges(raters.get("judges", {}), found.get("differences", {}))
    if rows := found.get("sensitivity", {}).get("rows", {}):
        yield "sensitivity: does each metric fall where something is made wrong, and stay where nothing is?"
        for name in _hide_error_counts(next(iter(rows.values()))["metrics"]):
            wrong = [edit for edit, row in rows.items() if not row["metrics"][name]["right"]]
            yield f"  {name}: {'right' if not wrong else 'wrong at ' + ', '.join(wrong)}"


_N_OF = Column("n", only="text")


def _format_judges(judges: Mapping[str, Any], differences: Mapping[str, Any]) -> Iterator[str]:
    """Judges by language models side by side: beside each rater, and against the first of them."""
    if judges:
        yield (
            "judges in place of each rater, one rater left out: mean absolute difference to the others beside the "
            "raters' own; judge minus rater, with a paired t-test, for each (below 0: the judge is closer)"
        )
    tables = [table for found in judges.values() for _, table in _tables(found)]
    width = max((len(table["judge"]) for table in tables), default=0)
    for table in tables:
        tests = []
        for rater, row in table["by_rater"].items():
            judge, other = row["judge_difference"], row["rater_difference"]
            gap = "–" if judge is None or other is None else f"{judge - other:+.3f}"
            tests.append(f"{_who(rater)} {gap} ({_p(row['p'])})")
        mean, least = table["mean"], min(row["n"] for row in table["by_rater"].values())
        both = f"{_number(mean['judge_difference'])} beside {_number(mean['rater_difference'])}"
        yield f"  {table['judge']:<{width}}  {both}  n {least}  {', '.join(tests)}"
    for name, row in differences.items():
        for which in (key for key in ("total", "significant") if key in row):
            change = row[which]
            ends = f"[{_number(change['low'])}, {_number(change['high'])}]"
            yield f"{name} above {row['above']}, tau of {which} errors: {_number(change['difference'])} {ends}"


def _tables(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What was counted → the table of the raters; a benchmark with one scale has one table."""
    yield from [("", found)] if "by_rater" in found else found.items()


def _hide_error_counts(names: Iterable[str]) -> list[str]:
    """Without the twelve counts, each of one kind of error alone, which would fill a terminal."""
    return [name for name in names if not is_error_count(name)]


def _tau(row: Mapping[str, Any], suffix: str) -> Interval:
    return Interval(row[f"tau{suffix}"], row[f"low{suffix}"], row[f"high{suffix}"])


def _who(rater: str) -> str:
    return f"rater {rater}" if rater.isdigit() else rater


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
