"""Two systems on the same studies: the difference, its interval, and a permutation test by patient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.base import Matrix, Tally
from cxrlab.metrics.statistics.intervals import (
    SLACK,
    Clusters,
    Resamples,
    check_rows,
    check_share,
    check_trials,
    stack_cluster_sums,
    trial_blocks,
)


@dataclass(frozen=True)
class PairedDifference:
    """System b minus system a on one metric."""

    metric: str
    a: float
    b: float
    difference: float  # b − a, in the metric's own direction, with the bootstrap interval `low` to `high`
    low: float
    high: float
    p: float  # two-sided, of swapping the systems within patients
    trials: int  # swaps tried
    exact: bool  # whether these were all there are
    smallest_p: float  # the least p that any data with as many differing patients could reach
    too_few: bool  # true when `smallest_p` is above alpha, so that the test cannot reject whatever the data
    patients: int  # patients on whom the two differ in this metric's counts; only these bear on the test
    patients_with_value: int  # patients with a value under both; these bear on the interval


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

    A value is taken over the pairs that have one, as in a score. A pair that only one system defines moves with its
    report, so that a blank report is part of what is compared.

    Args:
        a: Tallies of the first system.
        b: Tallies of the second, metric by metric and pair by pair in the same order.
        clusters: One name per pair, usually the patient.
        trials: Swaps; where the differing patients allow no more than that, all of them are tried instead.
        resamples: Bootstrap samples for the interval.
        rng: Source of both.
    """
    check_trials(trials)
    check_share("alpha", alpha)
    if [tally.metric.name for tally in a] != [tally.metric.name for tally in b]:
        raise ValueError("the two systems must have the same metrics in the same order")
    groups = clusters if isinstance(clusters, Clusters) else Clusters(clusters)
    check_rows([*a, *b], groups)
    found = Resamples(groups, trials=resamples, rng=rng).resample([*a, *b])
    changes = [two.minus(one) for one, two in zip(found[: len(a)], found[len(a) :], strict=True)]
    tests = permutation_tests(a, b, groups, trials, rng)
    differences = []
    for one, two, change, test in zip(a, b, changes, tests, strict=True):
        # The data as they are and with every patient swapped are equally far from zero: two of 2^patients at best.
        least = min(1.0, 2.0 ** (1 - test.patients))
        if not test.exact:
            least = max(least, 1 / (test.trials + 1))
        under_a, under_b = (np.bincount(groups.codes[t.defined], minlength=groups.count) > 0 for t in (one, two))
        low, high = change.estimate(level).ends
        differences.append(
            PairedDifference(
                metric=one.metric.name,
                a=one.value,
                b=two.value,
                difference=two.value - one.value,
                low=low,
                high=high,
                p=test.p,
                trials=test.trials,
                exact=test.exact,
                smallest_p=least,
                too_few=least > alpha,
                patients=test.patients,
                patients_with_value=min(change.patients, int((under_a & under_b).sum())),
            )
        )
    return differences


@dataclass(frozen=True)
class PermutationTest:
    """One metric's two-sided p from `trials` swaps (all there are, if exact) of the patients whose counts differ."""

    p: float
    trials: int
    exact: bool
    patients: int


