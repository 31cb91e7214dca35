"""Bootstrap by patient: the value of a metric in resamples of the test set, whole patients at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.statistics.intervals import EVERY, Estimate, ResampledValue, check_share
from cxrlab.metrics.tally import Matrix, Tally


class Resamples:
    """Resamples of the test set with replacement, whole clusters (usually patients, one name per pair) at a time.

    The draws are not stored: they are drawn again, the same, from one seed taken from `rng`. Memory stays flat for a
    hundred thousand studies, and every value of one object is computed on the same draws.
    """

    def __init__(self, clusters: Sequence[str] | Clusters, *, trials: int = 1000, rng: np.random.Generator) -> None:
        self.clusters = clusters if isinstance(clusters, Clusters) else Clusters(clusters)
        self.trials = check_trials(trials)
        self._seed = int(rng.integers(1 << 63))

    def weights(self) -> Iterator[tuple[int, Matrix]]:
        """(first trial, how often each cluster was drawn [trials of the block, C]), block by block."""
        rng = np.random.Generator(np.random.PCG64(self._seed))
        count = self.clusters.count
        for start, stop in trial_blocks(self.trials, count):
            drawn = rng.integers(count, size=(stop - start, count))
            drawn += np.arange(stop - start)[:, None] * count
            times = np.bincount(drawn.reshape(-1), minlength=(stop - start) * count)
            yield start, times.reshape(stop - start, count).astype(np.float64)

    def resample(self, tallies: Sequence[Tally]) -> list[ResampledValue]:
        """Each tally's value in every resample and without each patient."""
        check_rows(tallies, self.clusters)
        matrix, places = stack_cluster_sums(self.clusters, [tally.rows for tally in tallies])
        sums = np.empty((self.trials, matrix.shape[1]))
        if self.clusters.count:
            for start, weights in self.weights():
                sums[start : start + len(weights)] = weights @ matrix
        left = matrix.sum(axis=0) - matrix
        found = []
        for tally, place in zip(tallies, places, strict=True):
            alone = ~np.isnan(tally.value_of(matrix[:, place]))
            alone[np.bincount(self.clusters.codes[tally.defined], minlength=self.clusters.count) == 0] = False
            draws, without = tally.value_of(sums[:, place]), tally.value_of(left[:, place])
            found.append(ResampledValue(tally.value, draws, without, int(alone.sum()), tally.metric.range))
        return found

    def resample_value(
        self, value_of: Callable[[Matrix], Matrix], patients: int, range: tuple[float, float] = EVERY
    ) -> ResampledValue:
        """The same for a number that is not a function of sums.

        Args:
            value_of: Weights of the clusters [B, C] → its values [B].
            patients: Those that enter the number; where it compares two groups, those of the smaller one.
            range: Smallest and largest possible value.
        """
        count = self.clusters.count
        draws = [value_of(weights) for _, weights in self.weights()] if count else [np.full(self.trials, np.nan)]
        without = [np.empty(0)]
        # One further resample per patient; with more patients than resamples a single one hardly matters.
        if count <= self.trials:
            for start, stop in trial_blocks(count, count):
                weights = np.ones((stop - start, count))
                weights[np.arange(stop - start), np.arange(start, stop)] = 0
                without.append(value_of(weights))
        value = float(value_of(np.ones((1, count)))[0]) if count else float("nan")
        return ResampledValue(value, np.concatenate(draws), np.concatenate(without), patients, range)

    def estimates(self, tallies: Sequence[Tally], level: float = 0.95) -> list[Estimate]:
        """Each tally's value with its interval."""
        check_share("level", level)
        return [one.estimate(level) for one in self.resample(tallies)]


# Entries of one block of trials × patients: 32 MiB as 64-bit numbers, whatever the size of the test set.
BLOCK = 1 << 22


class Clusters:
    """Which rows belong together, by one name per row, usually the patient.

    Clusters are numbered by sorted name, so that the order of the rows changes no draw.
    """

    def __init__(self, names: Sequence[str]) -> None:
        uniques, codes = np.unique(np.asarray(list(names), dtype=np.str_), return_inverse=True)
        self.count = len(uniques)
        self.codes: NDArray[np.intp] = codes.reshape(-1)
        self._order = np.argsort(self.codes, kind="stable")
        self._starts = np.searchsorted(self.codes[self._order], np.arange(self.count))

    def __len__(self) -> int:
        return len(self.codes)

    def sums(self, rows: Matrix) -> Matrix:
        """Rows [N, K] → their sums by cluster [C, K]."""
        if len(rows) != len(self):
            raise ValueError(f"{len(rows)} rows do not fit {len(self)} cluster names")
        if not len(rows):
            return np.zeros((0, rows.shape[1]))
        summed: Matrix = np.add.reduceat(rows[self._order].astype(np.float64, copy=False), self._starts, axis=0)
        return summed

    def count_with(self, defined: NDArray[np.bool_]) -> int:
        """Number of clusters with at least one row that is True."""
        return len(np.unique(self.codes[defined]))


Place = tuple[int, tuple[int, ...], tuple[int, ...]]


def memory_key(rows: Matrix) -> Place:
    """Equal for two arrays on the same memory: metrics of a family often share their rows."""
    return rows.__array_interface__["data"][0], rows.shape, rows.strides


def stack_cluster_sums(clusters: Clusters, rows: Sequence[Matrix]) -> tuple[Matrix, list[slice]]:
    """Cluster sums of several matrices in one [C, K in all], and the columns of each.

    One matrix product then serves all. A matrix that occurs several times, also as a view, is stored once.
    """
    blocks: list[Matrix] = []
    known: dict[Place, slice] = {}
    places = []
    width = 0
    for matrix in rows:
        memory = memory_key(matrix)
        if memory not in known:
            blocks.append(clusters.sums(matrix))
            known[memory] = slice(width, width := width + matrix.shape[1])
        places.append(known[memory])
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((clusters.count, 0)), places


def trial_blocks(trials: int, count: int) -> Iterator[tuple[int, int]]:
    """Ranges of trials whose [trials, count] matrices keep within `BLOCK`."""
    step = max(1, BLOCK // max(1, count))
    for start in range(0, trials, step):
        yield start, min(start + step, trials)


def check_rows(tallies: Sequence[Tally], clusters: Clusters) -> None:
    """Raise `ValueError` for a tally of another batch."""
    for tally in tallies:
        if len(tally.rows) != len(clusters):
            raise ValueError(f"{tally.metric.name} has {len(tally.rows)} rows for {len(clusters)} cluster names")


def check_trials(trials: int) -> int:
    """The number of trials; `ConfigError` below 1."""
    if trials < 1:
        raise ConfigError(f"trials={trials} is not usable; give a whole number of at least 1.")
    return trials
