"""Findings that exclude each other on one radiograph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Severity, Side

# Never on one radiograph.
NEVER = frozenset({frozenset({"emphysema", "low lung volumes"})})
# Never on one side: the layers of the pleura that are thickened together do not separate.
NEVER_ON_ONE_SIDE = frozenset({frozenset({"pneumothorax", "pleural thickening"})})
# At most one of these at one place: the second would lie hidden in the first.
OPAQUE = frozenset(
    {"lung opacity", "consolidation", "pneumonia", "atelectasis", "nodule", "mass", "cavity", "granuloma"}
)
LAYERED = frozenset({"pleural thickening", "pleural plaque"})
# A large effusion covers these on its side, and what lies in the lower zone.
COVERED = frozenset({"elevated hemidiaphragm", "pneumoperitoneum"})
# A collapsed lung leaves its upper zone empty: nothing of this is seen there.
COLLAPSED = OPAQUE | {"interstitial pattern"}
# Possible but seldom: the share of such pairs that is kept.
SELDOM: Mapping[frozenset[str], float] = {frozenset({"edema", "pneumothorax"}): 0.2}


def sides_meet(first: Side | None, second: Side | None) -> bool:
    """Whether two sides share one; no side at all meets nothing."""
    if first is None or second is None:
        return False
    return first is second or Side.BILATERAL in (first, second)


def _covers(effusion: Finding, other: Finding) -> bool:
    if effusion.observation != "pleural effusion" or not sides_meet(effusion.side, other.side):
        return False
    if other.observation in COVERED:
        return effusion.severity is not Severity.MILD
    return effusion.severity is Severity.SEVERE and other.location == "lower zone"


def _empties(air: Finding, other: Finding) -> bool:
    if air.observation != "pneumothorax" or air.severity is Severity.MILD or other.location != "upper zone":
        return False
    return other.observation in COLLAPSED and (other.side is None or sides_meet(air.side, other.side))


def clash(first: Finding, second: Finding) -> bool:
    """Whether the two cannot be on one radiograph, whichever comes first."""
    names = frozenset({first.observation, second.observation})
    meet = sides_meet(first.side, second.side)
    if len(names) == 1:
        both = Side.BILATERAL in (first.side, second.side)
        return both or (first.side, first.location) == (second.side, second.location)
    if names in NEVER or (meet and names in NEVER_ON_ONE_SIDE):
        return True
    if meet and first.location == second.location and (names <= OPAQUE or names <= LAYERED):
        return True
    return any(_covers(*pair) or _empties(*pair) for pair in ((first, second), (second, first)))


def fits(candidate: Finding, others: Iterable[Finding]) -> bool:
    """Whether `candidate` clashes with none of `others`."""
    return not any(clash(candidate, other) for other in others)
