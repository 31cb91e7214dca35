"""A figure from several seeds: its mean and how far it may be off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cxrlab.metrics.statistics.intervals import t_two_sided


@dataclass(frozen=True)
class OverSeeds:
    """One figure over the seeds.

    Args:
        values: One a seed, in order; not-a-number where the seed gave none.
        mean: Of those that are numbers; not-a-number when there is none.
        low: Lower end of Student's interval of the mean over seeds; not-a-number below two of them.
        high: Upper end.
        seeds: How many entered.
    """

    values: tuple[float, ...]
    mean: float
    low: float
    high: float
    seeds: int


def over_seeds(values: Sequence[float], level: float = 0.95) -> OverSeeds:
    """Mean and Student's interval over seeds: where the mean of many seeds lies, for these test studies.

    Args:
        values: One a seed.
        level: Of the interval, between 0 and 1.
    """
    known = [value for value in values if not math.isnan(value)]
    count = len(known)
    if not count:
        return OverSeeds(tuple(values), math.nan, math.nan, math.nan, 0)
    mean = math.fsum(known) / count
    if count < 2:
        return OverSeeds(tuple(values), mean, math.nan, math.nan, count)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (count - 1) / count)
    half = t_quantile(level, count - 1) * spread
    return OverSeeds(tuple(values), mean, mean - half, mean + half, count)


def t_quantile(level: float, df: int) -> float:
    """The t with P(|T| < t) = level for Student's t with `df` degrees of freedom, by halving."""
    low, high = 0.0, 1.0
    while t_two_sided(high, df) > 1 - level:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, df) > 1 - level else (low, middle)
    return (low + high) / 2
