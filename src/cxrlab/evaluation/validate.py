"""Metrics measured: against radiologists, ranking cases, or reports whose errors are known.

validation.json   the benchmark's figures, by metric
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cxrlab.core.files import read_json
from cxrlab.core.json_form import plain
from cxrlab.core.runs import Run, finished
from cxrlab.core.tables import Table
from cxrlab.evaluation.config import ValidateConfig

VALIDATION = "validation.json"
BENCHMARKS = Table(
    "benchmark",
    {
        "radpref": "cxrlab.evaluation.radpref:validate_radpref",
        "radjudge": "cxrlab.evaluation.radjudge:validate_radjudge",
        "rexval": "cxrlab.evaluation.rexval:validate_rexval",
        "phantom": "cxrlab.evaluation.validate:validate_phantom",
    },
)


def run_validation(config: ValidateConfig, out: Path | None = None) -> Mapping[str, Any]:
    """Run a benchmark and write RUN/validation.json; returns its content.

    A finished run with the same settings is left as it is.
    """
    if out is not None and finished(out, config, seed=config.seed):
        stored: Mapping[str, Any] = read_json(out / VALIDATION)
        return stored
    found: Mapping[str, Any] = plain(BENCHMARKS.load(config.benchmark)(config))
    if out is not None:
        # Opened late: a benchmark that cannot be read leaves no folder behind.
        with Run.open(out, config, seed=config.seed) as run:
            run.write(VALIDATION, found)
    return found


def validate_phantom(config: ValidateConfig) -> dict[str, Any]:
    """Every metric against reports with drawn errors, and the table of what must move it and what must not."""
    from cxrlab.evaluation.error_benchmark import draw_cases, error_benchmark
    from cxrlab.evaluation.sensitivity import sensitivity
    from cxrlab.metrics.families import families, metric_names

    wanted = config.metrics or None
    chosen, names = families(wanted), metric_names(wanted)
    cases = draw_cases(config.seed, config.n)
    found = error_benchmark(cases, chosen, seed=config.seed, trials=config.trials, names=names).to_json()
    moved = sensitivity(chosen, seed=config.seed, n=max(config.n // 5, 1), names=names)
    return {**found, "sensitivity": moved.to_json()}


def validation_text(found: Mapping[str, Any]) -> str:
    """What a validation came to, best metric first, for a terminal."""
    return "\n".join(_ranked(found) if found["benchmark"] == "radjudge" else _correlated(found))


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
        yield f"{name:<{width}}  {_tau(row, ''):<24}  {last}".rstrip()
    ceiling = found.get("ceiling", {}).get("leave_one_out_tau")
    if ceiling:
        yield f"ceiling, one rater against the others: {', '.join(map(_number, ceiling))}"
    yield from _rater_lines(found.get("raters", {}))
    yield from _sensitivity_lines(found.get("sensitivity", {}))


def _rater_lines(raters: Mapping[str, Any]) -> Iterator[str]:
    tables = {"": raters} if "by_rater" in raters else raters
    for which, table in tables.items():
        for rater, row in table["by_rater"].items():
            who = f"{which} {rater}".strip()
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
    return not (name.startswith("errors.") and name.count(".") > 1)


def _order(tau: float | None) -> float:
    return -2.0 if tau is None else tau


def _any_has(metrics: Mapping[str, Mapping[str, Any]], key: str) -> bool:
    return any(key in row for row in metrics.values())


def _tau(row: Mapping[str, Any], suffix: str) -> str:
    return f"{_number(row[f'tau{suffix}'])} [{_number(row[f'low{suffix}'])}, {_number(row[f'high{suffix}'])}]"


def _p(value: float | None) -> str:
    return "p undefined" if value is None else "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
