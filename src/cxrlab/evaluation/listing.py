"""The cards of all metrics, for people and programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.metrics.families import cards, default_names, metric_names
from cxrlab.metrics.tally import Family, Metric


def metric_rows(names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """One row a metric, in table order; families that need something more follow with what they need.

    Args:
        names: Names, patterns or families; every metric when None.
    """
    known, on = cards(), set(default_names())
    chosen = metric_names(names) if names is not None else tuple(known)
    rows = [_row(known[name], name in on, "") for name in chosen]
    if names is None:
        rows += [_row(card, False, needs) for card, needs in _needy()]
    return rows


def _row(card: Metric, default: bool, needs: str) -> dict[str, Any]:
    return {
        "name": card.name,
        "direction": card.direction,
        "range": [None if math.isinf(bound) else bound for bound in card.range],
        "identity": card.identity,
        "default": default,
        "needs": needs,
        "about": card.about,
        "undefined": card.undefined,
        "quirk": card.quirk,
        "by_pair": card.by_pair,
        "signature": card.signature,
    }


@dataclass(frozen=True)
class _Yours:
    """Stands for what the user has, in the signatures of metrics that need it."""

    name: str


def _needy() -> list[tuple[Metric, str]]:
    """Cards of the families that need something, with what it is."""
    from cxrlab.metrics.bertscore import BertScore
    from cxrlab.metrics.labels import ChexpertLabels
    from cxrlab.metrics.radcliq import RadCliq
    from cxrlab.metrics.radgraph import RadGraphF1

    graphs: Any = _Yours("GRAPHS")
    encoder: Any = _Yours("ENCODER")
    labeler: Any = _Yours("chexbert")
    parts: Any = dict.fromkeys(("radgraph", "bertscore", "semb"), lambda batch: batch)
    families: list[tuple[Family, str]] = [
        (RadGraphF1(graphs), "--graphs"),
        (BertScore(encoder), "--encoder"),
        (ChexpertLabels(labeler, prefix="chexbert"), "--chexbert --bert"),
        (RadCliq(parts), "--graphs --encoder --chexbert --bert"),
    ]
    return [(card, needs) for family, needs in families for card in family.metrics if card.name in _on(family)]


def _on(family: Family) -> Sequence[str]:
    chosen: Sequence[str] = getattr(family, "default", ())
    return chosen
