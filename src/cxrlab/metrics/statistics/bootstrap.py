"""Bootstrap by patient: the value of a metric in test sets drawn again, whole patients at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.statistics.intervals import EVERY, Estimate, ResampledValue, check_share
from cxrlab.metrics.tally import Matrix, Tally


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
        for start, stop in trial_blocks(self.trials, count):
            drawn = rng.integers(count, size=(stop - start, count))
            drawn += np.arange(stop - start)[:, None] * count
            times = np.bincount(drawn.reshape(-1), minlength=(stop - start) * count)
            yield start, times.reshape(stop - start, count).astype(np.float64)

    def resample(self, tallies: Sequence[Tally]) -> list[ResampledValue]:
        """Each tally's value in every resample and without each patient."""
        check_rows(tallies, self.clusters)
        columns = side_by_side(self.clusters, [tally.rows for tally in tallies])
        sums = np.empty((self.trials, columns.matrix.shape[1]))
        if self.clusters.count:
            for start, weights in self.weights():
                sums[start : start + len(weights)] = weights @ columns.matrix
        left = columns.matrix.sum(axis=0) - columns.matrix
        found = []
        for tally, place in zip(tallies, columns.places, strict=True):
            alone = ~np.isnan(tally.value_of(columns.matrix[:, place]))
            alone[np.bincount(self.clusters.codes[tally.defined], minlength=self.clusters.count) == 0] = False
            draws, without = tally.value_of(sums[:, place]), tally.value_of(left[:, place])
            found.append(ResampledValue(tally.value, draws, without, int(alone.sum()), tally.metric.range))
        return found

    def resample_value(
        self, value_of: Callable[[Matrix], Matrix], patients: int, range: tuple[float, float] = EVERY
    ) -> ResampledValue:
        """The same of a number that is no function of sums.

        Args:
            value_of: Weights of the clusters [B, C] → its values [B].
            patients: Those that bear on it; where it sets two groups apart, those of the smaller one.
            range: Smallest and largest possible value.
        """
        count = self.clusters.count
        draws = [value_of(weights) for _, weights in self.weights()] if count else [np.full(self.trials, np.nan)]
        without = [np.empty(0)]
        # One further resample for each patient: with more patients than resamples a single one hardly matters.
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
    """Which rows belong together.

    Args:
        names: One name a row, usually the patient. The numbering follows the sorted names, so that the
            order of the rows changes no draw.
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

    def holding(self, defined: NDArray[np.bool_]) -> int:
        """Number of clusters with at least one row that is True."""
        return len(np.unique(self.codes[defined]))


@dataclass(frozen=True, eq=False)
class Columns:
    """The cluster sums of many tallies side by side, so that one matrix product serves them all.

    Args:
        matrix: [C, K in all].
        places: For each tally its columns; tallies that share their rows share them here too.
    """

    matrix: Matrix
    places: tuple[slice, ...]


Place = tuple[int, tuple[int, ...], tuple[int, ...]]


def memory_key(rows: Matrix) -> Place:
    """The same for two arrays that are one and the same numbers: metrics of a family often share their rows."""
    return rows.__array_interface__["data"][0], rows.shape, rows.strides


def side_by_side(clusters: Clusters, rows: Sequence[Matrix]) -> Columns:
    """Cluster sums of several matrices of rows; one that occurs several times, also as a view, is held once."""
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
    together = np.concatenate(blocks, axis=1) if blocks else np.zeros((clusters.count, 0))
    return Columns(together, tuple(places))


def trial_blocks(trials: int, count: int) -> Iterator[tuple[int, int]]:
    """Ranges of trials whose [trials, count] matrices keep within `BLOCK`."""
    step = max(1, BLOCK // max(1, count))
    for start in range(0, trials, step):
        yield start, min(start + step, trials)


def check_rows(tallies: Sequence[Tally], clusters: Clusters) -> None:
    """A tally of another batch is a mistake of the programmer."""
    for tally in tallies:
        if len(tally.rows) != len(clusters):
            raise ValueError(f"{tally.metric.name} has {len(tally.rows)} rows for {len(clusters)} cluster names")


def check_trials(trials: int) -> int:
    """The number of trials, refused below 1."""
    if trials < 1:
        raise ConfigError(f"trials={trials} is not usable; give a whole number of at least 1.")
    return trials
