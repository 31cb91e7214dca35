"""The two distributions the tests need, in plain Python: importing a statistics library would cost a second."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_MANY = 10_000  # degrees of freedom from which Student's t is the normal distribution to four digits


def binomial_half(successes: int, n: int) -> float:
    """P(X = successes) for n tosses of a fair coin."""
    log = math.lgamma(n + 1) - math.lgamma(successes + 1) - math.lgamma(n - successes + 1) - n * math.log(2)
    return math.exp(log)


def t_two_sided(t: float, df: float) -> float:
    """P(|T| >= |t|) for Student's t with `df` > 0 degrees of freedom."""
    if math.isinf(t):
        return 0.0
    return regularised_beta(df / (df + t * t), df / 2, 0.5)


@lru_cache(4096)
def t_quantile(p: float, df: int) -> float:
    """The value below which Student's t with `df` degrees of freedom lies with probability `p` > 0.5."""
    if df >= _MANY:
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
    return front / (a * _fraction(x, a, b))


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method; its inverse scales I_x."""
    tiny = 1e-300
    value = above = 1.0
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
        value *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return value
