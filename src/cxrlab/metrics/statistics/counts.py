"""Tests on counts, and the correction for having made many tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cxrlab.metrics.statistics.distributions import binomial_half


@dataclass(frozen=True)
class McNemar:
    """Two systems that are right or wrong on the same studies; studies count as independent.

    Args:
        only_a: Studies that only the first has right.
        only_b: Studies that only the second has right.
        p: Exact, two-sided.
        mid_p: The less conservative mid-p, half of the observed outcome's probability left out on each side.
    """

    only_a: int
    only_b: int
    p: float
    mid_p: float


def mcnemar(a_right: ArrayLike, b_right: ArrayLike) -> McNemar:
    """McNemar's test by the binomial distribution; without a discordant study p is 1."""
    one, two = np.asarray(a_right, dtype=bool), np.asarray(b_right, dtype=bool)
    if one.ndim != 1 or one.shape != two.shape:
        raise ValueError(f"shapes {one.shape} and {two.shape} are not two lists of equal length")
    return mcnemar_counts(int((one & ~two).sum()), int((two & ~one).sum()))


def mcnemar_counts(only_a: int, only_b: int) -> McNemar:
    """The same from the two counts of discordant studies."""
    if min(only_a, only_b) < 0:
        raise ValueError(f"counts must not be negative, but are {only_a} and {only_b}")
    n, fewer = only_a + only_b, min(only_a, only_b)
    at = binomial_half(fewer, n)
    both_tails = 2 * math.fsum(binomial_half(k, n) for k in range(fewer + 1))
    return McNemar(only_a, only_b, min(1.0, both_tails), min(1.0, both_tails - at))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment, in the order given; not-a-number stays so and is not counted as a test."""
    known = [index for index, p in enumerate(p_values) if not math.isnan(p)]
    adjusted = [math.nan] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(known, key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(known) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
