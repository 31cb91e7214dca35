"""The table of metric families, each of which counts several metrics at once.

These are ready after a plain install; families that need weights, graphs or a labeler are built by
`evaluation.metric_choice`. Listing the names imports nothing.
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
# Families that need something of the user: name → where it is defined, and what it needs.
WITH_NEEDS: Mapping[str, tuple[str, str]] = {
    "radgraph": ("cxrlab.metrics.radgraph:RadGraphF1", "graphs of both reports: a JSON file, or the radgraph package"),
    "bertscore": ("cxrlab.metrics.bertscore:BertScore", "a local encoder folder"),
    "radcliq": ("cxrlab.metrics.radcliq:RadCliq", "RadGraph, BERTScore and CheXbert components of each pair"),
}


@cache
def ready() -> Mapping[str, Family]:
    """Every family that needs nothing more, by name, constructed once."""
    return {name: FAMILIES.load(name)() for name in FAMILIES}


def cards() -> dict[str, Metric]:
    """The card of every metric that is ready, by name, in table order."""
    return {metric.name: metric for family in ready().values() for metric in family.metrics}


def default_names() -> tuple[str, ...]:
    """The metrics that are scored by default: all of a family, or its own choice where it has many."""
    every = ((family, [metric.name for metric in family.metrics]) for family in ready().values())
    return tuple(name for family, names in every for name in getattr(family, "default", names))


def metric_names(wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of metrics from names, patterns (`bleu*`), families (`coco`) or "all"; the default when None.

    The result is in table order without repeats; an item that matches nothing raises `UnknownName`.
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
            for family in (item.split(".")[0], item.rstrip("01")):
                if family in WITH_NEEDS:
                    needs = WITH_NEEDS[family][1]
                    raise UnknownName(f"the metric '{item}' needs {needs}; it is not counted from two texts alone.")
            raise UnknownName(
                f"there is no metric '{item}'.{did_you_mean(item, [*known, *FAMILIES])} "
                f"`cxrlab metrics ls` lists the {len(known)} metrics; patterns such as 'bleu*' and 'all' work too."
            )
    return tuple(name for name in known if name in found)


def families(wanted: Sequence[str] | None = None) -> list[Family]:
    """The families that count the wanted metrics (see `metric_names`); the default ones when None."""
    names = set(metric_names(wanted))
    return [family for family in ready().values() if names & {metric.name for metric in family.metrics}]
