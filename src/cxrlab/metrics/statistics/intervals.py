"""Confidence intervals and the bootstrap by patient: every interval is an `Estimate`, and only this module computes one.

To use another interval for resampled values, such as BCa, change `bootstrap_ends` and its description `METHOD`; a
p-value from resamples (`ResampledValue.p_value`) is widened by the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.base import Matrix, Memory, Tally, memory_key

# Written into result files; raise the number when the formula changes.
METHOD = "percentile bootstrap by patient, widened by Student's t and skewness, exact where nothing varies (v:2)"
EXACT, WILSON, STUDENT, UNPAIRED = "Clopper-Pearson", "Wilson", "Student's t", "ends of both"
EVERY = (-math.inf, math.inf)
# Two ways to sum the same counts differ by a few units in the last place; a tie must not depend on that.
SLACK = 1e-9
# A ratio that is undefined in a larger share of its resamples than this has no interval.
_MOST_UNDEFINED = 0.05


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval."""

    value: float  # not-a-number where undefined
    low: float  # low and high: not-a-number where the data give no interval, as with fewer than two patients
    high: float
    n: int  # independent units behind the interval: patients, or trials of a share
    method: str = METHOD  # how the ends were computed

    @property
    def ends(self) -> tuple[float, float]:
        """Lower and upper end."""
        return self.low, self.high


UNKNOWN = Estimate(math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True, eq=False)
class ResampledValue:
    """A number with its values in resamples of patients; differences and ratios of two of them stay paired."""

    value: float  # of the data
    draws: Matrix  # in every resample [T]; not-a-number where a resample has none
    without: Matrix  # without each patient in turn [C]; empty where that was not computed
    patients: int  # those with a value of their own
    range: tuple[float, float] = EVERY  # smallest and largest possible value

    def estimate(self, level: float = 0.95) -> Estimate:
        """The value with its interval; no interval with fewer than two patients or where no resample has a value."""
        check_share("level", level)
        if self.patients < 2 or math.isnan(self.value) or np.isnan(self.draws).all():
            return Estimate(self.value, math.nan, math.nan, self.patients)
        return Estimate(self.value, *bootstrap_ends(self, level), self.patients)

    def p_value(self, level: float = 0.95) -> float:
        """Two-sided p of a value other than 0: twice the share of resamples on the smaller side of 0.

        The resamples are widened as the interval at this level is, so that p and interval agree. Not-a-number without
        an interval.
        """
        known = self.draws[~np.isnan(self.draws)]
        if self.patients < 2 or not len(known):
            return math.nan
        known = self.value + widening(self, level) * (known - self.value)
        fewer = min(int((known <= 0).sum()), int((known >= 0).sum()))
        return min(1.0, 2 * (fewer + 1) / (len(known) + 1))

    def minus(self, other: ResampledValue) -> ResampledValue:
        """The difference, resample by resample."""

        def gap(one: Matrix, two: Matrix) -> Matrix:
            # Equal rows summed in two places may differ in the last bit; that is no difference.
            found = one - two
            return np.where(np.abs(found) <= SLACK * np.abs(two), 0.0, found)

        return ResampledValue(
            float(gap(np.asarray(self.value), np.asarray(other.value))),
            gap(self.draws, other.draws),
            gap(self.without, other.without) if len(self.without) == len(other.without) else self.without[:0],
            min(self.patients, other.patients),
            (self.range[0] - other.range[1], self.range[1] - other.range[0]),
        )

    def over(self, other: ResampledValue, least: float = 0.0) -> ResampledValue:
        """The ratio, resample by resample; undefined where the other is not above `least`.

        Without an interval where more than one resample in twenty is undefined.
        """

        def ratio(above: Matrix, below: Matrix) -> Matrix:
            found: Matrix = np.divide(above, below, out=np.full(np.shape(below), np.nan), where=below > least)
            return found

        draws = ratio(self.draws, other.draws)
        if np.isnan(draws).mean() > _MOST_UNDEFINED:
            draws = np.full(len(draws), np.nan)
        return ResampledValue(
            float(ratio(np.asarray(self.value), np.asarray(other.value))),
            draws,
            ratio(self.without, other.without) if len(self.without) == len(other.without) else self.without[:0],
            min(self.patients, other.patients),
            (0.0, math.inf) if min(self.range[0], other.range[0]) >= 0 else EVERY,
        )


