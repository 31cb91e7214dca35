"""Equivalence: whether an effect over seeds and patients is smaller than a margin, by two one-sided t tests.

A difference that is not significant may be of any size. Here the claim is that it lies between -margin and +margin;
it is established at 5 % when the 90 % interval lies inside (Schuirmann 1987).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, variance

from cxrlab.metrics.statistics.intervals import check_share, t_quantile, t_two_sided
from cxrlab.metrics.statistics.paired_tests import check_margin


@dataclass(frozen=True)
class Equivalence:
    """One effect against a margin; not-a-number where there is no standard error."""

    value: float  # the mean effect
    error: float  # its standard error
    freedom: int  # degrees of freedom of that error
    low: float  # interval of level 1 - 2 alpha
    high: float
    margin: float
    p: float  # the larger p of the two one-sided tests
    smallest_margin: float  # the smallest margin at which equivalence holds: the farther end of the interval
    established: bool


def equivalent(
    value: float, error: float, freedom: int, margin: float, *, alpha: float = 0.05, name: str = "the effect"
) -> Equivalence:
    """Two one-sided t tests of an effect with this standard error; established when both reject."""
    check_margin(name, margin)
    check_share("alpha", alpha)
    if math.isnan(value) or math.isnan(error):
        return Equivalence(value, math.nan, 0, math.nan, math.nan, margin, math.nan, math.nan, established=False)
    reach = t_quantile(1 - alpha, freedom) * error
    low, high = value - reach, value + reach
    p = max(_above(gap / error if error else math.copysign(math.inf, gap), freedom)
            for gap in (margin - value, margin + value))  # fmt: skip
    bound = max(abs(low), abs(high))
    return Equivalence(value, error, freedom, low, high, margin, p, bound, established=bound < margin)


def _above(t: float, freedom: int) -> float:
    """P(T >= t)."""
    half = t_two_sided(t, freedom) / 2
    return half if t > 0 else 1 - half


@dataclass(frozen=True)
class TwoSources:
    """The mean of one effect per seed, with the error that seeds and patients give it together."""

    value: float
    error: float
    freedom: int
    seeds: float  # standard error from the differences between seeds alone
    patients: float  # standard error from patients alone


def over_seeds_and_patients(effects: Sequence[float], patients_error: float, patients: int) -> TwoSources:
    """Add the variance between seeds to that of resampled patients; degrees of freedom by Satterthwaite.

    The effects of seeds already scatter with their patients, so a part of that variance is counted twice and the error
    is rather too large than too small. Without two seeds there is no error: one start says nothing about others.

    Args:
        effects: One per seed.
        patients_error: Standard error of their mean over resampled patients, the same ones in every seed.
        patients: Number of patients.
    """
    value = mean(effects) if effects else math.nan
    if len(effects) < 2 or patients < 2 or math.isnan(value) or math.isnan(patients_error):
        return TwoSources(value, math.nan, 0, math.nan, patients_error)
    between, within = variance(effects) / len(effects), patients_error**2
    whole = between + within
    freedom = len(effects) - 1
    if whole:
        freedom = int(whole**2 / (between**2 / (len(effects) - 1) + within**2 / (patients - 1)))
    return TwoSources(value, math.sqrt(whole), max(1, freedom), math.sqrt(between), patients_error)
