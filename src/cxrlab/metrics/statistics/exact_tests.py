"""Tests and intervals on counts, and the correction for having made many tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cxrlab.metrics.statistics.distributions import binomial_half, regularised_beta

_HALVINGS = 60  # of the interval in which an end is looked for: far below any share that is shown


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


def clopper_pearson(successes: float, n: int, alpha: float) -> tuple[float, float]:
    """The exact interval of a share at confidence 1 - alpha: ends at which either tail has alpha / 2.

    Args:
        successes: Of n; parts of a success are allowed, where several counts stand for fewer independent ones.
        n: At least 1.
        alpha: Probability outside, both tails together.
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} of {n} is no count")
    return _lower(successes, n, alpha / 2), 1 - _lower(n - successes, n, alpha / 2)


def _lower(successes: float, n: int, tail: float) -> float:
    """The share at which so many successes or more have the probability `tail`, rounded down; 0 for none."""
    if successes <= 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # P(X >= k) of a binomial is the incomplete beta function of k and n - k + 1, for parts of a success too.
        if regularised_beta(middle, successes, n - successes + 1) < tail:
            low = middle
        else:
            high = middle
    return low
