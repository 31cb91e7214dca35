"""The cards of all metrics, for people and programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cxrlab.evaluation.chosen_metrics import chosen_metrics, default_cards, with_needs
from cxrlab.metrics.families import cards, default_names
from cxrlab.metrics.tally import Metric


def metric_rows(names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """One row a metric, in table order; those that need something more follow with what they need.

    Args:
        names: Names, patterns or families; when None every ready metric, and what the others count by default.
    """
    known, on, needy = cards(), set(default_names()), with_needs()
    if names is None:
        ready = tuple(known)
        more = {card.name for family, _ in needy for card in default_cards(family)}
    else:
        chosen = chosen_metrics(names, [family for family, _ in needy])
        ready, more = chosen.ready, set(chosen.extra)
    rows = [_row(known[name], name in on, "") for name in ready]
    return rows + [_row(card, False, needs) for family, needs in needy for card in family.metrics if card.name in more]


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
