"""The section of a page on detection: how often an alarm is false, and how soon a copy would be noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.render.extraction_parts import alarm, chapter, metric_title
from cxrlab.render.folder import RunFolder
from cxrlab.render.html import UNKNOWN, section, table, text
from cxrlab.render.robustness_parts import cell, number, part

_NOTE = (
    "Thresholds come from benign images alone; no detector saw an attack before. False alarms are measured on images "
    "that set no threshold. A bound holds where the whole interval of the measured rate lies within it; with few images "
    "it cannot be shown to."
)
_STREAMS = (
    "Detected after: queries until the first alarm. Caught: accounts, or parts of one as long as the bound is for, in "
    "which the alarm rang. The copy at that moment is the last one that was trained with no more queries."
)
HOLDS, OPEN, BROKEN, UNMEASURED = "holds", "not shown to hold", "broken", "not measured"
_STYLES = {HOLDS: ("here", "✓"), OPEN: ("doubt", "?"), BROKEN: ("bad", "✗"), UNMEASURED: ("doubt", "?")}


def detection(runs: Sequence[RunFolder]) -> str:
    """Every run that watched queries."""
    return section("Would it be noticed?", *(_one(run) for run in runs if run.detection), note=_NOTE)


def verdict(rate: Mapping[str, Any], bound: float | None) -> str:
    """Whether a measured rate of false alarms keeps its bound.

    Args:
        rate: `value` with `low` and `high`.
        bound: Share of benign images or accounts that may ring.

    Returns:
        HOLDS where the interval ends within the bound, BROKEN where it begins above, OPEN in between, and UNMEASURED
        without an interval or a bound.
    """
    low, high = number(rate.get("low")), number(rate.get("high"))
    if low is None or high is None or bound is None:
        return UNMEASURED
    return HOLDS if high <= bound else BROKEN if low > bound else OPEN


def _one(run: RunFolder) -> str:
    found = run.detection
    streams = part(found, "streams")
    parts = [
        f"<h3>{text(run.name)}</h3>",
        alarm(found.get("warnings") or ()),
        *(f"<p class=bought>{soonest(found, name)}</p>" for name in streams),
        chapter("False alarms on benign images", _false_alarms(found)),
        *(chapter(_title(name, part(streams, name)), _stream(found, part(streams, name))) for name in streams),
        f"<p class=small>{_STREAMS}</p>" if streams else "",
    ]
    return "".join(parts)


def soonest(found: Mapping[str, Any], stream: str) -> str:
    """A sentence on the first alarm of a stream, with what is known of that detector's false alarms."""
    told = part(found, "streams", stream)
    rung = _alarms(told)
    if not rung:
        return f"<b>{text(stream)}</b> was not noticed in {text(told.get('queries'))} queries."
    name = min(rung, key=lambda key: rung[key])
    words = {OPEN: "whose bound on false alarms is not shown to hold", BROKEN: "whose bound on false alarms is broken"}
    words |= {HOLDS: "whose bound on false alarms holds", UNMEASURED: "whose false alarms were not measured"}
    return (
        f"<b>{text(stream)}</b> was first noticed after <b>{rung[name]:,.0f}</b> of {text(told.get('queries'))} "
        f"queries, by {text(name)}, {words[_by_account(part(found, 'detectors', name))]}."
    )


def _alarms(told: Mapping[str, Any]) -> dict[str, float]:
    by_name = part(told, "detectors")
    found = {name: number(part(by_name, name).get("queries_to_detect")) for name in by_name}
    return {name: at for name, at in found.items() if at is not None}


def _by_account(detector: Mapping[str, Any]) -> str:
    return verdict(part(detector, "false_positives", "account"), number(part(detector, "bound").get("account")))


def _false_alarms(found: Mapping[str, Any]) -> str:
    rows = []
    for name in part(found, "detectors"):
        detector = part(found, "detectors", name)
        for kind in part(detector, "false_positives"):
            rate, bound = part(detector, "false_positives", kind), number(part(detector, "bound").get(kind))
            word = verdict(rate, bound)
            style, sign = _STYLES[word]
            judged = "image" if kind == "image" else f"account of {text(detector.get('queries'))} queries"
            mark = f"<b class={style}>{sign} {word}</b>"
            shown = UNKNOWN if bound is None else f"{bound:g}"
            rows.append([text(name), judged, mark, shown, _rate(rate), text(rate.get("n"))])
    benign = part(found, "benign")
    note = f"Held-out images: {text(benign.get('held_out_images'))} of the {text(benign.get('held_out'))} split."
    head = ["detector", "judges", "bound", "at most", "measured", "n"]
    return f"{table(head, rows, 3)}<p class=small>{note}</p>" if rows else ""


def _rate(rate: Mapping[str, Any]) -> str:
    """A share with four decimals, since bounds are small."""
    value, low, high = (number(rate.get(key)) for key in ("value", "low", "high"))
    ends = "" if low is None or high is None else f"<br><span class=small>{low:.4f} to {high:.4f}</span>"
    return UNKNOWN if value is None else f"{value:.4f}{ends}"


def _title(name: str, told: Mapping[str, Any]) -> str:
    accounts = number(told.get("accounts")) or 1
    by = f" by {accounts:,.0f} accounts" if accounts > 1 else ""
    return f"{name}: {text(told.get('queries'))} queries{by}"


def _stream(found: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    rows = [[text(name), *_watched(part(told, "detectors", name))] for name in part(told, "detectors")]
    metric = metric_title(str(found.get("metric") or "quality"))
    head = ["detector", "detected after", "caught", "n", "images flagged", "n", f"{text(metric)} of the copy then"]
    return table(head, rows, 6) if rows else ""


def _watched(one: Mapping[str, Any]) -> list[str]:
    at, rate, flagged = number(one.get("queries_to_detect")), part(one, "detection_rate"), part(one, "share_flagged")
    return [
        "<span class=later>never</span>" if at is None else f"<b>{at:,.0f}</b> queries",
        cell(rate, digits=2),
        text(rate.get("n")),
        cell(flagged, digits=2),
        text(flagged.get("n")),
        _quality(part(one, "quality")),
    ]


def _quality(found: Mapping[str, Any]) -> str:
    if number(found) is None:
        return f"{UNKNOWN}<br><span class=small>{text(found.get('reason'))}</span>"
    return f"{cell(found)}<br><span class=small>made of {text(found.get('budget'))} queries</span>"
