"""The pairwise judge by rule: of two reports the one with fewer errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

from cxrlab.metrics.pairs import Batch
from cxrlab.preference.judges import Opinion


@dataclass(frozen=True, order=True)
class _Count:
    """What is wrong with a report; the smaller one is better, compared in the order of the fields."""

    silent: bool
    significant: int
    total: int


class FewerErrors:
    """Prefers the report with fewer significant errors by rule, then the one with fewer errors at all; else a tie.

    A report that says nothing of the image makes few errors and is no report: it loses to any that speaks.

    Args:
        seed: Unused; nothing is drawn.
    """

    name = "errors:rules"
    signature = "errors:rules|kinds:rexval-6|reader:rules|silent:loses|v:1"

    def __init__(self, seed: int = 7) -> None:
        del seed

    def opinions(self, batch: Batch, groups: Sequence[range]) -> list[Opinion]:
        """The two counts of each candidate, and every preference; see `judges.PairwiseJudge`."""
        return [self._opinion([_count(batch, place) for place in group]) for group in groups]

    @staticmethod
    def _opinion(counts: Sequence[_Count | None]) -> Opinion:
        preferred = [
            (one, other)
            for one, other in permutations(range(len(counts)), 2)
            if (mine := counts[one]) is not None and (theirs := counts[other]) is not None and mine < theirs
        ]
        return Opinion(tuple(map(_parts, counts)), tuple(preferred))


def _count(batch: Batch, place: int) -> _Count | None:
    """The errors of one candidate; None where there is nothing to compare it with."""
    compared = batch.comparisons[place]
    if compared is None:
        return None
    return _Count(compared.silent, sum(error.significant for error in compared.errors), len(compared.errors))


def _parts(count: _Count | None) -> dict[str, float]:
    if count is None:
        return {}
    return {"errors.significant": float(count.significant), "errors.total": float(count.total)}
