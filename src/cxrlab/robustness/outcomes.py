"""What becomes of each model under each condition, everything on one set of resampled patients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.randomness import generator
from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.tally import Matrix, Tally, mean_tally, ratio
from cxrlab.robustness.evidence import CLEAN, WORST, Evidence, Said, Table, parse_condition
from cxrlab.robustness.measurements import (
    AUROC,
    REPORT_METRICS,
    KeptResamples,
    Quantity,
    ScoredReports,
    agreement,
    asked_tallies,
    card,
    change,
    changed_findings,
    confidence,
    ends,
    flip_tallies,
    mean_auroc,
    mean_of_cells,
    quantities,
    right,
    written_tallies,
)

TRIALS = 1000

Quantities = Mapping[str, Quantity]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One model under one condition.

    Args:
        table: What it said.
        image: Quantity by name, of the images as floating-point numbers.
        uint8: The same of the images rounded to 8 bits; None where they were not shown.
    """

    table: Table
    image: Quantities
    uint8: Quantities | None


class Audit:
    """Evidence with the resamples and scored reports that every number of it shares.

    Args:
        evidence: Of all models.
        trials: Resamples of patients.
        seed: Decides them.
    """

    def __init__(self, evidence: Evidence, *, trials: int = TRIALS, seed: int = 7) -> None:
        self.evidence = evidence
        self.seed = seed
        patients = [study.patient for study in evidence.studies]
        self.resamples = KeptResamples(patients, trials=trials, rng=generator(seed, "robustness", "intervals"))
        self.scores = ScoredReports(evidence)
        self._worst: dict[str, dict[str, Table]] = {}
        self._outcomes: dict[tuple[str, str, str | None], Outcome] = {}

    def worst(self, model: str) -> dict[str, Table]:
        """`worst@EPS` → table, from the smallest size."""
        if model not in self._worst:
            self._worst[model] = worst_tables(self.evidence, self.scores, model)
        return self._worst[model]

    def tables(self, model: str) -> dict[str, Table]:
        """Condition → table of every change made for this model or for none, the worst cases last."""
        return {**self.evidence.own(model), **self.worst(model)}

    def clean(self, model: str) -> Outcome:
        """The images as they are."""
        return self.outcome(self.evidence.clean(model))

    def outcome(self, table: Table) -> Outcome:
        """One condition against the clean images of the same model; computed once."""
        key = (table.model, table.condition.text, table.crafted_on)
        if key not in self._outcomes:
            self._outcomes[key] = self._computed(table)
        return self._outcomes[key]

    def measured(self, said: Said, clean: Said | None, names: Collection[str] | None = None) -> dict[str, Quantity]:
        """Quantities of what a model said, by name.

        Args:
            said: Of the images in question.
            clean: Of the clean images, against which flips are counted; None for the clean images themselves.
            names: Which ones; all when None.
        """
        truth = self.evidence.truth
        tallies: dict[str, Tally] = {
            **asked_tallies(said, truth),
            **written_tallies(said, truth),
            **{name: self.scores.tally(name, said) for name in REPORT_METRICS},
        }
        if clean is not None:
            tallies |= flip_tallies(said, clean, truth, self.scores)
        wanted = {name: tally for name, tally in tallies.items() if names is None or name in names}
        found = quantities(wanted, self.resamples)
        if names is None or AUROC in names:
            found[AUROC] = mean_auroc(said.probs, truth, self.resamples)
        return found

    def _computed(self, table: Table) -> Outcome:
        clean = self.evidence.clean(table.model)
        unchanged = table.condition.kind == CLEAN
        image = self.measured(table.image, None if unchanged else clean.image)
        uint8 = None
        if table.uint8 is not None:
            before = clean.image if clean.uint8 is None else clean.uint8
            uint8 = self.measured(table.uint8, None if unchanged else before)
        return Outcome(table, image, uint8)


def described(found: Quantities, clean: Quantities | None) -> dict[str, Any]:
    """Quantities as they are written down: each with its interval and n, and its difference from clean."""
    told: dict[str, Any] = {}
    for name, quantity in found.items():
        told[name] = quantity.to_json()
        if clean is not None and name in clean:
            told[name]["difference"] = ends(change(quantity, clean[name]))
    if clean is not None:
        told["confidence"] = told["asked.confidence" if found["asked.confidence"].n else "report.confidence"]
    return told


ALL = "all"


