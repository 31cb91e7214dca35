"""A share with its exact interval."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.metrics.statistics.distributions import regularised_beta

_HALVINGS = 60  # of the interval in which an end is looked for: far below any share that is shown


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
    tail, hits = (1 - level) / 2, successes / n * trials
    return Share(successes / n, _lower(hits, trials, tail), 1 - _lower(trials - hits, trials, tail), trials)


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
