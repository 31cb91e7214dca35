"""How noisily a person prefers: the model of one reader, and its fit to preferences that people gave.

A reader prefers report A to report B with probability lapse / 2 + (1 − lapse) · σ((r(A) − r(B)) / scale), where r is
the reward of a metric. What a fit calls noise is all that the metric does not explain: slips of the reader, and also
what the reader sees in a report and the metric does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cxrlab.core.errors import DataError
from cxrlab.metrics.statistics.bootstrap import Interval, ResampledValue, Resamples
from cxrlab.metrics.tally import Matrix

# Fits look through all of these: likelihoods of few pairs have several tops, and a ridge between scale and lapse.
_SCALES = np.logspace(-2, 2, 267)  # as multiples of the root mean square of the differences; steps of 3.5 %
_LAPSES = np.linspace(0.0, 1.0, 101)
_LARGEST = 700.0  # exp of more is infinite


@dataclass(frozen=True)
class ReaderNoise:
    """How one reader departs from a metric.

    Args:
        scale: Difference of two rewards at which the better report wins 73 times of 100, lapses apart; above 0.
        lapse: Share of comparisons that are decided by a coin, whatever the reports; 0 to 1.
    """

    scale: float
    lapse: float

    def __post_init__(self) -> None:
        if not self.scale > 0 or not 0 <= self.lapse <= 1:
            raise ValueError(f"scale={self.scale} must be above 0 and lapse={self.lapse} from 0 to 1.")

    def probability(self, differences: ArrayLike) -> Matrix:
        """P(first over second) for differences r(first) − r(second) [N]."""
        return _probability(np.asarray(differences, dtype=np.float64), self.scale, np.array(self.lapse))


@dataclass(frozen=True)
class FittedNoise:
    """A fit with its uncertainty.

    Args:
        noise: Of the greatest likelihood.
        scale: Interval by study.
        lapse: Interval by study.
        n: Comparisons that entered.
    """

    noise: ReaderNoise
    scale: Interval
    lapse: Interval
    n: int


def fit_noise(differences: ArrayLike, shares: ArrayLike, weights: Matrix | None = None) -> list[ReaderNoise]:
    """The noise of the greatest likelihood, for every row of weights.

    Found on a grid: the scale to 3.5 %, the lapse to 0.01. Of equal likelihoods the smallest scale is taken, then the
    smallest lapse.

    Args:
        differences: r(first) − r(second) of each comparison [N].
        shares: 1 where the first was preferred, 0 where the second was, 0.5 for a tie: half a preference each way,
            as of a reader who must choose and flips a coin [N].
        weights: How often each comparison counts [T, N]; every one once, in a single row, when None.
    """
    by, told = np.asarray(differences, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    rows = np.ones((1, len(by))) if weights is None else weights
    size = float(np.sqrt(np.mean(by**2))) if len(by) else 0.0
    if not size > 0.0:
        raise DataError("no two compared reports differ in reward, so that no reader's noise can be fitted to them.")
    best = np.full(len(rows), -np.inf)
    scales, lapses = np.empty(len(rows)), np.empty(len(rows))
    for scale in _SCALES * size:
        likelihood = -_loss(by, told, scale, _LAPSES[:, None]) @ rows.T
        at = likelihood.argmax(axis=0)
        top = likelihood[at, np.arange(len(rows))]
        above = top > best
        best[above], scales[above], lapses[above] = top[above], scale, _LAPSES[at[above]]
    return [ReaderNoise(float(scale), float(lapse)) for scale, lapse in zip(scales, lapses, strict=True)]


def noise_with_interval(
    differences: ArrayLike,
    shares: ArrayLike,
    studies: Sequence[str],
    *,
    trials: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> FittedNoise:
    """The fit and the intervals of scale and lapse, whole studies drawn again.

    Args:
        differences: See `fit_noise`.
        shares: See `fit_noise`.
        studies: The study of each comparison [N].
        trials: Resamples.
        level: Of the intervals.
        rng: Source of the resamples.
    """
    draws = Resamples(studies, trials=trials, rng=rng)
    found: list[ReaderNoise] = []
    for _, times in draws.weights():
        found += fit_noise(differences, shares, times[:, draws.clusters.codes])
    noise = fit_noise(differences, shares)[0]
    # A fit takes too long to be made again without each study.
    scale, lapse = (
        ResampledValue(
            getattr(noise, key), np.array([getattr(one, key) for one in found]), np.empty(0), draws.clusters.count, span
        ).interval(level)
        for key, span in (("scale", (0.0, np.inf)), ("lapse", (0.0, 1.0)))
    )
    return FittedNoise(noise, scale, lapse, len(studies))


def log_loss(noise: ReaderNoise, differences: ArrayLike, shares: ArrayLike) -> Matrix:
    """−log P of what was preferred, in nats, of each comparison [N]; a coin's is log 2.

    Args:
        noise: Of the reader.
        differences: See `fit_noise`.
        shares: See `fit_noise`.
    """
    by, told = np.asarray(differences, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    return _loss(by, told, noise.scale, np.array(noise.lapse))


def _probability(differences: Matrix, scale: float, lapse: Matrix) -> Matrix:
    steep = np.clip(differences / scale, -_LARGEST, _LARGEST)
    found: Matrix = lapse / 2 + (1 - lapse) / (1 + np.exp(-steep))
    return found


def _loss(differences: Matrix, shares: Matrix, scale: float, lapse: Matrix) -> Matrix:
    """Both sides from their own logistic: 1 − p is nothing where p rounds to 1."""
    won, lost = (_probability(sign * differences, scale, lapse) for sign in (1, -1))
    found: Matrix = -(shares * np.log(won) + (1 - shares) * np.log(lost))
    return found
