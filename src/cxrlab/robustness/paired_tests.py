"""Tests of the difference between two models, all of which count as one family.

Where a quantity is made of counts that two models could exchange, patient by patient, the test swaps them; where it
is not (a curve's area, an error by bins of their own) the share of resamples beyond zero is taken instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cxrlab.metrics.statistics.bootstrap import Clusters
from cxrlab.metrics.statistics.intervals import ResampledValue
from cxrlab.metrics.statistics.paired_tests import holm, mcnemar, permutation_tests
from cxrlab.metrics.tally import Matrix, Tally, mean_of
from cxrlab.robustness.quantities import LEVEL, Quantity, card, change

ALPHA = 0.05
PERMUTATION, BOOTSTRAP, MCNEMAR = "permutation by patient", "bootstrap by patient", "McNemar by study"
# Two-sided 5 % and 80 % power, in standard errors.
_DETECTABLE = 1.96 + 0.84
_LEAST_SWAPS = 10_000


@dataclass(frozen=True, eq=False)
class SwapTest:
    """One test by swapping, told in `entry`, into which its p is written.

    Args:
        entry: What is written down of the difference.
        a: Counts of the first model.
        b: Counts of the second.
    """

    entry: dict[str, Any]
    a: Tally
    b: Tally


@dataclass(eq=False)
class PairedTests:
    """All tests that are corrected together, in order.

    Args:
        swappable: Those by swapping.
        others: Entries whose p is known already.
    """

    swappable: list[SwapTest] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)

    def difference(self, a: Quantity, b: Quantity) -> dict[str, Any]:
        """What b has more than a, with its test to come."""
        found = change(b, a)
        tested = self._tested(found, a.tally, b.tally)
        told = {"a": a.value, "b": b.value, "difference": found.value, "n_a": a.n, "n_b": b.n}
        tested |= told  # one object: the test writes its p into what is returned
        return tested

    def drops(self, a: tuple[Quantity, Quantity], b: tuple[Quantity, Quantity]) -> dict[str, Any]:
        """The difference in differences: what b changes from clean to perturbed, less what a changes.

        Args:
            a: The first model's quantity, clean and perturbed.
            b: The second's.
        """
        mine, yours = change(a[1], a[0]), change(b[1], b[0])
        found = yours.minus(mine)
        tested = self._tested(found, drop_tally(*a), drop_tally(*b))
        tested |= {"a": mine.value, "b": yours.value, "value": found.value}
        return tested

    def flips(self, of: str, a: Matrix, b: Matrix) -> dict[str, Any]:
        """McNemar's test of flips: which studies turn under one model only. Studies count as independent.

        Args:
            of: What turned: reports or answers.
            a: 1 where the study turned under the first model, 0 where not, not-a-number where unknown, [N].
            b: Under the second.
        """
        known = ~(np.isnan(a) | np.isnan(b))
        found = mcnemar(a[known] == 1, b[known] == 1)
        both = int(((a == 1) & (b == 1)).sum())
        counts = {"only_a": found.only_a, "only_b": found.only_b, "both": both, "n": int(known.sum())}
        entry = {"of": of, **counts, "p": found.p if known.any() else math.nan, "p_holm": math.nan, "test": MCNEMAR}
        if found.only_a + found.only_b:
            self.others.append(entry)
        return entry

    def _tested(self, found: ResampledValue, a: Tally | None, b: Tally | None) -> dict[str, Any]:
        """Interval, p and power of a difference; p comes later where it is got by swapping."""
        known = found.draws[~np.isnan(found.draws)]
        low, high = found.estimate(LEVEL).ends
        entry: dict[str, Any] = {
            "low": low,
            "high": high,
            "p": math.nan,
            "p_holm": math.nan,
            "test": PERMUTATION if a and b else BOOTSTRAP,
            "smallest_detectable": _DETECTABLE * float(known.std(ddof=1)) if len(known) > 1 else math.nan,
        }
        if a and b:
            self.swappable.append(SwapTest(entry, a, b))
        else:
            entry["p"] = found.p_value(LEVEL)
            if known.any():
                self.others.append(entry)
        return entry

    def swap(self, groups: Clusters, swaps: int, rng: np.random.Generator) -> list[dict[str, Any]]:
        """Run the tests by swapping; the entries of all tests of which there is something to correct.

        Two models with the same counts of every patient leave nothing to test, and what is no test is not corrected
        for.
        """
        a, b = [test.a for test in self.swappable], [test.b for test in self.swappable]
        tested = []
        for test, found in zip(self.swappable, permutation_tests(a, b, groups, swaps, rng), strict=True):
            test.entry["p"] = found.p
            if found.patients and not math.isnan(found.p):
                tested.append(test.entry)
        return tested + self.others


def swaps_for(tests: int) -> int:
    """So many swaps that the least p they can give still passes Holm's correction among that many tests, twice over."""
    return max(_LEAST_SWAPS, math.ceil(2 * tests / ALPHA))


def correct(entries: Sequence[dict[str, Any]]) -> None:
    """Write Holm's correction over all of them into each."""
    for entry, adjusted in zip(entries, holm([entry["p"] for entry in entries]), strict=True):
        entry["p_holm"] = adjusted


def drop_tally(clean: Quantity, perturbed: Quantity) -> Tally | None:
    """Perturbed - clean as one tally, so that both images of a patient are swapped together."""
    before, after = clean.tally, perturbed.tally
    if before is None or after is None:
        return None
    defined = before.defined | after.defined
    if after.value_of is mean_of and (before.rows[:, 1] == after.rows[:, 1]).all():
        # The same denominators: the mean of the differences, in half the columns.
        rows = np.stack([after.rows[:, 0] - before.rows[:, 0], after.rows[:, 1]], axis=1)
        return Tally(card(clean.name), rows, defined, mean_of)
    width, value_of = after.rows.shape[1], after.value_of

    def fallen(sums: Matrix) -> Matrix:
        return value_of(sums[..., :width]) - value_of(sums[..., width:])

    return Tally(card(clean.name), np.concatenate([after.rows, before.rows], axis=1), defined, fallen)
