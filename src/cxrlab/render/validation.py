"""Sections on metrics that were measured themselves, and on judges by language models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.metric_names import is_error_count
from cxrlab.render.components import Cell, Table, figure, interval, number, p_value, part
from cxrlab.render.result_files import VALIDATION
from cxrlab.render.run_folder import RunFolder

_COUNTED = ("total", "significant")


@dataclass(frozen=True)
class Judges:
    """Judges by language models."""

    of: str  # Name of the run, where a page has several
    answers: Table  # What could be read of each judge's answers
    raters: Table  # Each judge in the place of each rater
    differences: Table  # Further judges against the first


@dataclass(frozen=True)
class Validation:
    """Metrics measured on one benchmark, beside what raters reach among themselves."""

    benchmark: Any
    metrics: Table
    ceiling: Sequence[float]
    judges: Judges | None


def validation(runs: Sequence[RunFolder]) -> tuple[Validation, ...]:
    """Each metric's agreement with a benchmark, the best first."""
    return tuple(_benchmark(run.result(VALIDATION)) for run in runs if run.result(VALIDATION).get("metrics"))


def _benchmark(found: Mapping[str, Any]) -> Validation:
    metrics = found["metrics"]
    names = [name for name in metrics if not is_error_count(name)]  # the twelve counts stay in the file
    names.sort(key=lambda name: -_merit(metrics[name]))
    if any("passed" in row for row in metrics.values()):
        table = Table(["metric", "", "right"], [_passed(name, metrics[name]) for name in names], words=2)
    else:
        significant = any("tau_significant" in row for row in metrics.values())
        more = ["τ-b, significant", "interval"] if significant else []
        rows = [_tau(name, metrics[name], significant) for name in names]
        table = Table(["metric", "", "τ-b", "interval", *more, "n"], rows, words=2)
    ceiling = part(found, "ceiling").get("leave_one_out_tau") or ()
    return Validation(found.get("benchmark"), table, list(ceiling), judges(found))


def _merit(row: Mapping[str, Any]) -> float:
    value = number(row.get("passed", row.get("tau")))
    return -2.0 if value is None else value


def _passed(name: str, row: Mapping[str, Any]) -> list[Any]:
    passed, of = int(row.get("passed", 0)), int(row.get("of", 0))
    return [name, Cell(bar=passed / of if of else 0.0), f"{passed} of {of}"]


def _tau(name: str, row: Mapping[str, Any], significant: bool) -> list[Any]:
    """A row; against the significant errors too, where the benchmark counts them apart."""
    cells = [name, Cell(bar=row.get("tau") or 0.0), figure(row.get("tau")), interval(row)]
    if significant:
        ends = {key: row.get(f"{key}_significant") for key in ("low", "high")}
        cells += [figure(row.get("tau_significant")), interval(ends)]
    return [*cells, row.get("n")]


def judges(found: Mapping[str, Any], of: str = "") -> Judges | None:
    """The judges of validation.json or scores.json; None where there are none."""
    rows = part(found, "judges")
    if not rows:
        return None
    answers = [_answers(name, row) for name, row in rows.items()]
    tables = list(_rater_tables(part(found, "raters", "judges")))
    raters: list[list[Any]] = []
    for name, one in tables:
        mean = [figure(part(one, "mean").get(key)) for key in ("judge_difference", "rater_difference")]
        raters.append([Cell(name, strong=True), "mean", *mean, "", "", ""])
        for rater, row in one["by_rater"].items():
            figures = [figure(row.get(key)) for key in ("judge_difference", "rater_difference", "t")]
            raters.append(["", rater, *figures, p_value(row.get("p")), row.get("n")])
    gaps = [
        [name, row.get("above"), kind, figure(row[kind].get("difference"), "+"), interval(row[kind], "+")]
        for name, row in part(found, "differences").items()
        for kind in _COUNTED
        if kind in row
    ]
    return Judges(
        of,
        Table(["judge", "asked", "read", "in part", "not read", "why not"], answers),
        Table(["judge", "rater", "judge’s difference", "rater’s difference", "t", "p", "n"], raters, words=2),
        Table(["judge", "above", "errors", "difference of τ-b", "interval"], gaps, words=3),
    )


def _answers(name: str, row: Mapping[str, Any]) -> list[Any]:
    reasons = "; ".join(f"{count} × {reason}" for reason, count in part(row, "reasons").items())
    return [
        Cell(name, css="name"),
        *(row.get(key) for key in ("asked", "parsed", "partial", "failed")),
        reasons or None,
    ]


def _rater_tables(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A judge and its raters: one table for a benchmark with one scale, two where errors are counted."""
    for name, row in found.items():
        for one in [row] if "by_rater" in row else [row[kind] for kind in _COUNTED if kind in row]:
            yield str(one.get("judge", name)), one