def bootstrap_ends(found: ResampledValue, level: float) -> tuple[float, float]:
    """The ends of the interval of a value with at least two patients and one defined resample.

    The plain percentile interval is too narrow with few patients and has no width where nothing varies. Here each end
    lies as far from the value as that percentile of the draws, times √(n / (n − 1)) · t / z. The end on the side of
    few patients with a large influence is moved out further, by |a| · (z² + 2) standard errors, with the acceleration
    a of BCa. docs/scoring.md has the measured coverage.
    """
    kept = found.draws[~np.isnan(found.draws)]
    if np.ptp(kept) <= SLACK * np.abs(kept).max():
        # Nothing varies: at most a share u of patients differs from those seen, and by as much as the range allows.
        # (1 − u)^n is the probability of seeing none of them. A range without an end is taken to reach 1 beyond the
        # value, or the value's own size where that is more.
        share = 1 - ((1 - level) / 2) ** (1 / found.patients)
        reach = max(1.0, abs(found.value))
        bottom, top = (
            end if math.isfinite(end) else found.value + sign * reach
            for end, sign in zip(found.range, (-1, 1), strict=True)
        )
        return found.value - share * (found.value - bottom), found.value + share * (top - found.value)
    tail = 50 * (1 - level)
    low, high = np.percentile(kept, [tail, 100 - tail])
    factor = widening(found, level)
    skewed = _influences(found)[1] * (NormalDist().inv_cdf((1 + level) / 2) ** 2 + 2) * float(kept.std(ddof=1))
    below = factor * max(0.0, found.value - float(low)) + max(0.0, -skewed)
    above = factor * max(0.0, float(high) - found.value) + max(0.0, skewed)
    return max(found.range[0], found.value - below), min(found.range[1], found.value + above)


def widening(found: ResampledValue, level: float = 0.95) -> float:
    """The factor, at least 1, by which a percentile's distance from the value is multiplied."""
    upper = (1 + level) / 2
    freedom = max(1, min(found.patients - 1, _influences(found)[0]))
    return math.sqrt(found.patients / (found.patients - 1)) * t_quantile(upper, freedom) / NormalDist().inv_cdf(upper)


def _influences(found: ResampledValue) -> tuple[int, float]:
    """Degrees of freedom, by the kurtosis of the patients' influences, and acceleration, by their skewness.

    Where few patients carry the spread, it is known only as well as from those few alone.
    """
    left = found.without[~np.isnan(found.without)]
    scale = float(left.std()) if len(left) else 0.0
    if scale <= SLACK * abs(found.value):
        return found.patients - 1, 0.0
    influence = (left.mean() - left) / scale
    kurtosis, skewness = float((influence**4).mean()), float((influence**3).mean())
    freedom = int(2 * len(left) / (kurtosis - 1)) if kurtosis > 1 + SLACK else found.patients - 1
    return freedom, skewness / (6 * math.sqrt(len(left)))


def clopper_pearson(successes: float, n: int, alpha: float) -> Estimate:
    """A share with its exact interval at confidence 1 - alpha: each tail has alpha / 2.

    `successes` may be a fraction, where several counts stand for fewer independent ones.
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} of {n} is not a count")

    def lower(count: float) -> float:
        """The share at which `count` successes or more have the probability alpha / 2, rounded down; 0 for none."""
        if count <= 0:
            return 0.0
        low, high = 0.0, 1.0
        for _ in range(60):  # halvings, far below any share that is reported
            middle = (low + high) / 2
            # P(X >= k) of a binomial is the incomplete beta function of k and n - k + 1, for fractions of a success too.
            if regularised_beta(middle, count, n - count + 1) < alpha / 2:
                low = middle
            else:
                high = middle
        return low

    return Estimate(successes / n, lower(successes), 1 - lower(n - successes), n, EXACT)


def wilson(successes: int, n: int, level: float = 0.95) -> Estimate:
    """A share with its Wilson score interval, which keeps its width at 0 and 1; not-a-number for n = 0."""
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, 0, WILSON)
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, spread = successes / n, z * z / n
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / n + spread / (4 * n))
    low, high = 0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half
    return Estimate(share, low, high, n, WILSON)


def student(values: Sequence[float], level: float = 0.95) -> Estimate:
    """A mean with Student's interval; no interval with fewer than two values."""
    n = len(values)
    mean = math.fsum(values) / n if n else math.nan
    if n < 2:
        return Estimate(mean, math.nan, math.nan, n, STUDENT)
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
    half = t_quantile((1 + level) / 2, n - 1) * error
    return Estimate(mean, mean - half, mean + half, n, STUDENT)


