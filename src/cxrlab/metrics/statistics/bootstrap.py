"""Bootstrap by patient: estimates that carry their resampled values, and the one place where an interval is made.

The middle share of the resampled values is too narrow with few patients and has no width where nothing varies.
`Estimate.interval` corrects both; docs/scoring.md has the formula and its measured coverage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.statistics.distributions import t_quantile
from cxrlab.metrics.tally import Matrix, Tally

# How every interval is made, as it is written into result files; the number is raised when the formula changes.
METHOD = "percentile bootstrap by patient, widened by Student's t and skewness, exact where nothing varies (v:2)"
# A ratio that is undefined in a larger share of its resamples than this has no interval.
_LOST = 0.05
EVERY = (-math.inf, math.inf)


class Interval(NamedTuple):
    """Lower and upper end; both not-a-number where the data cannot give one."""

    low: float
    high: float


UNKNOWN = Interval(float("nan"), float("nan"))


@dataclass(frozen=True, eq=False)
class ResampledValue:
    """A number with its values in resamples of patients; differences and ratios of two of them stay paired.

    Args:
        value: Of the data.
        draws: In every resample [T]; not-a-number where a resample has none.
        without: Without each patient in turn [C]; empty where that was not computed.
        patients: Those with a value of their own.
        range: Smallest and largest possible value.
    """

    value: float
    draws: Matrix
    without: Matrix
    patients: int
    range: tuple[float, float] = EVERY

    def interval(self, level: float = 0.95) -> Interval:
        """Both ends of the interval; unknown with fewer than two patients or without a resample that has a value.

        Each end lies as far from the value as that percentile of the draws, times √(n / (n − 1)) · t / z; the end on
        the side of few patients with a large influence is moved out further, by |a| · (z² + 2) standard errors, with
        the acceleration a of BCa. Where no draw differs from the others, the exact bound on patients unlike those seen
        is taken: see `_unseen`.
        """
        check_share("level", level)
        kept = self.draws[~np.isnan(self.draws)]
        if self.patients < 2 or not len(kept) or math.isnan(self.value):
            return UNKNOWN
        if np.ptp(kept) <= SLACK * np.abs(kept).max():
            return self._unseen(level)
        tail = 50 * (1 - level)
        low, high = np.percentile(kept, [tail, 100 - tail])
        factor = self.widening(level)
        skewed = self._influences()[1] * (NormalDist().inv_cdf((1 + level) / 2) ** 2 + 2) * float(kept.std(ddof=1))
        below = factor * max(0.0, self.value - float(low)) + max(0.0, -skewed)
        above = factor * max(0.0, float(high) - self.value) + max(0.0, skewed)
        return Interval(max(self.range[0], self.value - below), min(self.range[1], self.value + above))

    def widening(self, level: float = 0.95) -> float:
        """What a percentile's distance from the value is multiplied by, at least 1."""
        upper = (1 + level) / 2
        freedom = max(1, min(self.patients - 1, self._influences()[0]))
        return math.sqrt(self.patients / (self.patients - 1)) * t_quantile(upper, freedom) / NormalDist().inv_cdf(upper)

    def _influences(self) -> tuple[int, float]:
        """Degrees of freedom, by the kurtosis of the patients' influences, and acceleration, by their skewness.

        Where few patients carry the spread it is known as badly as from those few alone.
        """
        left = self.without[~np.isnan(self.without)]
        scale = float(left.std()) if len(left) else 0.0
        if scale <= SLACK * abs(self.value):
            return self.patients - 1, 0.0
        influence = (left.mean() - left) / scale
        kurtosis, skewness = float((influence**4).mean()), float((influence**3).mean())
        freedom = int(2 * len(left) / (kurtosis - 1)) if kurtosis > 1 + SLACK else self.patients - 1
        return freedom, skewness / (6 * math.sqrt(len(left)))

    def _unseen(self, level: float) -> Interval:
        """Nothing varies: at most a share u of patients is unlike those seen, and as far off as the range allows.

        (1 − u)^n is the probability of seeing none of them. A range without an end is taken to reach 1 beyond the
        value, or the value's own size where that is more.
        """
        share = 1 - ((1 - level) / 2) ** (1 / self.patients)
        reach = max(1.0, abs(self.value))
        low, high = (
            end if math.isfinite(end) else self.value + sign * reach
            for end, sign in zip(self.range, (-1, 1), strict=True)
        )
        return Interval(self.value - share * (self.value - low), self.value + share * (high - self.value))

    def minus(self, other: ResampledValue) -> ResampledValue:
        """This less the other, resample by resample."""
        return ResampledValue(
            float(_gap(np.asarray(self.value), np.asarray(other.value))),
            _gap(self.draws, other.draws),
            _gap(self.without, other.without) if len(self.without) == len(other.without) else self.without[:0],
            min(self.patients, other.patients),
            (self.range[0] - other.range[1], self.range[1] - other.range[0]),
        )

    def over(self, other: ResampledValue, least: float = 0.0) -> ResampledValue:
        """This divided by the other, resample by resample; unknown where the other is not above `least`.

        Where that happens in more than one resample of twenty there is no interval.
        """
        draws = _share(self.draws, other.draws, least)
        if np.isnan(draws).mean() > _LOST:
            draws = np.full(len(draws), np.nan)
        return ResampledValue(
            float(_share(np.asarray(self.value), np.asarray(other.value), least)),
            draws,
            _share(self.without, other.without, least) if len(self.without) == len(other.without) else self.without[:0],
            min(self.patients, other.patients),
            (0.0, math.inf) if min(self.range[0], other.range[0]) >= 0 else EVERY,
        )


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

    def values(self, tallies: Sequence[Tally]) -> list[Matrix]:
        """For each tally its value in every resample [trials]; not-a-number where a resample has none."""
        return [one.draws for one in self.estimates(tallies)]

    def estimates(self, tallies: Sequence[Tally]) -> list[ResampledValue]:
        """For each tally its value, with the draws, the values without each patient, and how many patients have one."""
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

    def estimate(
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

    def intervals(self, tallies: Sequence[Tally], level: float = 0.95) -> list[Interval]:
        """For each tally its interval; unknown where fewer than two patients have a value."""
        check_share("level", level)
        return [one.interval(level) for one in self.estimates(tallies)]


def interval(
    tally: Tally, clusters: Sequence[str], *, trials: int = 1000, level: float = 0.95, rng: np.random.Generator
) -> Interval:
    """The interval of one metric; for several at once use `Resamples.intervals`."""
    return Resamples(clusters, trials=trials, rng=rng).intervals([tally], level)[0]


def _gap(one: Matrix, other: Matrix) -> Matrix:
    # Equal rows summed in two places may differ in the last bit; that is no difference.
    gap = one - other
    return np.where(np.abs(gap) <= SLACK * np.abs(other), 0.0, gap)


def _share(above: Matrix, below: Matrix, least: float) -> Matrix:
    quotient: Matrix = np.divide(above, below, out=np.full(np.shape(below), np.nan), where=below > least)
    return quotient


# Entries of one block of trials × patients: 32 MiB as 64-bit numbers, whatever the size of the test set.
BLOCK = 1 << 22
# Two ways to sum the same counts differ by a few units in the last place; a tie must not hang on that.
SLACK = 1e-9


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


def check_share(name: str, value: float) -> float:
    """A level or alpha, refused outside (0, 1)."""
    if not 0 < value < 1:
        raise ConfigError(f"{name}={value} is not usable; give a share between 0 and 1, such as 0.95.")
    return value
