"""How normal a handful of numbers looks: the W of Shapiro and Wilk, in Royston's approximation.

Written here because the package does not depend on a library of statistics; W alone is needed, not its p.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEAST = 6  # below, the approximation has another form
# Royston (1995, Applied Statistics 44, algorithm AS R94): what the outermost two weights get above the plain ones,
# as polynomials in 1 / sqrt(n), powers 1 to 5.
_OUTER = (0.221157, -0.147981, -2.071190, 4.434685, -2.706056)
_NEXT = (0.042981, -0.293762, -1.752461, 5.682633, -3.582633)


def shapiro_wilk(values: ArrayLike) -> float:
    """W in (0, 1], near 1 for normal numbers; not-a-number for fewer than 6 numbers or when all are the same."""
    ordered = np.sort(np.asarray(values, np.float64))
    if len(ordered) < LEAST:
        return float("nan")
    around = ordered - ordered.mean()
    spread = float(around @ around)
    # Rounding alone spreads equal numbers by about their size times 1e-16.
    if spread <= len(ordered) * (1e-14 * float(np.abs(ordered).max())) ** 2:
        return float("nan")
    return min(1.0, float(_weights(len(ordered)) @ around) ** 2 / spread)


@cache
def _weights(n: int) -> NDArray[np.float64]:
    """Weights of the ordered numbers [n], of length 1 and antisymmetric."""
    normal = NormalDist()
    scores = np.array([normal.inv_cdf((rank - 0.375) / (n + 0.25)) for rank in range(1, n + 1)])
    square = float(scores @ scores)
    powers = (1 / n**0.5) ** np.arange(1, 6)
    outer = scores[-1] / square**0.5 + float(powers @ np.array(_OUTER))
    beside = scores[-2] / square**0.5 + float(powers @ np.array(_NEXT))
    left = (square - 2 * scores[-1] ** 2 - 2 * scores[-2] ** 2) / (1 - 2 * outer**2 - 2 * beside**2)
    weights = scores / left**0.5
    weights[[0, 1, -2, -1]] = -outer, -beside, beside, outer
    return np.asarray(weights)