def permutation_tests(
    a: Sequence[Tally], b: Sequence[Tally], groups: Clusters, trials: int, rng: np.random.Generator
) -> list[PermutationTest]:
    """The test of every metric: exact where its differing patients are few, else on swaps that all share."""
    sums_a, places_a = stack_cluster_sums(groups, [tally.rows for tally in a])
    sums_b, places_b = stack_cluster_sums(groups, [tally.rows for tally in b])
    tests: list[PermutationTest] = []
    observed = [
        abs(two.value - one.value) - SLACK * max(abs(one.value), abs(two.value)) for one, two in zip(a, b, strict=True)
    ]
    sampled: dict[int, tuple[int, int]] = {}  # metric → its columns of both systems
    changes: dict[tuple[int, int], Matrix] = {}  # b − a by patient; metrics with the same counts share the product
    for index, (one, two) in enumerate(zip(a, b, strict=True)):
        mine, yours = sums_a[:, places_a[index]], sums_b[:, places_b[index]]
        moving = (mine != yours).any(axis=1)
        patients = int(moving.sum())
        if math.isnan(one.value) or math.isnan(two.value):
            tests.append(PermutationTest(math.nan, 0, True, patients))
        elif patients < trials.bit_length():  # 2^patients <= trials
            # Each side is summed afresh, so that a column without counts stays exactly 0.
            swaps = ((np.arange(1 << patients)[:, None] >> np.arange(patients)) & 1).astype(np.float64)
            fixed = mine[~moving].sum(axis=0)
            swapped_a = fixed + (1 - swaps) @ mine[moving] + swaps @ yours[moving]
            swapped_b = fixed + swaps @ mine[moving] + (1 - swaps) @ yours[moving]
            p = float(_differ_as_much(one, two, swapped_a, swapped_b, observed[index]).mean())
            tests.append(PermutationTest(p, len(swaps), True, patients))
        else:
            sampled[index] = (places_a[index].start, places_b[index].start)
            changes[sampled[index]] = yours - mine
            tests.append(PermutationTest(math.nan, trials, False, patients))
    if not sampled:
        return tests
    matrix = np.concatenate(list(changes.values()), axis=1)
    ends = np.cumsum([change.shape[1] for change in changes.values()])
    totals = {index: (a[index].rows.sum(axis=0), b[index].rows.sum(axis=0)) for index in sampled}
    counts = dict.fromkeys(sampled, 0)
    for start, stop in trial_blocks(trials, len(matrix)):
        # Zeros and ones with equal chance [trials, patients]; one random bit each.
        bits = np.frombuffer(rng.bytes((stop - start) * ((len(matrix) + 7) // 8)), dtype=np.uint8)
        swaps = np.unpackbits(bits.reshape(stop - start, -1), axis=1, count=len(matrix)).astype(np.float64)
        moved = dict(zip(changes, np.split(swaps @ matrix, ends[:-1], axis=1), strict=True))
        for index, key in sampled.items():
            swapped_a, swapped_b = totals[index][0] + moved[key], totals[index][1] - moved[key]
            counts[index] += int(_differ_as_much(a[index], b[index], swapped_a, swapped_b, observed[index]).sum())
    for index, count in counts.items():
        tests[index] = replace(tests[index], p=(count + 1) / (trials + 1))
    return tests


def _differ_as_much(a: Tally, b: Tally, sums_a: Matrix, sums_b: Matrix, observed: float) -> NDArray[np.bool_]:
    """Whether each trial [T, K] differs at least as much as the data; one without a value counts as such."""
    differ: NDArray[np.bool_] = ~(np.abs(b.value_of(sums_b) - a.value_of(sums_a)) < observed)
    return differ


# From fewer patients no claim of non-inferiority is made; docs/scoring.md has what intervals of fewer are worth.
MINIMUM_PATIENTS = 30
Verdict = Literal["non-inferior", "not shown", "not established"]


@dataclass(frozen=True)
class NonInferiority:
    """The verdict on one metric."""

    metric: str
    margin: float  # how much worse is still accepted, in the metric's unit; at least 0
    gain: float  # b − a in the good direction: positive when b is better
    bound: float  # one-sided lower confidence bound of the gain; not-a-number when there is none
    level: float  # confidence of that bound
    patients: int  # patients with a value under both systems
    minimum_patients: int  # fewest from which the claim is made
    # non-inferior when the bound is above −margin; not established with too few patients or without an interval,
    # whatever the bound; else not shown.
    verdict: Verdict
    sentence: str

    @property
    def established(self) -> bool:
        """Whether b is non-inferior."""
        return self.verdict == "non-inferior"


def non_inferior(
    difference: PairedDifference,
    direction: Literal["higher", "lower"],
    margin: float,
    level: float = 0.95,
    minimum_patients: int = MINIMUM_PATIENTS,
) -> NonInferiority:
    """Whether b is not worse than a by more than `margin`.

    Args:
        level: Level of the two-sided interval; its unfavourable end is a one-sided bound of 1 − (1 − level) / 2,
            97.5 % for the usual 95 %.
        minimum_patients: With fewer patients nothing is established, whatever the interval.
    """
    check_margin(difference.metric, margin)
    if minimum_patients < 2:
        raise ConfigError(f"minimum_patients={minimum_patients} is not usable; give a whole number of at least 2.")
    higher = direction == "higher"
    gain = difference.difference if higher else -difference.difference
    bound = difference.low if higher else -difference.high
    confidence = 1 - (1 - level) / 2
    patients = difference.patients_with_value
    verdict: Verdict = "non-inferior" if bound > -margin else "not shown"
    if math.isnan(bound) or patients < minimum_patients:
        verdict = "not established"
    found = NonInferiority(
        difference.metric, margin, gain, bound, confidence, patients, minimum_patients, verdict, sentence=""
    )
    return replace(found, sentence=_sentence(found, difference.patients))


def check_margin(metric: str, margin: float) -> None:
    """A margin is a finite number of at least 0."""
    if not (math.isfinite(margin) and margin >= 0):
        raise ConfigError(f"the margin {margin} of {metric} is not usable; give a number of at least 0.")


def _sentence(found: NonInferiority, differing: int) -> str:
    """The verdict with its reason and a remedy; `differing` patients have other counts under the two systems."""
    if found.patients < found.minimum_patients:
        have = "1 patient has" if found.patients == 1 else f"{found.patients} patients have"
        return (
            f"{found.metric}: non-inferiority not established: {have} a value under both, and at least "
            f"{found.minimum_patients} are required; give more patients (--minimum-patients accepts fewer)."
        )
    if math.isnan(found.bound):
        return f"{found.metric}: non-inferiority not established, since the difference has no interval."
    relation = "above" if found.established else "not above"
    verdict = "non-inferior" if found.established else "NOT shown to be non-inferior"
    sentence = (
        f"{found.metric}: {verdict}; the gain is {found.gain:+.4f} and its lower {100 * found.level:.4g} % bound "
        f"{found.bound:+.4f} is {relation} the margin {-found.margin:+.4g}."
    )
    if differing or found.established or not found.margin:
        return sentence
    # The bound is −u · reach with (1 − u)^patients = 1 − level, see `bootstrap_ends`.
    reach = -found.bound / (1 - (1 - found.level) ** (1 / found.patients))
    needed = math.ceil(math.log(1 - found.level) / math.log1p(-found.margin / reach))
    return f"{sentence} No patient differs; {needed} patients without a difference would show it."


@dataclass(frozen=True)
class McNemar:
    """Studies, taken as independent, that only one of two systems has right, with the exact two-sided p.

    `mid_p` is less conservative: it leaves out half of the observed outcome's probability on each side.
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


def binomial_half(successes: int, n: int) -> float:
    """P(X = successes) for n tosses of a fair coin."""
    log = math.lgamma(n + 1) - math.lgamma(successes + 1) - math.lgamma(n - successes + 1) - n * math.log(2)
    return math.exp(log)
