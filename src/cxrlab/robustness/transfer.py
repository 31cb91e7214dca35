"""Images that were made for one model, shown to another: how much of the harm goes with them."""

from __future__ import annotations

import math
from typing import Any

from cxrlab.metrics.statistics.intervals import UNKNOWN, ResampledValue
from cxrlab.robustness.flips import FLIP_RATE
from cxrlab.robustness.outcomes import Audit, Quantities
from cxrlab.robustness.quantities import LEVEL, change, ends

MEASURES = (FLIP_RATE, "asked.accuracy", "findings.f1")
# Where the attack itself does less harm than this, a share of that harm means nothing.
LEAST_HARM = 0.01


def transfer(audit: Audit, a: str, b: str) -> dict[str, Any]:
    """Condition → `a_to_b` (made for a, shown to b) and `b_to_a` → each measure, and the share of harm that went along.

    `ratio` is that share for answers where they were asked, else for the findings of reports; `ratios` has it for each
    measure.
    """
    found: dict[str, Any] = {}
    for way, source, target in (("a_to_b", a, b), ("b_to_a", b, a)):
        clean, own = audit.clean(target).image, audit.tables(target)
        for condition, table in audit.evidence.transferred(target, source).items():
            shown = audit.measured(table.image, audit.evidence.clean(target).image, MEASURES)
            direct = audit.outcome(own[condition]).image if condition in own else None
            found.setdefault(condition, {})[way] = _told(shown, direct, clean)
    return found


def _told(shown: Quantities, direct: Quantities | None, clean: Quantities) -> dict[str, Any]:
    told: dict[str, Any] = {}
    ratios = {}
    for name in MEASURES:
        told[name] = shown[name].to_json()
        if name in clean:
            told[name]["difference"] = ends(change(shown[name], clean[name]))
        whole = None if direct is None else _harm(direct, clean, name)
        ratios[name] = _ratio(_harm(shown, clean, name), whole)
    first = "asked.accuracy" if shown["asked.accuracy"].n else "findings.f1"
    return {**told, "ratio": ratios[first], "ratios": ratios}


def _harm(found: Quantities, clean: Quantities, name: str) -> ResampledValue:
    """How far the measure falls; a rate of flips is harm by itself."""
    if name in clean:
        return change(clean[name], found[name])
    return found[name].resampled


def _ratio(shown: ResampledValue, direct: ResampledValue | None) -> dict[str, float]:
    """Harm under transfer / harm under the attack made for the model; undefined where the latter is below `LEAST_HARM`.

    There is an interval only where hardly a resample comes near a division by nothing.
    """
    value, found = math.nan, UNKNOWN
    if direct is not None and direct.value >= LEAST_HARM:
        value = shown.value / direct.value
        if direct.estimate(LEVEL).low >= LEAST_HARM:
            found = shown.over(direct, LEAST_HARM).estimate(LEVEL)
    return {"value": value, "low": found.low, "high": found.high}
