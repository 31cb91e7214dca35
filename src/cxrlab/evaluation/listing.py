"""The cards of all metrics, for people and programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from cxrlab.core.headlines import one_kind
from cxrlab.evaluation.chosen_metrics import chosen_metrics, default_cards, with_needs
from cxrlab.evaluation.judges import judge_parts
from cxrlab.metrics.families import cards, default_names
from cxrlab.metrics.judging.table import JUDGES, judge_cards
from cxrlab.metrics.tally import Metric

NEEDS_MODEL = "a language model in the place of MODEL"


def metric_rows(names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """One row a metric, in table order; those that need something more follow with what they need.

    Args:
        names: Names, patterns, families or judges; when None every ready metric, and what the others count by default.
    """
    known, on, needy = cards(), set(default_names()), with_needs()
    names, judged = _without_judges(names)
    if names is None:
        ready = tuple(known)
        more = {card.name for family, _ in needy for card in default_cards(family)}
    else:
        chosen = chosen_metrics(names, [family for family, _ in needy])
        ready, more = chosen.ready, set(chosen.extra)
    rows = [_row(known[name], name in on, "") for name in ready]
    rows += [_row(card, False, needs) for family, needs in needy for card in family.metrics if card.name in more]
    return rows + [_row(card, False, NEEDS_MODEL) for card in judged]


def _without_judges(names: Sequence[str] | None) -> tuple[Sequence[str] | None, list[Metric]]:
    """The names that ask for no judge, and the cards of the judges that the others ask for."""
    every = {kind: judge_cards(f"{kind}:MODEL") for kind in JUDGES}
    if names is None:
        return None, [card for found in every.values() for card in found if not one_kind(card.name)]
    wanted: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        parts = judge_parts(name)
        for kind, found in every.items():
            whole = name == kind or (parts is not None and parts[0] == kind)
            wanted[name] += [card.name for card in found if whole or fnmatchcase(card.name, name)]
    chosen = {card for found in wanted.values() for card in found}
    return [name for name, found in wanted.items() if not found], [
        card for found in every.values() for card in found if card.name in chosen
    ]


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