def unpaired_difference(one: Estimate, two: Estimate) -> Estimate:
    """The first minus the second, with an interval made of the ends of both; it is wider than a paired one."""
    n = min(one.n, two.n)
    return Estimate(one.value - two.value, one.low - two.high, one.high - two.low, n, UNPAIRED)


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
        found = []
        for group in column_groups(tallies, self.clusters.count):
            matrix, places = stack_cluster_sums(self.clusters, [tally.rows for tally in group])
            sums = np.empty((self.trials, matrix.shape[1]))
            if self.clusters.count:
                for start, weights in self.weights():
                    sums[start : start + len(weights)] = weights @ matrix
            total = matrix.sum(axis=0)
            for tally, place in zip(group, places, strict=True):
                own = matrix[:, place]
                alone = ~np.isnan(tally.value_of(own))
                alone[np.bincount(self.clusters.codes[tally.defined], minlength=self.clusters.count) == 0] = False
                draws, without = tally.value_of(sums[:, place]), tally.value_of(total[place] - own)
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


def stack_cluster_sums(clusters: Clusters, rows: Sequence[Matrix]) -> tuple[Matrix, list[slice]]:
    """Cluster sums of several matrices in one [C, K in all], and the columns of each.

    One matrix product then serves all. A matrix that occurs several times, also as a view, is stored once.
    """
    blocks: list[Matrix] = []
    known: dict[Memory, slice] = {}
    places = []
    width = 0
    for matrix in rows:
        memory = memory_key(matrix)
        if memory not in known:
            blocks.append(clusters.sums(matrix))
            known[memory] = slice(width, width := width + matrix.shape[1])
        places.append(known[memory])
    return np.concatenate(blocks, axis=1) if blocks else np.zeros((clusters.count, 0)), places


def column_groups(tallies: Sequence[Tally], clusters: int) -> Iterator[list[Tally]]:
    """Tallies in order, in groups whose [C, K in all] sums keep within four times `BLOCK`; one group for most test sets."""
    group: list[Tally] = []
    known: dict[Memory, int] = {}
    for tally in tallies:
        memory = memory_key(tally.rows)
        width = sum(known.values()) + (0 if memory in known else tally.rows.shape[1])
        if group and width * clusters > 4 * BLOCK:
            yield group
            group, known = [], {}
        group.append(tally)
        known[memory] = tally.rows.shape[1]
    if group:
        yield group


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


# Student's t and the beta distribution in plain Python: importing a statistics library would cost a second.


def t_two_sided(t: float, df: float) -> float:
    """P(|T| >= |t|) for Student's t with `df` > 0 degrees of freedom."""
    if math.isinf(t):
        return 0.0
    return regularised_beta(df / (df + t * t), df / 2, 0.5)


@lru_cache(4096)
def t_quantile(p: float, df: int) -> float:
    """The value below which Student's t with `df` degrees of freedom lies with probability `p` > 0.5."""
    if df >= 10_000:  # the normal distribution to four digits
        return NormalDist().inv_cdf(p)
    low, high = 0.0, 2.0
    while t_two_sided(high, df) > 2 * (1 - p):
        low, high = high, 2 * high
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, df) > 2 * (1 - p) else (low, middle)
    return (low + high) / 2


def regularised_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b) for x in [0, 1] and a, b > 0."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The fraction converges fast below the mean of the distribution; above it the other tail is computed.
    if x > (a + 1) / (a + b + 2):
        return 1 - regularised_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # The continued fraction by Lentz's method; its inverse scales I_x.
    tiny = 1e-300
    fraction = above = 1.0
    below = 0.0
    for step in range(1, 10_000):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        below = 1 + term * below
        below = 1 / (below if below else tiny)
        above = 1 + term / above
        above = above if above else tiny
        fraction *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return front / (a * fraction)


def check_share(name: str, value: float) -> float:
    """A level or alpha; `ConfigError` outside (0, 1)."""
    if not 0 < value < 1:
        raise ConfigError(f"{name}={value} is not usable; give a share between 0 and 1, such as 0.95.")
    return value
