"""Findings that come with others, on their side: drains and subcutaneous emphysema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Severity, Side
from cxrlab.findings.contradictions import sides_meet

# A leader that brings its follower at least this often also keeps it.
HELD = 0.5
Grades = Mapping[Severity | None, float]


@dataclass(frozen=True)
class Follower:
    """What a finding follows.

    Args:
        leaders: Observation → grade → chance that the follower joins it; the key None is for what
            has no grade. A grade that is not listed has none.
        fresh: Whether only a new or growing leader brings it.
        alone_in: Contexts in which it may also stand without a leader, by the context's own chance.
    """

    leaders: Mapping[str, Grades]
    fresh: bool = False
    alone_in: frozenset[str] = frozenset()

    def chance(self, leader: Finding) -> float:
        """How likely this finding brings the follower."""
        return self.leaders.get(leader.observation, {}).get(leader.severity, 0.0)

    def accompanied(self, follower: Finding, others: Iterable[Finding]) -> bool:
        """Whether one of `others` explains the follower on its side."""
        return any(other.observation in self.leaders and sides_meet(other.side, follower.side) for other in others)

    def held(self, follower: Finding, others: Iterable[Finding]) -> bool:
        """Whether one of `others` on its side still calls for the follower: no drain leaves a large pneumothorax."""
        beside = (other for other in others if sides_meet(other.side, follower.side))
        return any(self.chance(other) >= HELD for other in beside)


# In this order: a drain may itself bring air under the skin.
FOLLOWERS: Mapping[str, Follower] = {
    "chest tube": Follower(
        {
            "pneumothorax": {Severity.MILD: 0.2, Severity.MODERATE: 0.55, Severity.SEVERE: 0.9},
            "pleural effusion": {Severity.MODERATE: 0.1, Severity.SEVERE: 0.35},
        },
        alone_in=frozenset({"after surgery"}),
    ),
    "subcutaneous emphysema": Follower(
        {
            "pneumothorax": {Severity.MILD: 0.15, Severity.MODERATE: 0.3, Severity.SEVERE: 0.45},
            "rib fracture": {None: 0.15},
            "chest tube": {None: 0.2},
        },
        fresh=True,
    ),
}


def order(name: str) -> int:
    """0 for what stands by itself, then the followers in the order in which they are drawn."""
    return list(FOLLOWERS).index(name) + 1 if name in FOLLOWERS else 0


def side_beside(leader: Finding, both: float, lean: Side) -> Side | None:
    """The leader's side; of two sides the patient's worse one where the follower never takes both."""
    return lean if leader.side is Side.BILATERAL and not both else leader.side
