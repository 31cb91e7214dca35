"""The way through a gate, found by llm: how much of a chest a picture needs before it is answered.

Whoever looks for it pays for it. A probe is a query of the budget and of the ledger, the first ones of an audit; what
is answered teaches the copy like any other answer, though not the surrogates between rounds. The attack has what is
left of the budget, and the pictures of the pool behind those that were tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cxrlab.extraction.defence.adaptive import load_chest, smallest_passing
from cxrlab.extraction.diversity import answer_of
from cxrlab.extraction.pools import Pool
from cxrlab.extraction.records import Picture
from cxrlab.extraction.rounds import Asking, Attack

if TYPE_CHECKING:
    from cxrlab.extraction.records import Pixels


@dataclass(frozen=True)
class Probing:
    """What was found out, and what it took.

    Args:
        dress: The least share of a chest with which enough pictures passed; where none did the one with which most
            passed, the smallest of them.
        queries: Probes: pictures that were put to the victim for it.
        passed: Share of a chest → share of the pictures that were answered with it.
    """

    dress: float
    queries: int
    passed: Mapping[float, float]

    def to_json(self) -> dict[str, Any]:
        """With the shares as text, as keys must be."""
        passed = {f"{share:g}": value for share, value in self.passed.items()}
        return {"dress": self.dress, "queries": self.queries, "passed": passed}


def probed(attack: Attack, desk: Asking | None = None) -> tuple[Attack, Probing]:
    """Probe, and the attack as it goes on: dressed as was found out, with what is left of budget and pool.

    Args:
        attack: Before its first question; its settings name the number of pictures to probe with. After a stop the
            same probes are answered from the ledger.
        desk: At which the attack goes on, where that is another: who probes expects refusals.
    """
    config = attack.config
    found = _probe(attack, attack.pool.draw(config.probes))
    left = replace(config, dress=found.dress, probes=0, budget=config.budget - found.queries, at=())
    return replace(
        attack, desk=_Later(desk or attack.desk, found.queries), pool=_Rest(attack.pool, config.probes), config=left
    ), found


def _probe(attack: Attack, pictures: Sequence[Picture]) -> Probing:
    chest = load_chest(attack.config.chest, attack.config.size) if attack.config.chest else None
    asked = 0

    def passes(dressed: Sequence[Pixels]) -> list[bool]:
        """Whoever sees words alone takes an answer that says nothing of an image for a refusal."""
        nonlocal asked
        shown = [replace(one, pixels=pixels) for one, pixels in zip(pictures, dressed, strict=True)]
        told = attack.desk.ask(shown, 0, asked)
        asked += len(shown)
        return [answer_of(text).has_statements for text in told]

    share, passed = smallest_passing([one.pixels for one in pictures], passes, chest=chest)
    best = share if share is not None else max(passed, key=lambda one: (passed[one], -one))
    return Probing(best, asked, passed)


@dataclass(frozen=True)
class _Later:
    """A desk whose numbers begin behind those of the probes."""

    desk: Asking
    after: int

    @property
    def left(self) -> int:
        return self.desk.left

    def ask(self, pictures: Sequence[Picture], round: int, first: int) -> list[str]:
        return self.desk.ask(pictures, round, self.after + first)


class _Rest(Pool):
    """What a pool holds behind its first pictures, in its order."""

    def __init__(self, pool: Pool, after: int) -> None:
        self.kind, self.takes_argument = pool.kind, pool.takes_argument
        super().__init__(pool.argument, size=pool.size, seed=pool.seed)
        self._pool, self._after = pool, after

    @property
    def count(self) -> int | None:
        return None if self._pool.count is None else self._pool.count - self._after

    @property
    def unreadable(self) -> Mapping[str, str]:
        return self._pool.unreadable

    @property
    def readable(self) -> int | None:
        return None if self._pool.readable is None else self._pool.readable - self._after

    def _take(self, skip: int, n: int) -> list[Picture]:
        return self._pool.draw(n, self._after + skip)
