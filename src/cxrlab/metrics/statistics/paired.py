"""Two systems on the same studies: the difference, its interval, and a permutation test by patient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cxrlab.metrics.statistics.bootstrap import Estimate, Resamples
from cxrlab.metrics.statistics.clusters import (
    Clusters,
    check_rows,
    check_share,
    check_trials,
)
from cxrlab.metrics.statistics.permutation import PermutationTest, permutation_tests
from cxrlab.metrics.tally import Tally


@dataclass(frozen=True)
class PairedDifference:
    """System b minus system a on one metric.

    Args:
        metric: Its name.
        a: Value of the first system.
        b: Value of the second.
        difference: b − a, in the metric's own direction.
        low: Lower end of its bootstrap interval.
        high: Upper end.
        p: Two-sided, of swapping the systems within patients.
        trials: Swaps tried.
        exact: Whether these were all there are.
        smallest_p: The least p that any data with as many differing patients could reach.
        too_few: True when `smallest_p` is above alpha, so that the test cannot reject whatever the data.
        patients: Patients on whom the two differ in this metric's counts; only these bear on the test.
        patients_with_value: Patients with a value under both; these bear on the interval.
    """

    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    p: float
    trials: int
    exact: bool
    smallest_p: float
    too_few: bool
    patients: int
    patients_with_value: int


def paired_difference(
    a: Tally,
    b: Tally,
    clusters: Sequence[str],
    *,
    trials: int = 10_000,
    resamples: int = 1000,
    alpha: float = 0.05,
    level: float = 0.95,
    rng: np.random.Generator,
) -> PairedDifference:
    """One metric of two systems; see `paired_differences`."""
    found = paired_differences(
        [a], [b], clusters, trials=trials, resamples=resamples, alpha=alpha, level=level, rng=rng
    )
    return found[0]


def paired_differences(
    a: Sequence[Tally],
    b: Sequence[Tally],
    clusters: Sequence[str] | Clusters,
    *,
    trials: int = 10_000,
    resamples: int = 1000,
    alpha: float = 0.05,
    level: float = 0.95,
    rng: np.random.Generator,
) -> list[PairedDifference]:
    """Every metric of two systems, on the same resamples and the same swaps.

    A value is taken over the pairs that have one, as in a score. A pair that only one system defines
    moves with its report, so that leaving a report blank is part of what is compared.

    Args:
        a: Tallies of the first system.
        b: Tallies of the second, metric by metric and pair by pair in the same order.
        clusters: One name a pair, usually the patient.
        trials: Swaps; where the differing patients allow no more than that, all of them are tried instead.
        resamples: Bootstrap samples for the interval.
        alpha: For `too_few`.
        level: Of the interval.
        rng: Source of both.
    """
    check_trials(trials)
    check_share("alpha", alpha)
    if [tally.metric.name for tally in a] != [tally.metric.name for tally in b]:
        raise ValueError("the two systems must have the same metrics in the same order")
    groups = clusters if isinstance(clusters, Clusters) else Clusters(clusters)
    check_rows([*a, *b], groups)
    found = Resamples(groups, trials=resamples, rng=rng).estimates([*a, *b])
    changes = [two.minus(one) for one, two in zip(found[: len(a)], found[len(a) :], strict=True)]
    tests = permutation_tests(a, b, groups, trials, rng)
    together = zip(a, b, changes, tests, strict=True)
    return [
        _record(one, two, change, test, min(change.patients, _under_both(one, two, groups)), alpha, level)
        for one, two, change, test in together
    ]


def _under_both(a: Tally, b: Tally, groups: Clusters) -> int:
    """Patients with a pair that is defined under a and one that is under b."""
    one, two = (np.bincount(groups.codes[tally.defined], minlength=groups.count) > 0 for tally in (a, b))
    return int((one & two).sum())


def _record(
    a: Tally, b: Tally, change: Estimate, test: PermutationTest, patients: int, alpha: float, level: float
) -> PairedDifference:
    # The data as they are and with every patient swapped are equally far from zero: two of 2^patients at best.
    least = min(1.0, 2.0 ** (1 - test.patients))
    if not test.exact:
        least = max(least, 1 / (test.trials + 1))
    low, high = change.interval(level)
    return PairedDifference(
        metric=a.metric.name,
        a=a.value,
        b=b.value,
        difference=b.value - a.value,
        low=low,
        high=high,
        p=test.p,
        trials=test.trials,
        exact=test.exact,
        smallest_p=least,
        too_few=least > alpha,
        patients=test.patients,
        patients_with_value=patients,
    )
