"""Judges by language models side by side: how they order reports, how near they count to people, what could be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cxrlab.render.html import UNKNOWN, ends, figure, table, text

_COUNTED = ("total", "significant")
_SEATS = (
    "Each rater is left out in turn and the judge takes that seat: mean absolute difference to the mean of the others, "
    "with a paired t-test; t is negative where the judge is nearer."
)


def judges(found: Mapping[str, Any], of: str = "") -> str:
    """The judges of a validation, or of a scored run; empty where it has none.

    Args:
        found: Content of validation.json or scores.json.
        of: Name of the run, where a page has several.
    """
    told = found.get("judges")
    if not isinstance(told, Mapping) or not told:
        return ""
    answers = [_answers(name, row) for name, row in told.items()]
    head = ["judge", "asked", "read", "in part", "not read", "why not"]
    parts = [f"<h4>Judges by language models{text(f', {of}') if of else ''}</h4>{table(head, answers)}"]
    raters = found.get("raters")
    tables = list(_tables(raters.get("judges", {}))) if isinstance(raters, Mapping) else []
    if tables:
        parts.append(f"<p>{_SEATS}</p>{_seats(tables)}")
    differences = found.get("differences")
    if isinstance(differences, Mapping) and differences:
        parts.append(_differences(differences))
    return "".join(parts)


def _answers(name: str, row: Mapping[str, Any]) -> list[str]:
    counts = [text(row.get(key)) for key in ("asked", "parsed", "partial", "failed")]
    reasons = "; ".join(f"{count} × {reason}" for reason, count in (row.get("reasons") or {}).items())
    return [f"<span class=name>{text(name)}</span>", *counts, text(reasons or None)]


def _tables(judges: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Metric → its table of raters; a benchmark with one scale has one table a judge, with counts there are two."""
    for name, row in judges.items():
        several = [row] if "by_rater" in row else [row[which] for which in _COUNTED if which in row]
        for one in several:
            yield str(one.get("judge", name)), one


def _seats(tables: list[tuple[str, Mapping[str, Any]]]) -> str:
    head = ["judge", "rater", "judge’s difference", "rater’s difference", "t", "p", "n"]
    rows = []
    for name, row in tables:
        mean = row.get("mean", {})
        both = [figure(mean.get(key)) for key in ("judge_difference", "rater_difference")]
        rows.append([f"<b>{text(name)}</b>", "mean", *both, "", "", ""])
        for rater, one in row["by_rater"].items():
            numbers = [figure(one.get(key)) for key in ("judge_difference", "rater_difference", "t")]
            rows.append(["", text(rater), *numbers, _p(one.get("p")), text(one.get("n"))])
    return table(head, rows, 5)


def _differences(differences: Mapping[str, Any]) -> str:
    rows = [
        [text(name), text(row.get("above")), which, figure(row[which].get("difference"), "+"), ends(row[which], "+")]
        for name, row in differences.items()
        for which in _COUNTED
        if which in row
    ]
    head = ["judge", "above", "errors", "difference of τ-b", "interval"]
    return f"<p>Further judges against the first, on the same resamples.</p>{table(head, rows, 2)}"


def _p(value: Any) -> str:
    if not isinstance(value, (int, float)):
        return UNKNOWN
    return "&lt; 0.001" if value < 0.001 else f"{value:.3f}"
