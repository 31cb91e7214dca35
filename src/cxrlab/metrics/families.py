"""The table of metric families: what can be counted, by default or with something more.

A family counts several metrics at once. Rows that need weights, graphs or a labeler of their own are
made by whoever has those; the rest is ready after a plain install. Listing the names of the families
imports nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache

from cxrlab.core.errors import UnknownName, did_you_mean
from cxrlab.core.tables import Table
from cxrlab.metrics.tally import Family, Metric

FAMILIES = Table(
    "metric family",
    {
        "coco": "cxrlab.metrics.coco:Coco",
        "sacre": "cxrlab.metrics.bleu:SacreBleu",
        "rouge-n": "cxrlab.metrics.rouge:GoogleRuns",
        "rouge-l": "cxrlab.metrics.rouge:GoogleLongest",
        "chexpert": "cxrlab.metrics.labels:ChexpertLabels",
        "findings": "cxrlab.metrics.finding_scores:FindingsF1",
        "errors": "cxrlab.metrics.finding_scores:ErrorCounts",
        "rules": "cxrlab.metrics.finding_scores:RuleScores",
        "length": "cxrlab.metrics.finding_scores:LengthControlled",
    },
)
# Families that cannot be made out of nothing: name → where it lives, and what it needs.
WITH_NEEDS: Mapping[str, tuple[str, str]] = {
    "radgraph": ("cxrlab.metrics.radgraph:RadGraphF1", "graphs of both reports: a JSON file, or the radgraph package"),
    "bertscore": ("cxrlab.metrics.bertscore:BertScore", "a local encoder folder"),
    "radcliq": ("cxrlab.metrics.radcliq:RadCliq", "RadGraph, BERTScore and CheXbert components of each pair"),
}


@cache
def ready() -> Mapping[str, Family]:
    """Every family that needs nothing more, by name, made once."""
    return {name: FAMILIES.load(name)() for name in FAMILIES}


def cards() -> dict[str, Metric]:
    """The card of every metric that is ready, by name, in table order."""
    return {metric.name: metric for family in ready().values() for metric in family.metrics}


def default_names() -> tuple[str, ...]:
    """What is scored when nothing is asked for: all of a family, or its own choice where it has many."""
    return tuple(name for family in ready().values() for name in _default(family))


def _default(family: Family) -> Sequence[str]:
    chosen: Sequence[str] | None = getattr(family, "default", None)
    return chosen if chosen is not None else [metric.name for metric in family.metrics]


def metric_names(wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of metrics from names, patterns (`bleu*`), families (`coco`) or "all"; the default when None.

    The result is in table order without repeats. What matches nothing is an `UnknownName` with the nearest.
    """
    if wanted is None:
        return default_names()
    known = cards()
    found: set[str] = set()
    for item in wanted:
        if item == "all":
            found.update(known)
        elif item == "default":
            found.update(default_names())
        elif item in known:
            found.add(item)
        elif item in FAMILIES:
            found.update(metric.name for metric in ready()[item].metrics)
        elif matching := [name for name in known if fnmatchcase(name, item)]:
            found.update(matching)
        else:
            raise UnknownName(_unknown(item, known))
    return tuple(name for name in known if name in found)


def _unknown(item: str, known: Mapping[str, Metric]) -> str:
    if item.split(".")[0] in WITH_NEEDS or item.rstrip("01") in WITH_NEEDS:
        family = item.split(".")[0] if item.split(".")[0] in WITH_NEEDS else item.rstrip("01")
        return f"the metric '{item}' needs {WITH_NEEDS[family][1]}; it is not counted from two texts alone."
    return (
        f"there is no metric '{item}'.{did_you_mean(item, [*known, *FAMILIES])} "
        f"`cxrlab metrics ls` lists the {len(known)} metrics; patterns such as 'bleu*' and 'all' work too."
    )


def families(wanted: Sequence[str] | None = None) -> list[Family]:
    """The families that count the wanted metrics (see `metric_names`); the default ones when None."""
    names = set(metric_names(wanted))
    return [family for family in ready().values() if names & {metric.name for metric in family.metrics}]
