"""Permutation test by patient: were the two systems' reports exchangeable, would they differ as much?

Swapping the two systems' reports of a patient swaps two rows of counts. With a the sums of one system,
b those of the other and d the rows' differences by patient, a trial is `a + s·d` against `b − s·d`
for a row s of zeros and ones: all trials together are one matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cxrlab.metrics.statistics.clusters import Clusters, blocks_of, side_by_side
from cxrlab.metrics.tally import Matrix, Tally

# Two ways to sum the same counts differ by a few units in the last place; a tie must not hang on that.
SLACK = 1e-9


@dataclass(frozen=True)
class PermutationTest:
    """One metric's test.

    Args:
        p: Two-sided; not-a-number when a system has no value.
        trials: Swaps tried.
        exact: Whether these were all there are.
        patients: Patients whose counts differ between the systems.
    """

    p: float
    trials: int
    exact: bool
    patients: int


def permutation_tests(
    a: Sequence[Tally], b: Sequence[Tally], groups: Clusters, trials: int, rng: np.random.Generator
) -> list[PermutationTest]:
    """The test of every metric: exact where its differing patients are few, else on swaps that all share."""
    first = side_by_side(groups, [tally.rows for tally in a])
    second = side_by_side(groups, [tally.rows for tally in b])
    swaps = _Swaps(trials, rng)
    tests: dict[int, PermutationTest] = {}
    for index, (one, two) in enumerate(zip(a, b, strict=True)):
        mine, yours = first.matrix[:, first.places[index]], second.matrix[:, second.places[index]]
        moving = (mine != yours).any(axis=1)
        patients = int(moving.sum())
        if math.isnan(one.value) or math.isnan(two.value):
            tests[index] = PermutationTest(math.nan, 0, True, patients)
        elif patients < trials.bit_length():  # 2^patients <= trials
            tests[index] = _exact(_Question.of(one, two), mine, yours, moving)
        else:
            key = (first.places[index].start, second.places[index].start)
            swaps.add(index, _Question.of(one, two), yours - mine, key)
            tests[index] = PermutationTest(math.nan, trials, False, patients)
    for index, count in swaps.counts().items():
        tests[index] = replace(tests[index], p=(count + 1) / (trials + 1))
    return [tests[index] for index in range(len(a))]


@dataclass(frozen=True, eq=False)
class _Question:
    """One metric of two systems, summed once: whether a trial differs at least as much as the data do."""

    a: Tally
    b: Tally
    sums_a: Matrix
    sums_b: Matrix
    observed: float

    @classmethod
    def of(cls, a: Tally, b: Tally) -> _Question:
        """The data's own difference, less what rounding may take from a trial that equals it."""
        slack = SLACK * max(abs(a.value), abs(b.value))
        return cls(a, b, a.rows.sum(axis=0), b.rows.sum(axis=0), abs(b.value - a.value) - slack)

    def beyond(self, sums_a: Matrix, sums_b: Matrix) -> NDArray[np.bool_]:
        """For sums of each trial [T, K]; a trial without a value counts as one that differs as much."""
        beyond: NDArray[np.bool_] = ~(np.abs(self.b.value_of(sums_b) - self.a.value_of(sums_a)) < self.observed)
        return beyond


def _exact(question: _Question, mine: Matrix, yours: Matrix, moving: NDArray[np.bool_]) -> PermutationTest:
    """All 2^patients swaps; each side is summed afresh, so that a column without counts stays exactly 0."""
    patients = int(moving.sum())
    swaps = ((np.arange(1 << patients)[:, None] >> np.arange(patients)) & 1).astype(np.float64)
    fixed = mine[~moving].sum(axis=0)
    sums_a = fixed + (1 - swaps) @ mine[moving] + swaps @ yours[moving]
    sums_b = fixed + swaps @ mine[moving] + (1 - swaps) @ yours[moving]
    return PermutationTest(float(question.beyond(sums_a, sums_b).mean()), len(swaps), True, patients)


class _Swaps:
    """Random swaps that many metrics share; metrics with the same counts share the product too."""

    def __init__(self, trials: int, rng: np.random.Generator) -> None:
        self._trials, self._rng = trials, rng
        self._changes: dict[tuple[int, int], Matrix] = {}
        self._asked: dict[int, tuple[_Question, tuple[int, int]]] = {}

    def add(self, index: int, question: _Question, change: Matrix, key: tuple[int, int]) -> None:
        """Ask for one metric; `change` [C, K] is b − a by patient, `key` names it."""
        self._changes[key] = change
        self._asked[index] = (question, key)

    def counts(self) -> dict[int, int]:
        """For each metric asked for, how many swaps leave a difference at least as large as the data's."""
        counts = dict.fromkeys(self._asked, 0)
        if not counts:
            return counts
        matrix = np.concatenate(list(self._changes.values()), axis=1)
        ends = np.cumsum([change.shape[1] for change in self._changes.values()])
        for start, stop in blocks_of(self._trials, len(matrix)):
            moved = self._drawn(stop - start, len(matrix)) @ matrix
            by_key = dict(zip(self._changes, np.split(moved, ends[:-1], axis=1), strict=True))
            for index, (question, key) in self._asked.items():
                beyond = question.beyond(question.sums_a + by_key[key], question.sums_b - by_key[key])
                counts[index] += int(beyond.sum())
        return counts

    def _drawn(self, trials: int, clusters: int) -> Matrix:
        """Zeros and ones with equal chance [trials, clusters]; one random bit each."""
        bits = np.frombuffer(self._rng.bytes(trials * ((clusters + 7) // 8)), dtype=np.uint8)
        return np.unpackbits(bits.reshape(trials, -1), axis=1, count=clusters).astype(np.float64)