def by_label(evidence: Evidence, said: Said, clean: Said, resamples: Resamples) -> dict[str, Any]:
    """Label → n, positives, and accuracy and confidence, original against perturbed; `all` is every label together.

    Original and perturbed are taken over the same answers: those known, and given on both images. `n` and `positives`
    count the studies whose truth is known; `n` beside a measure counts the answers that entered it.

    Args:
        evidence: Whose truth it is.
        said: Of the changed images.
        clean: Of the clean ones.
        resamples: Patients.
    """
    truth = evidence.truth
    columns = [(name, slice(number, number + 1)) for number, name in enumerate(evidence.labels)]
    columns.append((ALL, slice(None)))
    measures = {
        ("asked", "accuracy"): _both(right(clean.probs, truth), right(said.probs, truth)),
        ("asked", "confidence"): _both(_sure(clean, truth), _sure(said, truth)),
        ("written", "accuracy"): _both(_wrote(clean, truth), _wrote(said, truth)),
    }
    tallies: dict[str, Tally] = {}
    for (kind, measure), cells in measures.items():
        for name, place in columns:
            for when, table in zip(("original", "perturbed"), cells, strict=True):
                tallies[f"{name}|{kind}.{measure}|{when}"] = mean_of_cells(measure, table[:, place])
    found = quantities(tallies, resamples)
    rows: dict[str, Any] = {}
    for name, place in columns:
        known = truth[:, place]
        rows[name] = {"n": int((~np.isnan(known)).sum()), "positives": int((known == 1).sum())}
        for kind, measure in measures:
            key = f"{name}|{kind}.{measure}"
            before, after = found[f"{key}|original"], found[f"{key}|perturbed"]
            row = rows[name].setdefault(kind, {"n": before.n})
            row[measure] = {
                "original": ends(before),
                "perturbed": ends(after),
                "difference": ends(change(after, before)),
            }
    return rows


def _both(before: Matrix, after: Matrix) -> Iterable[Matrix]:
    """Two tables, each only where the other has a value too."""
    known = ~(np.isnan(before) | np.isnan(after))
    return [np.where(known, table, np.nan) for table in (before, after)]


def _sure(said: Said, truth: Matrix) -> Matrix:
    return np.where(np.isnan(truth), np.nan, confidence(said.probs))


def _wrote(said: Said, truth: Matrix) -> Matrix:
    return agreement(np.where(said.written[:, None], said.labels, np.nan), truth)


Curves = dict[str, dict[str, list[list[float]]]]


def curves(clean: Quantities, outcomes: Iterable[Outcome]) -> Curves:
    """Quantity → attack → [[eps, value, low, high], …] from the smallest size.

    A quantity that clean images have begins with them at size 0; flips, which are counted against clean, do not.
    A quantity that the model does not have (reports of an encoder) has no curves.

    Args:
        clean: Quantities of the clean images.
        outcomes: Of any conditions; those that are no attacks are passed over.
    """
    attacks = [one for one in outcomes if one.table.condition.kind == "attack"]
    attacks.sort(key=lambda one: (one.table.condition.attack, one.table.condition.eps or 0))
    found: Curves = {}
    for one in attacks:
        condition = one.table.condition
        for name, quantity in one.image.items():
            if not quantity.n:
                continue
            start = [_point(0.0, clean[name])] if name in clean else []
            curve = found.setdefault(name, {}).setdefault(condition.attack, start)
            curve.append(_point(condition.eps or 0.0, quantity))
    return found


def _point(eps: float, quantity: Quantity) -> list[float]:
    return [eps, *ends(quantity).values()]


@dataclass(frozen=True, eq=False)
class SmallestEps:
    """From which size on an attack does harm.

    Args:
        grid: Sizes as written, from the smallest.
        sizes: The same as numbers.
        by_study: Smallest harmful size of each study, [N]; infinite where none did harm, not-a-number where harm
            cannot be told.
        shares: Of each size the share of studies that are harmed by then.
        median: The size by which half of the studies are harmed; None where that is never reached.
    """

    grid: tuple[str, ...]
    sizes: tuple[float, ...]
    by_study: Matrix
    shares: tuple[Quantity, ...]
    median: str | None


def worst_tables(evidence: Evidence, scores: ScoredReports, model: str) -> dict[str, Table]:
    """`worst@2/255` → the most harmful answers of each study, for each size that was tried."""
    ranked, clean = _attacks(evidence, model), evidence.clean(model)
    found = {}
    for eps, text in _grid(ranked):
        # The clean image lies in every ball: an attacker who finds nothing worse leaves it as it is.
        among = [clean, *(table for table in ranked if _size(table) <= eps + _SAME)]
        image = worst([table.image for table in among], clean.image, evidence.truth, scores)
        rounded = [table.uint8 for table in among if table.uint8 is not None]
        before = clean.uint8 or clean.image
        uint8 = worst(rounded, before, evidence.truth, scores) if len(rounded) == len(among) else None
        key = f"{WORST}@{text}"
        found[key] = Table(model, parse_condition(key), model, image, uint8)
    return found


