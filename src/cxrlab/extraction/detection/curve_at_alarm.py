"""How good was the copy at the moment when the alarm rang?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json

EXTRACTION, CURVE = "extraction.json", "curve"


def quality_at_alarm(run: Path, alarm: int | None, metric: str) -> dict[str, Any]:
    """The copy that the attacker had when the alarm rang: the last one fitted with no more queries.

    Args:
        run: Run folder of an extraction.
        alarm: Queries until the alarm rang; None when it did not.
        metric: Such as `findings.f1`.

    Returns:
        `budget` (queries of that copy), the figures that the extraction gives for the metric, and `reason`, which says
        why where a figure is None. A copy is never taken to be between two fitted ones.
    """
    if alarm is None:
        return _unknown("no alarm rang")
    if not (run / EXTRACTION).is_file():
        return _unknown(f"{run.name} has no {EXTRACTION}")
    found = read_json(run / EXTRACTION)
    curve = found.get(CURVE) if isinstance(found, Mapping) else None
    if not isinstance(curve, Mapping) or not curve:
        return _unknown(f"{EXTRACTION} of {run.name} has no curve over budgets")
    budgets = sorted(_budget(key, run) for key in curve)
    before = [budget for budget in budgets if budget <= alarm]
    if not before:
        return _unknown(f"the first copy was fitted after {budgets[0]} queries")
    figures = next(curve[key] for key in curve if _budget(key, run) == before[-1])
    value = figures.get(metric) if isinstance(figures, Mapping) else None
    if value is None:
        return {**_unknown(f"the curve of {run.name} has no {metric}"), "budget": before[-1]}
    told = dict(value) if isinstance(value, Mapping) else {"value": value}
    return {"budget": before[-1], **told, "reason": None}


def _unknown(reason: str) -> dict[str, Any]:
    return {"budget": None, "value": None, "reason": reason}


def _budget(key: Any, run: Path) -> int:
    if not str(key).isdigit():
        raise DataError(f"the curve in {run / EXTRACTION} has the key '{key}', which is no number of queries.")
    return int(key)
