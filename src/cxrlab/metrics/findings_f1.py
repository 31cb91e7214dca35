"""F1 of the present findings: by kind, by kind and side, by kind, side and degree.

Findings are merged first, so that repeating oneself earns nothing. A hedged finding counts as
present. Side and degree are compared only where the observation's row calls for them; a side that
neither report gives is the same side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import OBSERVATIONS
from cxrlab.metrics.pairs import Batch
from cxrlab.metrics.tally import Matrix, Metric, Tally, ratio

Key = Callable[[Finding], tuple[object, ...]]


def _kind(finding: Finding) -> tuple[object, ...]:
    return (finding.observation,)


def _sided(finding: Finding) -> tuple[object, ...]:
    return (finding.observation, finding.side if OBSERVATIONS[finding.observation].sided else None)


def _full(finding: Finding) -> tuple[object, ...]:
    return (*_sided(finding), finding.severity if OBSERVATIONS[finding.observation].graded else None)


_LEVELS: tuple[tuple[str, str, Key], ...] = (
    ("findings.f1", "kind", _kind),
    ("findings.f1.side", "kind+side", _sided),
    ("findings.f1.full", "kind+side+severity", _full),
)


def f1_of(sums: Matrix) -> Matrix:
    """[..., 3] of (true positive, false positive, false negative) → F1; 1 where there is nothing to find or invent."""
    hit, extra, lost = sums[..., 0], sums[..., 1], sums[..., 2]
    return np.where(hit + extra + lost == 0, 1.0, ratio(2 * hit, 2 * hit + extra + lost))


def counted(meant: Sequence[Finding], said: Sequence[Finding], key: Key = _full) -> tuple[int, int, int]:
    """True positives, false positives and false negatives among the present things of two reports."""
    right = Counter(key(finding) for finding in meant if finding.present)
    found = Counter(key(finding) for finding in said if finding.present)
    hit = (right & found).total()
    return hit, found.total() - hit, right.total() - hit


class FindingsF1:
    """Micro F1 over the findings of all pairs."""

    metrics: Sequence[Metric] = tuple(
        Metric(
            name,
            "higher",
            (0.0, 1.0),
            1.0,
            "pairs whose reference has no word",
            {"match": level, "average": "micro", "hedged": "present", "reader": "rules"},
            about=f"findings right in {level.replace('+', ', ')}",
        )
        for name, level, _ in _LEVELS
    )

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally a level; rows are (true positive, false positive, false negative)."""
        defined = np.array([pair.answerable for pair in batch.pairs])
        found = []
        for metric, (_, _, key) in zip(self.metrics, _LEVELS, strict=True):
            pairs = zip(batch.things, defined, strict=True)
            rows = np.array([counted(*things, key) if ok else (0, 0, 0) for things, ok in pairs])
            found.append(Tally(metric, rows.astype(np.float64), defined, f1_of))
        return found
