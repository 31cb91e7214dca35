"""Partial credit for naming an observation related to the one in the reference.

A report with "opacity" where the reference has "pneumonia" is not as wrong as one that has nothing. Each row of
relatedness.json gives the share of the credit that either name earns for the other, from 0 (not listed) to 1 (the same
observation). The shares are judgements, in steps of a tenth.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.vocabulary import OBSERVATIONS, Group
from cxrlab.findings.data_files import load_data
from cxrlab.findings.significance import INDICATIONS, indicates

UNNAMED_DEVICE = 0.5  # a device that a report does not name is still a device


def relatedness(one: str, other: str, indication: str | None = None) -> float:
    """Credit in [0, 1] for naming `one` where `other` is meant: 1 if equal, 0 if unrelated.

    The indication of the radiograph can make a sign and its cause one statement.
    """
    credit = _CREDIT.get((one, other), 0.0)
    if indication and 0.0 < credit < 1.0:
        for row in IN_CONTEXT:
            if {row.one, row.other} == {one, other} and indicates(INDICATIONS[row.indication], indication):
                return row.credit
    return credit


def restates(one: str, other: str) -> bool:
    """Whether two names in one report may mean one thing: a sign and its cause do, a nodule and a mass do not."""
    return one != other and (one, other) in _CREDIT and frozenset({one, other}) not in _APART


def implies(one: str, other: str) -> bool:
    """Whether naming `one` implies `other`: pneumonia implies opacity, edema implies congestion."""
    return (other, one) in _IMPLIED


# ── relatedness.json ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Related:
    """Two observations that overlap."""

    one: str  # the sign, or the less exact name
    # Its cause, or the more exact name, which implies the first. Where neither is more exact, the clinically weightier
    # one.
    other: str
    credit: float  # what naming one earns where the other is meant, in (0, 1)
    reason: str  # what they share
    # Whether a report that names both means two things (a nodule and a mass), and not one thing in two words (an
    # opacity and the pneumonia that it is).
    apart: bool = False


@dataclass(frozen=True)
class RelatedInContext:
    """The credit of two observations under an indication, a key of `significance.INDICATIONS`."""

    one: str
    other: str
    indication: str
    credit: float
    reason: str


@dataclass(frozen=True)
class RelatednessTables:
    """Content of relatedness.json."""

    related: tuple[Related, ...]
    in_context: tuple[RelatedInContext, ...]


_TABLES = load_data(Path(__file__).with_name("relatedness.json"), RelatednessTables)
RELATED, IN_CONTEXT = _TABLES.related, _TABLES.in_context
_APART = frozenset(frozenset({row.one, row.other}) for row in RELATED if row.apart)
_IMPLIED = frozenset((row.one, row.other) for row in RELATED)
_CREDIT = {(name, name): 1.0 for name in OBSERVATIONS}
for _name, _observation in OBSERVATIONS.items():
    if _observation.group is Group.DEVICE and _name not in ("monitoring leads", "other device"):
        _CREDIT[_name, "other device"] = _CREDIT["other device", _name] = UNNAMED_DEVICE
for _row in RELATED:
    _CREDIT[_row.one, _row.other] = _CREDIT[_row.other, _row.one] = _row.credit
