"""Models compared under the same conditions: perturbed values, drops, flips and transfer, with paired tests.

Each model faces the attacks that were made for it. A model that is better on clean images can lose more and still be
better, so both the perturbed values and the drops are compared; where the two are not equal on clean images, also the
answers that both had right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cxrlab.core.randomness import generator
from cxrlab.metrics.base import Matrix, Tally, mean_of
from cxrlab.metrics.statistics.intervals import UNKNOWN, Clusters, ResampledValue
from cxrlab.metrics.statistics.paired_tests import holm, mcnemar, permutation_tests
from cxrlab.robustness.audit_metrics import (
    FLIP_RATE,
    HEADLINE,
    LEVEL,
    Quantity,
    Table,
    change,
    correct_answers,
    ends,
    flipped_answers,
    flipped_reports,
    metric_of,
)
from cxrlab.robustness.condition_results import Outcomes, Quantities

ALPHA = 0.05
PERMUTATION, BOOTSTRAP, MCNEMAR = "permutation by patient", "bootstrap by patient", "McNemar by study"
EQUAL_BY = ("findings.f1", "closed_questions.accuracy")
EQUAL_MARGIN = 0.02  # two models are equal on clean images if the interval of their difference lies within this
TRANSFERRED = (FLIP_RATE, "closed_questions.accuracy", "findings.f1")
LEAST_HARM = 0.01  # a share of less harm than this is meaningless
_DETECTABLE = 1.96 + 0.84  # two-sided 5 % and 80 % power, in standard errors
_LEAST_SWAPS = 10_000


def compare_all(outcomes: Outcomes, a: str, others: Sequence[str], names: Sequence[str] = HEADLINE) -> dict[str, Any]:
    """Each other model against the first, as `a:b` → comparison; all tests are corrected together.

    Args:
        a: Key of the model under audit.
        others: Keys of the models that it is compared with.
        names: Quantities that are tested.
    """
    families = {f"{a}:{b}": PairedTests() for b in others}
    found = {key: _compare(outcomes, a, b, names, families[key]) for key, b in zip(families, others, strict=True)}
    swaps = swaps_for(sum(len(tests.swappable) + len(tests.others) for tests in families.values()))
    tested: list[dict[str, Any]] = []
    for key, tests in families.items():
        rng = generator(outcomes.seed, "robustness", "swaps", key)
        tested += tests.swap(outcomes.resamples.clusters, swaps, rng)
    for entry, adjusted in zip(tested, holm([entry["p"] for entry in tested]), strict=True):
        entry["p_holm"] = adjusted
    for one in found.values():
        one |= {"tests": len(tested), "swaps": swaps, "alpha": ALPHA}
    return found


def _compare(outcomes: Outcomes, a: str, b: str, names: Sequence[str], tests: PairedTests) -> dict[str, Any]:
    tables = {a: outcomes.tables(a), b: outcomes.tables(b)}
    before = {model: outcomes.clean(model).image for model in (a, b)}
    shared = [condition for condition in tables[a] if condition in tables[b]]
    conditions = {}
    for condition in shared:
        now = {model: outcomes.outcome(tables[model][condition]).image for model in (a, b)}
        conditions[condition] = {name: tests.difference(now[a][name], now[b][name]) for name in names}
        for name in names:
            if name in before[a]:
                drop = tests.drops((before[a][name], now[a][name]), (before[b][name], now[b][name]))
                conditions[condition][name]["drop"] = drop
    clean = {
        name: ends(change(before[b][name], before[a][name]))
        for name in EQUAL_BY
        if before[a][name].n and before[b][name].n
    }
    # False where there is no interval.
    equal = bool(clean) and all(-EQUAL_MARGIN < one["low"] and one["high"] < EQUAL_MARGIN for one in clean.values())
    listed = "; ".join(
        f"{name} differs by {one['value']:+.3f} [{one['low']:+.3f}, {one['high']:+.3f}]" for name, one in clean.items()
    )
    if not clean:
        sentence = "Whether the two models are equal on clean images is unknown: they share no quantity there."
    elif equal:
        sentence = f"On clean images the two models are equal within {EQUAL_MARGIN}: {listed}."
    else:
        sentence = (
            f"On clean images the two models are not shown to be equal within {EQUAL_MARGIN}: {listed}. "
            "Compare the drops, and what both have right on the clean image."
        )
    return {
        "n": len(outcomes.evidence.studies),
        "patients": outcomes.resamples.clusters.count,
        "equal_clean": equal,
        "clean": clean,
        "sentence": sentence,
        "conditions": conditions,
        "flips": {one: _flips(outcomes, tables[a][one], tables[b][one], tests) for one in shared},
        "matched": None if equal else _matched(outcomes, a, b, shared, names),
        "transfer": transfer(outcomes, a, b),
    }


def _flips(outcomes: Outcomes, first: Table, second: Table, tests: PairedTests) -> dict[str, Any]:
    """Studies that flip under one model only: their reports, or any answer where the two generate no reports."""
    reports, answers = [], []
    for table in (first, second):
        clean = outcomes.evidence.clean(table.model).image
        reports.append(flipped_reports(table.image, clean, outcomes.scores))
        cells = flipped_answers(table.image, clean, outcomes.evidence.truth)
        answers.append(np.where(np.isnan(cells).all(axis=1), np.nan, (cells == 1).any(axis=1)))
    if not np.isnan(reports[0] + reports[1]).all():
        return tests.flips("reports", *reports)
    return tests.flips("answers", *answers)


def _matched(outcomes: Outcomes, a: str, b: str, shared: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """The answers and reports that both models have right on the clean image, once perturbed.

    A report is right without a significant error. Both models start from the same place there. Nothing is tested; see
    the intervals.
    """
    clean = {model: outcomes.evidence.clean(model).image for model in (a, b)}
    truth = outcomes.evidence.truth
    pairs = np.logical_and.reduce([correct_answers(image.probs, truth) == 1 for image in clean.values()])
    studies = np.logical_and.reduce([outcomes.scores.errors(image) == 0 for image in clean.values()])
    conditions: dict[str, dict[str, Any]] = {}
    for condition in shared:
        first, second = (
            outcomes.measure(
                outcomes.tables(model)[condition].image.only(pairs, studies), clean[model].only(pairs, studies), names
            )
            for model in (a, b)
        )
        conditions[condition] = {}
        for name, one in first.items():
            gap = ends(change(second[name], one))
            conditions[condition][name] = {
                "a": one.to_json(),
                "b": second[name].to_json(),
                "difference": gap["value"],
                "low": gap["low"],
                "high": gap["high"],
            }
    return {"pairs": int(pairs.sum()), "studies": int(studies.sum()), "conditions": conditions}


def transfer(outcomes: Outcomes, a: str, b: str) -> dict[str, Any]:
    """Harm of images that were perturbed for one model to the other.

    Condition → `a_to_b` (made for a, examined by b) and `b_to_a` → each measure, and the share of harm that transfers.
    `ratio` is that share for answers where they were asked, else for the findings of reports; `ratios` has it for each
    measure.
    """
    found: dict[str, Any] = {}
    for way, source, target in (("a_to_b", a, b), ("b_to_a", b, a)):
        clean, own = outcomes.clean(target).image, outcomes.tables(target)
        for condition, table in outcomes.evidence.transferred(target, source).items():
            transferred = outcomes.measure(table.image, outcomes.evidence.clean(target).image, TRANSFERRED)
            direct = outcomes.outcome(own[condition]).image if condition in own else None
            row: dict[str, Any] = {}
            ratios = {}
            for name in TRANSFERRED:
                row[name] = transferred[name].to_json()
                if name in clean:
                    row[name]["difference"] = ends(change(transferred[name], clean[name]))
                ratios[name] = _share_of_harm(transferred, direct, clean, name)
            first = "closed_questions.accuracy" if transferred["closed_questions.accuracy"].n else "findings.f1"
            found.setdefault(condition, {})[way] = {**row, "ratio": ratios[first], "ratios": ratios}
    return found


def _share_of_harm(
    transferred: Quantities, direct: Quantities | None, clean: Quantities, name: str
) -> dict[str, float]:
    """Harm under transfer / harm under the attack made for the model; undefined where the latter is small.

    There is an interval only where hardly a resample comes near a division by 0.
    """

    def harm(found: Quantities) -> ResampledValue:  # a rate of flips is harm by itself
        return change(clean[name], found[name]) if name in clean else found[name].resampled

    value, interval = math.nan, UNKNOWN
    if direct is not None and (whole := harm(direct)).value >= LEAST_HARM:
        value = harm(transferred).value / whole.value
        if whole.estimate(LEVEL).low >= LEAST_HARM:
            interval = harm(transferred).over(whole, LEAST_HARM).estimate(LEVEL)
    return {"value": value, "low": interval.low, "high": interval.high}


@dataclass(eq=False)
class PairedTests:
    """All tests that are corrected together, in order.

    Quantities made of counts that two models could exchange, patient by patient, are tested by permutation; for others
    (a curve's area, an error by bins) the share of resamples beyond zero is taken.
    """

    # Permutation tests still to be run: the entry for the p, and the counts of both models
    swappable: list[tuple[dict[str, Any], Tally, Tally]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)  # Entries whose p is known already

    def difference(self, a: Quantity, b: Quantity) -> dict[str, Any]:
        """B minus a, with its test."""
        found = change(b, a)
        entry = self._entry(found, a.tally, b.tally)
        entry |= {"a": a.value, "b": b.value, "difference": found.value, "n_a": a.n, "n_b": b.n}
        return entry

    def drops(self, a: tuple[Quantity, Quantity], b: tuple[Quantity, Quantity]) -> dict[str, Any]:
        """The difference in differences: the change of b from clean to perturbed minus that of a.

        Args:
            a: The first model's quantity, clean and perturbed.
            b: The second's.
        """
        first, second = change(a[1], a[0]), change(b[1], b[0])
        found = second.minus(first)
        entry = self._entry(found, drop_tally(*a), drop_tally(*b))
        entry |= {"a": first.value, "b": second.value, "value": found.value}
        return entry

    def flips(self, of: str, a: Matrix, b: Matrix) -> dict[str, Any]:
        """McNemar's test of the studies that flip under one model only. Studies count as independent.

        Args:
            of: What flips: reports or answers.
            a: 1 where the study flips under the first model, 0 where not, not-a-number where unknown, [N].
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

    def _entry(self, found: ResampledValue, a: Tally | None, b: Tally | None) -> dict[str, Any]:
        """Interval, p and power of a difference; p is written later where it comes from a permutation test."""
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
            self.swappable.append((entry, a, b))
        else:
            entry["p"] = found.p_value(LEVEL)
            if known.any():
                self.others.append(entry)
        return entry

    def swap(self, groups: Clusters, swaps: int, rng: np.random.Generator) -> list[dict[str, Any]]:
        """Run the permutation tests; returns the entries of all tests that enter the correction.

        Two models with the same counts of every patient leave nothing to test, and such entries are left out.
        """
        a, b = [a for _, a, _ in self.swappable], [b for _, _, b in self.swappable]
        tested = []
        for (entry, _, _), found in zip(self.swappable, permutation_tests(a, b, groups, swaps, rng), strict=True):
            entry["p"] = found.p
            if found.patients and not math.isnan(found.p):
                tested.append(entry)
        return tested + self.others


def swaps_for(tests: int) -> int:
    """Enough swaps that their smallest p passes Holm's correction among that many tests, twice over."""
    return max(_LEAST_SWAPS, math.ceil(2 * tests / ALPHA))


def drop_tally(clean: Quantity, perturbed: Quantity) -> Tally | None:
    """Perturbed - clean as one tally, so that both images of a patient are swapped together."""
    before, after = clean.tally, perturbed.tally
    if before is None or after is None:
        return None
    defined = before.defined | after.defined
    if after.value_of is mean_of and (before.rows[:, 1] == after.rows[:, 1]).all():
        # The same denominators: the mean of the differences, in half the columns.
        rows = np.stack([after.rows[:, 0] - before.rows[:, 0], after.rows[:, 1]], axis=1)
        return Tally(metric_of(clean.name), rows, defined, mean_of)
    width, value_of = after.rows.shape[1], after.value_of

    def fallen(sums: Matrix) -> Matrix:
        return value_of(sums[..., :width]) - value_of(sums[..., width:])

    return Tally(metric_of(clean.name), np.concatenate([after.rows, before.rows], axis=1), defined, fallen)
