"""Length-controlled scores: a report that says more than its reference needs must earn its words.

A judge can be pleased by length alone, and a model that is trained by it then learns to be long.
"""

from __future__ import annotations

from collections.abc import Sequence

from cxrlab.metrics.pairs import Batch
from cxrlab.metrics.rules import RuleScores
from cxrlab.metrics.tally import Metric, Tally, mean_tally

_PLAIN = "green:rules"


def length_controlled(value: float, candidate: str, reference: str) -> float:
    """The value divided by how many times as many words as the reference the candidate has, where it has more.

    A value below 0 is multiplied instead: divided, it would rise with length. Words are what white space parts; a
    reference without any counts as one word.
    """
    times = max(len(candidate.split()) / max(len(reference.split()), 1), 1.0)
    return value / times if value >= 0 else value * times


class LengthControlled:
    """`green:rules-lc`, the mean over reports; counted where it is asked for."""

    metrics: Sequence[Metric] = tuple(
        Metric(
            f"{_PLAIN}-lc",
            card.direction,
            card.range,
            card.identity,
            card.undefined,
            {**card.conventions, "length": "÷ max(words / reference's words, 1)"},
            f"{_PLAIN} of a report that is no longer than its reference, less of a longer one",
        )
        for card in RuleScores.metrics
        if card.name == _PLAIN
    )
    default: Sequence[str] = ()

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally."""
        plain = next(tally for tally in RuleScores().tallies(batch) if tally.metric.name == _PLAIN)
        texts = zip(batch.candidates, batch.references, strict=True)
        values = [length_controlled(value, *pair) for value, pair in zip(plain.by_pair.tolist(), texts, strict=True)]
        return [mean_tally(self.metrics[0], values)]
