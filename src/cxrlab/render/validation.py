"""The section of a page on metrics that were measured themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.core.headlines import one_kind
from cxrlab.render.folder import RunFolder
from cxrlab.render.html import bar, ends, figure, section, table, text
from cxrlab.render.judges import judges


def validation(runs: Sequence[RunFolder]) -> str:
    """Each metric's agreement with a benchmark, the best first, beside what the raters reach among themselves."""
    parts = [part for run in runs if (part := _benchmark(run.validation))]
    note = "Kendall's τ-b against judgements or counts of others; of ranking cases, how many are right."
    return section("Metrics measured", *parts, note=note)


def _benchmark(found: Mapping[str, Any]) -> str:
    metrics = found.get("metrics")
    if not isinstance(metrics, Mapping) or not metrics:
        return ""
    names = [name for name in metrics if not one_kind(name)]  # the twelve counts stay in the file
    ranked = any("passed" in row for row in metrics.values())
    names.sort(key=lambda name: -_merit(metrics[name]))
    significant = any("tau_significant" in row for row in metrics.values())
    more = ["τ-b, significant", "interval"] if significant else []
    head = ["metric", "", "right"] if ranked else ["metric", "", "τ-b", "interval", *more, "n"]
    rows = [_passed(name, metrics[name]) if ranked else _tau(name, metrics[name], significant) for name in names]
    ceiling = (found.get("ceiling") or {}).get("leave_one_out_tau") or ()
    told = f"<p>One rater against the others: {text(list(ceiling))}.</p>" if ceiling else ""
    return f"<h3>{text(found.get('benchmark'))}</h3>{table(head, rows, len(head) - 2)}{told}{judges(found)}"


def _merit(row: Mapping[str, Any]) -> float:
    value = row.get("passed", row.get("tau"))
    return float(value) if isinstance(value, (int, float)) else -2.0


def _passed(name: str, row: Mapping[str, Any]) -> list[str]:
    passed, of = int(row.get("passed", 0)), int(row.get("of", 0))
    return [text(name), bar(passed / of if of else 0.0), f"{passed} of {of}"]


def _tau(name: str, row: Mapping[str, Any], significant: bool) -> list[str]:
    """A row; against the significant errors too, where the benchmark tells them apart."""
    cells = [text(name), bar(row.get("tau") or 0.0), figure(row.get("tau")), ends(row)]
    if significant:
        told = {key: row.get(f"{key}_significant") for key in ("tau", "low", "high")}
        cells += [figure(told["tau"]), ends(told)]
    return [*cells, text(row.get("n"))]
