"""A share with its exact interval."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.metrics.statistics.intervals import clopper_pearson


@dataclass(frozen=True)
class Share:
    """How many of how many.

    Args:
        value: In [0, 1]; None of none.
        low: Lower end of the interval of Clopper and Pearson at 95 %; None of none.
        high: Upper end.
        n: Independent trials behind the interval.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int


def share(successes: float, n: int, *, independent: int | None = None, level: float = 0.95) -> Share:
    """So many of n, with the exact interval.

    Args:
        successes: 0 to n.
        n: Trials.
        independent: Trials that have nothing in common, where not all n are independent. The interval is that of the
            same share among so many, which is never narrower than what all n tell.
        level: Of the interval.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} of {n} is no count")
    trials = n if independent is None else min(n, independent)
    if not trials:
        return Share(successes / n if n else None, None, None, 0)
    low, high = clopper_pearson(successes / n * trials, trials, 1 - level).ends
    return Share(successes / n, low, high, trials)
