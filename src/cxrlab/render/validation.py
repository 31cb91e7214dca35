"""The section of a page on metrics that were measured themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, bar, section, table, text


def validation(runs: Sequence[RunFolder]) -> str:
    """Each metric's agreement with a benchmark, the best first, beside what the raters reach among themselves."""
    parts = [part for run in runs if (part := _benchmark(run.validation))]
    note = "Kendall's τ-b against judgements or counts of others; of ranking cases, how many are right."
    return section("Metrics measured", *parts, note=note)


def _benchmark(found: Mapping[str, Any]) -> str:
    metrics = found.get("metrics")
    if not isinstance(metrics, Mapping) or not metrics:
        return ""
    # One of the twelve counts measures one kind of error alone; they stay in the file.
    names = [name for name in metrics if not (name.startswith("errors.") and name.count(".") > 1)]
    ranked = any("passed" in row for row in metrics.values())
    names.sort(key=lambda name: -_merit(metrics[name]))
    rows = [_passed(name, metrics[name]) if ranked else _tau(name, metrics[name]) for name in names]
    head = ["metric", "", "right"] if ranked else ["metric", "", "τ-b", "interval", "n"]
    ceiling = (found.get("ceiling") or {}).get("leave_one_out_tau") or ()
    told = f"<p>One rater against the others: {text(list(ceiling))}.</p>" if ceiling else ""
    return f"<h3>{text(found.get('benchmark'))}</h3>{table(head, rows, len(head) - 2)}{told}"


def _merit(row: Mapping[str, Any]) -> float:
    value = row.get("passed", row.get("tau"))
    return float(value) if isinstance(value, (int, float)) else -2.0


def _passed(name: str, row: Mapping[str, Any]) -> list[str]:
    passed, of = int(row.get("passed", 0)), int(row.get("of", 0))
    return [text(name), bar(passed / of if of else 0.0), f"{passed} of {of}"]


def _tau(name: str, row: Mapping[str, Any]) -> list[str]:
    tau, low, high = (row.get(key) for key in ("tau", "low", "high"))
    ends = UNKNOWN if low is None or high is None else f"{low:.3f} to {high:.3f}"
    value = UNKNOWN if tau is None else f"{tau:.3f}"
    return [text(name), bar(tau or 0.0), value, ends, text(row.get("n"))]
