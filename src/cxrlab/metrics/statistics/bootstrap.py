"""Percentile bootstrap by patient, for any number of metrics on the same resamples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cxrlab.metrics.statistics.clusters import (
    Clusters,
    blocks_of,
    check_rows,
    check_share,
    check_trials,
    side_by_side,
)
from cxrlab.metrics.tally import Matrix, Tally


class Interval(NamedTuple):
    """Lower and upper end; both not-a-number where the data cannot give one."""

    low: float
    high: float


UNKNOWN = Interval(float("nan"), float("nan"))


class Resamples:
    """Test sets drawn again with replacement, whole patients at a time.

    The draws are not kept: they come again, the same, from one number taken from `rng`. Memory stays
    flat for a hundred thousand studies, and every question to one object is answered on the same draws.

    Args:
        clusters: One name a pair, usually the patient.
        trials: Number of resamples.
        rng: Source of the one number.
    """

    def __init__(self, clusters: Sequence[str] | Clusters, *, trials: int = 1000, rng: np.random.Generator) -> None:
        self.clusters = clusters if isinstance(clusters, Clusters) else Clusters(clusters)
        self.trials = check_trials(trials)
        self._seed = int(rng.integers(1 << 63))

    def weights(self) -> Iterator[tuple[int, Matrix]]:
        """(first trial, how often each cluster was drawn [trials of the block, C]), block by block."""
        rng = np.random.Generator(np.random.PCG64(self._seed))
        count = self.clusters.count
        for start, stop in blocks_of(self.trials, count):
            drawn = rng.integers(count, size=(stop - start, count))
            drawn += np.arange(stop - start)[:, None] * count
            times = np.bincount(drawn.reshape(-1), minlength=(stop - start) * count)
            yield start, times.reshape(stop - start, count).astype(np.float64)

    def values(self, tallies: Sequence[Tally]) -> list[Matrix]:
        """For each tally its value in every resample [trials]; not-a-number where a resample has none."""
        check_rows(tallies, self.clusters)
        columns = side_by_side(self.clusters, [tally.rows for tally in tallies])
        sums = np.empty((self.trials, columns.matrix.shape[1]))
        if self.clusters.count:
            for start, weights in self.weights():
                sums[start : start + len(weights)] = weights @ columns.matrix
        return [tally.value_of(sums[:, place]) for tally, place in zip(tallies, columns.places, strict=True)]

    def intervals(self, tallies: Sequence[Tally], level: float = 0.95) -> list[Interval]:
        """For each tally its interval; unknown where fewer than two patients have a value."""
        check_rows(tallies, self.clusters)
        check_share("level", level)
        enough = [self.clusters.holding(tally.defined) > 1 for tally in tallies]
        asked = [tally for tally, wanted in zip(tallies, enough, strict=True) if wanted]
        found = iter(self.values(asked))
        return [percentiles(next(found), level) if wanted else UNKNOWN for wanted in enough]


def interval(
    tally: Tally, clusters: Sequence[str], *, trials: int = 1000, level: float = 0.95, rng: np.random.Generator
) -> Interval:
    """The percentile interval of one metric; for several at once use `Resamples.intervals`."""
    return Resamples(clusters, trials=trials, rng=rng).intervals([tally], level)[0]


def percentiles(values: Matrix, level: float = 0.95) -> Interval:
    """The middle `level` of resampled values; those that are not-a-number stay out, all of them so: unknown."""
    tail = 50 * (1 - check_share("level", level))
    kept = values[~np.isnan(values)]
    if not len(kept):
        return UNKNOWN
    low, high = np.percentile(kept, [tail, 100 - tail])
    return Interval(float(low), float(high))