def worst(among: Sequence[Said], clean: Said, truth: Matrix, scores: ScoredReports) -> Said:
    """Of each study the most harmful report and, apart from it, the most harmful answers; the first of equals.

    Reports are ranked by significant errors (where no reference tells them, by observations that differ from the clean
    image's report), then by loss; answers by how many are wrong, then by how little probability the truth is given.
    """
    harm = [np.where(np.isnan(e := scores.errors(said)), changed_findings(said, clean, scores), e) for said in among]
    report = _most(harm, [said.loss for said in among])
    asked = _most([wrong_answers(said, truth) for said in among], [-_truth_given(said, truth) for said in among])
    return among[0].chosen(among[1:], report, asked)


def wrong_answers(said: Said, truth: Matrix) -> Matrix:
    """Answers of each study that are not the truth, [N]; not-a-number where none was asked."""
    cells = right(said.probs, truth)
    return np.where(np.isnan(cells).all(axis=1), np.nan, (cells == 0).sum(axis=1))


def smallest_harmful(
    clean: Table,
    worst_of: dict[str, Table],
    harm: Callable[[Said], Matrix],
    name: str,
    resamples: Resamples,
) -> SmallestEps:
    """The smallest size at which the worst case has more harm than the clean image.

    Args:
        clean: Of the model.
        worst_of: See `worst_tables`; from the smallest size.
        harm: A count of each study [N]: significant errors of its report, or wrong answers.
        name: Of the shares.
        resamples: Patients.
    """
    before = harm(clean.image)
    by_study = np.where(np.isnan(before), np.nan, np.inf)
    conditions = [table.condition for table in worst_of.values()]
    shares = {}
    for condition, table in zip(conditions, worst_of.values(), strict=True):
        after = harm(table.image)
        by_study = np.where(np.isnan(after), np.nan, by_study)
        by_study = np.where((after > before) & np.isinf(by_study), condition.eps or 0.0, by_study)
        harmed = np.where(np.isnan(by_study), np.nan, np.isfinite(by_study))
        shares[condition.text] = mean_tally(card(name), harmed)
    found = tuple(quantities(shares, resamples).values())
    reached = [condition for condition, share in zip(conditions, found, strict=True) if share.value >= 0.5]
    return SmallestEps(
        tuple(str(condition.eps_text) for condition in conditions),
        tuple(float(condition.eps or 0) for condition in conditions),
        by_study,
        found,
        reached[0].eps_text if reached else None,
    )


# Sizes that differ by less are one size written in two ways, such as 2/255 and 0.00784314.
_SAME = 1e-6


def _size(table: Table) -> float:
    return table.condition.eps or 0.0


def _attacks(evidence: Evidence, model: str) -> list[Table]:
    """From the smallest size, so that the first of equally harmful images is the least changed one."""
    tables = [table for table in evidence.own(model).values() if table.condition.kind == "attack"]
    return sorted(tables, key=lambda table: (_size(table), table.condition.text))


def _grid(ranked: Sequence[Table]) -> list[tuple[float, str]]:
    grid: list[tuple[float, str]] = []
    for table in ranked:
        if not grid or _size(table) > grid[-1][0] + _SAME:
            grid.append((_size(table), str(table.condition.eps_text)))
    return grid


def _most(first: Sequence[Matrix], then: Sequence[Matrix]) -> NDArray[np.intp]:
    """For each study which one has the most, equals told apart by `then`; what is unknown ranks last."""
    one, two = (np.where(np.isnan(columns), -np.inf, columns) for columns in (np.stack(first), np.stack(then)))
    tied = one == one.max(axis=0)
    top = np.where(tied, two, -np.inf)
    found: NDArray[np.intp] = np.argmax(tied & (top == top.max(axis=0)), axis=0)
    return found


def _truth_given(said: Said, truth: Matrix) -> Matrix:
    """Mean probability that a study's answers give to the truth, [N]; not-a-number where none was asked."""
    given = np.where(truth == 1, said.probs, np.where(truth == 0, 1 - said.probs, np.nan))
    count = (~np.isnan(given)).sum(axis=1)
    return ratio(np.nansum(given, axis=1), count)
