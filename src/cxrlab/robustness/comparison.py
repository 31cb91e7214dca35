"""Two models under the same conditions: who is better when attacked, who loses more, and whether that is chance.

Each model faces the attacks that were made for it. A model that is better to begin with can lose more and still be
better, so both the perturbed values and the drops are compared; and where the two are not equal on clean images, also
what becomes of the answers that both had right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics.bootstrap import Clusters
from cxrlab.metrics.statistics.intervals import UNKNOWN, ResampledValue
from cxrlab.metrics.statistics.paired_tests import holm, mcnemar, permutation_tests
from cxrlab.metrics.tally import Matrix, Tally, mean_of
from cxrlab.robustness.evidence import Flags, Table
from cxrlab.robustness.measurements import (
    FLIP_RATE,
    HEADLINE,
    LEVEL,
    Quantity,
    card,
    change,
    ends,
    flipped_answers,
    flipped_reports,
    right,
)
from cxrlab.robustness.outcomes import Audit, Quantities

EQUAL_BY = ("findings.f1", "asked.accuracy")
# An interval of the difference on clean images that lies within this: the two start from the same place.
EQUAL_MARGIN = 0.02


def compare_models(audit: Audit, a: str, b: str, names: Sequence[str] = HEADLINE) -> dict[str, Any]:
    """Model b against model a; see `compare_all`."""
    found: dict[str, Any] = compare_all(audit, a, [b], names)[f"{a}:{b}"]
    return found


def compare_all(audit: Audit, a: str, others: Sequence[str], names: Sequence[str] = HEADLINE) -> dict[str, Any]:
    """Each other model against the first, as `a:b` → comparison; every test of all of them is one family.

    Args:
        audit: The evidence.
        a: Key of the model under audit.
        others: Keys of those that it is compared with.
        names: Quantities that are tested.
    """
    families = {f"{a}:{b}": PairedTests() for b in others}
    found = {key: _compared(audit, a, b, names, families[key]) for key, b in zip(families, others, strict=True)}
    swaps = swaps_for(sum(len(tests.swappable) + len(tests.others) for tests in families.values()))
    tested: list[dict[str, Any]] = []
    for key, tests in families.items():
        rng = generator(audit.seed, "robustness", "swaps", key)
        tested += tests.swap(audit.resamples.clusters, swaps, rng)
    correct(tested)
    for one in found.values():
        one |= {"tests": len(tested), "swaps": swaps, "alpha": ALPHA}
    return found


def _compared(audit: Audit, a: str, b: str, names: Sequence[str], tests: PairedTests) -> dict[str, Any]:
    mine, yours = audit.tables(a), audit.tables(b)
    shared = [condition for condition in mine if condition in yours]
    conditions = {one: _under(audit, mine[one], yours[one], names, tests) for one in shared}
    clean = _clean_difference(audit, a, b)
    equal = bool(clean) and all(_equal(one) for one in clean.values())
    return {
        "n": len(audit.evidence.studies),
        "patients": audit.resamples.clusters.count,
        "equal_clean": equal,
        "clean": clean,
        "sentence": _sentence(clean, equal),
        "conditions": conditions,
        "flips": {one: _flips(audit, mine[one], yours[one], tests) for one in shared},
        "matched": None if equal else _matched(audit, a, b, shared, names),
        "transfer": transfer(audit, a, b),
    }


def _under(audit: Audit, mine: Table, yours: Table, names: Sequence[str], tests: PairedTests) -> dict[str, Any]:
    """One condition: of each quantity the perturbed values and, where clean images have it, the drops."""
    now = [audit.outcome(table).image for table in (mine, yours)]
    before = [audit.clean(table.model).image for table in (mine, yours)]
    told = {name: tests.difference(now[0][name], now[1][name]) for name in names}
    for name in names:
        if name in before[0]:
            told[name]["drop"] = tests.drops((before[0][name], now[0][name]), (before[1][name], now[1][name]))
    return told


def _flips(audit: Audit, mine: Table, yours: Table, tests: PairedTests) -> dict[str, Any]:
    """Studies that turn under one model only: their reports, or any answer where the two write no reports."""
    reports = [_turned_report(audit, table) for table in (mine, yours)]
    if not np.isnan(reports[0] + reports[1]).all():
        return tests.flips("reports", *reports)
    return tests.flips("answers", *(_turned_answer(audit, table) for table in (mine, yours)))


def _turned_report(audit: Audit, table: Table) -> Matrix:
    return flipped_reports(table.image, audit.evidence.clean(table.model).image, audit.scores)


def _turned_answer(audit: Audit, table: Table) -> Matrix:
    """1 where any answer of the study turned."""
    cells = flipped_answers(table.image, audit.evidence.clean(table.model).image, audit.evidence.truth)
    return np.where(np.isnan(cells).all(axis=1), np.nan, (cells == 1).any(axis=1))


def _clean_difference(audit: Audit, a: str, b: str) -> dict[str, dict[str, float]]:
    """What b has more than a on clean images, of what both have."""
    one, two = audit.clean(a).image, audit.clean(b).image
    return {name: ends(change(two[name], one[name])) for name in EQUAL_BY if one[name].n and two[name].n}


def _equal(found: dict[str, float]) -> bool:
    """Whether the whole interval lies within the margin; False where there is no interval."""
    return -EQUAL_MARGIN < found["low"] and found["high"] < EQUAL_MARGIN


def _sentence(clean: dict[str, dict[str, float]], equal: bool) -> str:
    if not clean:
        return "Whether the two are equal on clean images cannot be told: they share no quantity there."
    told = "; ".join(
        f"{name} differs by {one['value']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]" for name, one in clean.items()
    )
    if equal:
        return f"On clean images the two are equal within {EQUAL_MARGIN}: {told}."
    return (
        f"On clean images the two are not shown to be equal within {EQUAL_MARGIN}: {told}. "
        "Compare the drops, and what both have right on the clean image."
    )


def _matched(audit: Audit, a: str, b: str, shared: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """The answers and reports that both have right on the clean image (reports: no significant error), once perturbed.

    Both start from the same place there: every answer is right. No tests are made of it; see the intervals.
    """
    pairs, studies = _both_right(audit, a, b)
    found = {}
    for condition in shared:
        sides = []
        for model in (a, b):
            said, clean = audit.tables(model)[condition].image, audit.evidence.clean(model).image
            sides.append(audit.measured(said.only(pairs, studies), clean.only(pairs, studies), names))
        found[condition] = {name: _beside(one, sides[1][name]) for name, one in sides[0].items()}
    return {"pairs": int(pairs.sum()), "studies": int(studies.sum()), "conditions": found}


def _beside(a: Quantity, b: Quantity) -> dict[str, Any]:
    gap = ends(change(b, a))
    return {"a": a.to_json(), "b": b.to_json(), "difference": gap["value"], "low": gap["low"], "high": gap["high"]}


def _both_right(audit: Audit, a: str, b: str) -> tuple[Flags, Flags]:
    """Pairs of study and label [N, L], and studies [N], that both models have right on the clean image."""
    images = [audit.evidence.clean(model).image for model in (a, b)]
    pairs = np.logical_and.reduce([right(image.probs, audit.evidence.truth) == 1 for image in images])
    studies = np.logical_and.reduce([audit.scores.errors(image) == 0 for image in images])
    return pairs, studies


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


MEASURES = (FLIP_RATE, "asked.accuracy", "findings.f1")
# Where the attack itself does less harm than this, a share of that harm means nothing.
LEAST_HARM = 0.01


def transfer(audit: Audit, a: str, b: str) -> dict[str, Any]:
    """Condition → `a_to_b` (made for a, shown to b) and `b_to_a` → each measure, and the share of harm that went along.

    `ratio` is that share for answers where they were asked, else for the findings of reports; `ratios` has it for each
    measure.
    """
    found: dict[str, Any] = {}
    for way, source, target in (("a_to_b", a, b), ("b_to_a", b, a)):
        clean, own = audit.clean(target).image, audit.tables(target)
        for condition, table in audit.evidence.transferred(target, source).items():
            shown = audit.measured(table.image, audit.evidence.clean(target).image, MEASURES)
            direct = audit.outcome(own[condition]).image if condition in own else None
            found.setdefault(condition, {})[way] = _told(shown, direct, clean)
    return found


def _told(shown: Quantities, direct: Quantities | None, clean: Quantities) -> dict[str, Any]:
    told: dict[str, Any] = {}
    ratios = {}
    for name in MEASURES:
        told[name] = shown[name].to_json()
        if name in clean:
            told[name]["difference"] = ends(change(shown[name], clean[name]))
        whole = None if direct is None else _harm(direct, clean, name)
        ratios[name] = _ratio(_harm(shown, clean, name), whole)
    first = "asked.accuracy" if shown["asked.accuracy"].n else "findings.f1"
    return {**told, "ratio": ratios[first], "ratios": ratios}


def _harm(found: Quantities, clean: Quantities, name: str) -> ResampledValue:
    """How far the measure falls; a rate of flips is harm by itself."""
    if name in clean:
        return change(clean[name], found[name])
    return found[name].resampled


def _ratio(shown: ResampledValue, direct: ResampledValue | None) -> dict[str, float]:
    """Harm under transfer / harm under the attack made for the model; undefined where the latter is below `LEAST_HARM`.

    There is an interval only where hardly a resample comes near a division by nothing.
    """
    value, found = math.nan, UNKNOWN
    if direct is not None and direct.value >= LEAST_HARM:
        value = shown.value / direct.value
        if direct.estimate(LEVEL).low >= LEAST_HARM:
            found = shown.over(direct, LEAST_HARM).estimate(LEVEL)
    return {"value": value, "low": found.low, "high": found.high}
