"""Results of each model under each condition: quantities, the worst case of all attacks, labels and curves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.randomness import generator
from cxrlab.metrics.base import Matrix, Tally, mean_tally, ratio
from cxrlab.metrics.statistics.intervals import Resamples
from cxrlab.robustness.audit_metrics import (
    AUROC,
    REPORT_METRICS,
    RISK,
    CachedResamples,
    Evidence,
    Outputs,
    Quantity,
    ScoredReports,
    Table,
    agreement,
    answer_tallies,
    change,
    changed_findings,
    confidence,
    correct_answers,
    ends,
    flip_tallies,
    mean_auroc,
    mean_of_cells,
    metric_of,
    quantities,
    report_tallies,
    risk_coverage,
    scaled_tallies,
)
from cxrlab.robustness.audit_records import CLEAN, WORST, parse_condition

ALL = "all"
TRIALS = 1000
_SAME = 1e-6  # radii that differ by less are one radius written in two ways, such as 2/255 and 0.00784314

Quantities = Mapping[str, Quantity]
Curves = dict[str, dict[str, list[list[float]]]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One model under one condition."""

    table: Table
    image: Quantities  # Quantity by name
    uint8: Quantities | None  # The same for the images rounded to 8 bits; None where these were not examined


class Outcomes:
    """Every outcome of an audit, on one set of resampled patients; each is computed once.

    Args:
        trials: Resamples of patients.
        seed: Decides them.
        temperatures: Model → temperature of its closed answers, for those that have one.
    """

    def __init__(
        self, evidence: Evidence, *, trials: int = TRIALS, seed: int = 7,
        temperatures: Mapping[str, float] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.evidence, self.temperatures = evidence, temperatures
        self.seed = seed
        patients = [study.patient for study in evidence.studies]
        self.resamples = CachedResamples(patients, trials=trials, rng=generator(seed, "robustness", "intervals"))
        self.scores = ScoredReports(evidence)
        self._worst: dict[str, dict[str, Table]] = {}
        self._outcomes: dict[tuple[str, str, str | None], Outcome] = {}

    def worst(self, model: str) -> dict[str, Table]:
        """`worst@EPS` → table, from the smallest radius."""
        if model not in self._worst:
            self._worst[model] = worst_tables(self.evidence, self.scores, model)
        return self._worst[model]

    def tables(self, model: str) -> dict[str, Table]:
        """Condition → table, without images perturbed for another model; the worst cases come last."""
        return {**self.evidence.own(model), **self.worst(model)}

    def clean(self, model: str) -> Outcome:
        """The clean images."""
        return self.outcome(self.evidence.clean(model))

    def outcome(self, table: Table) -> Outcome:
        """One condition, compared with the clean images of the same model."""
        key = (table.model, table.condition.text, table.crafted_on)
        if key not in self._outcomes:
            clean = self.evidence.clean(table.model)
            unchanged = table.condition.kind == CLEAN
            image = self.measure(table.image, None if unchanged else clean.image)
            if table.model in self.temperatures:
                scaled = scaled_tallies(table.image, self.evidence.truth, self.temperatures[table.model])
                image |= quantities(scaled, self.resamples)
            uint8 = None
            if table.uint8 is not None:
                uint8 = self.measure(table.uint8, None if unchanged else clean.uint8 or clean.image)
            self._outcomes[key] = Outcome(table, image, uint8)
        return self._outcomes[key]

    def measure(
        self, outputs: Outputs, clean: Outputs | None, names: Collection[str] | None = None
    ) -> dict[str, Quantity]:
        """Quantities by name.

        Args:
            clean: Outputs for the clean images, against which flips are counted; None for the clean images themselves.
            names: Which ones; all when None.
        """
        truth = self.evidence.truth
        tallies: dict[str, Tally] = {
            **answer_tallies(outputs, truth),
            **report_tallies(outputs, truth),
            **{name: self.scores.tally(name, outputs) for name in REPORT_METRICS},
        }
        if clean is not None:
            tallies |= flip_tallies(outputs, clean, truth, self.scores)
        found = quantities(
            {name: tally for name, tally in tallies.items() if names is None or name in names}, self.resamples
        )
        if names is None or AUROC in names:
            found[AUROC] = mean_auroc(outputs.probs, truth, self.resamples)
        if names is None or RISK in names:
            found[RISK] = risk_coverage(outputs.probs, truth, self.resamples)
        return found


def model_results(outcomes: Outcomes, model: str) -> dict[str, Any]:
    """One model: clean, under every condition, by label, the smallest harmful radius, and curves."""
    evidence, clean, tables = outcomes.evidence, outcomes.clean(model), outcomes.tables(model)
    row: dict[str, Any] = {"key": model, "clean": describe(clean.image, None)}
    if clean.uint8 is not None:
        row["clean_uint8"] = describe(clean.uint8, None)
    row |= {"attacks": {}, "corruptions": {}, "worst": {}}
    changed = {condition: outcomes.outcome(table) for condition, table in tables.items()}
    for text, outcome in changed.items():
        condition = outcome.table.condition
        if condition.name == WORST:
            row["worst"][condition.eps_text] = _condition_results(outcome, clean)
        else:
            row[f"{condition.kind}s"][text] = _condition_results(outcome, clean)
    row["labels"] = {
        condition: by_label(evidence, table.image, clean.table.image, outcomes.resamples)
        for condition, table in tables.items()
    }
    harms: dict[str, Callable[[Outputs], Matrix]] = {
        "report": outcomes.scores.errors,
        "closed_questions": partial(wrong_answers_by_study, truth=evidence.truth),
    }
    row["smallest_eps"] = {
        name: smallest_harmful(clean.table, outcomes.worst(model), harm, f"harmed.{name}", outcomes.resamples)
        for name, harm in harms.items()
    }
    row["curves"] = curves(clean.image, changed.values())
    return row


def _condition_results(outcome: Outcome, clean: Outcome) -> dict[str, Any]:
    """Quantities, and how the attacks went over the images of which that is known."""
    row = describe(outcome.image, clean.image)
    if outcome.uint8 is not None:
        row["uint8"] = describe(outcome.uint8, clean.uint8 or clean.image)
    known = {name: column[~np.isnan(column)] for name, column in outcome.table.trace.items()}
    if known:
        means = {name: float(column.mean()) if len(column) else None for name, column in known.items()}
        row["realised"] = {
            name: {"mean": means[name], "max": float(known[name].max()) if len(known[name]) else None}
            for name in ("linf", "l2")
        }
        row |= {name: means[name] for name in ("passes", "broken", "zero_gradients")}
    return row


def answers_by_condition(outcomes: Outcomes, model: str) -> dict[str, Any]:
    """Quantities of closed answers on clean and on changed images, without the worst cases."""
    tables = {CLEAN: outcomes.evidence.clean(model), **outcomes.evidence.own(model)}
    return {
        condition: {
            name: quantity.to_json()
            for name, quantity in outcomes.outcome(table).image.items()
            if name.startswith("closed_questions.") or name == "reports.accuracy"
        }
        for condition, table in tables.items()
    }


def describe(found: Quantities, clean: Quantities | None) -> dict[str, Any]:
    """Quantities for robustness.json: each with its interval and n, and its difference from clean."""
    rows: dict[str, Any] = {}
    for name, quantity in found.items():
        rows[name] = quantity.to_json()
        if clean is not None and name in clean:
            rows[name]["difference"] = ends(change(quantity, clean[name]))
    if clean is not None:
        rows["confidence"] = rows[
            "closed_questions.confidence" if found["closed_questions.confidence"].n else "report.confidence"
        ]
    return rows


def by_label(evidence: Evidence, outputs: Outputs, clean: Outputs, resamples: Resamples) -> dict[str, Any]:
    """Label → n, positives, and accuracy and confidence, original against perturbed; `all` is every label together.

    Original and perturbed are taken over the same answers: those known, and given on both images. `n` and `positives`
    count the studies whose truth is known; `n` beside a measure counts the answers that entered it.
    """
    truth = evidence.truth
    columns = [(name, slice(number, number + 1)) for number, name in enumerate(evidence.labels)]
    columns.append((ALL, slice(None)))
    measures: dict[tuple[str, str], list[Matrix]] = {
        ("closed_questions", "accuracy"): [correct_answers(one.probs, truth) for one in (clean, outputs)],
        ("closed_questions", "confidence"): [
            np.where(np.isnan(truth), np.nan, confidence(one.probs)) for one in (clean, outputs)
        ],
        ("reports", "accuracy"): [
            agreement(np.where(one.has_report[:, None], one.labels, np.nan), truth) for one in (clean, outputs)
        ],
    }
    tallies: dict[str, Tally] = {}
    for (kind, measure), tables in measures.items():
        known = ~np.isnan(tables[0] + tables[1])
        for name, place in columns:
            for when, table in zip(("original", "perturbed"), tables, strict=True):
                cells = np.where(known, table, np.nan)[:, place]
                tallies[f"{name}|{kind}.{measure}|{when}"] = mean_of_cells(measure, cells)
    found = quantities(tallies, resamples)
    rows: dict[str, Any] = {}
    for name, place in columns:
        labels = truth[:, place]
        rows[name] = {"n": int((~np.isnan(labels)).sum()), "positives": int((labels == 1).sum())}
        for kind, measure in measures:
            before, after = (found[f"{name}|{kind}.{measure}|{when}"] for when in ("original", "perturbed"))
            row = rows[name].setdefault(kind, {"n": before.n})
            row[measure] = {
                "original": ends(before),
                "perturbed": ends(after),
                "difference": ends(change(after, before)),
            }
    return rows


def curves(clean: Quantities, outcomes: Iterable[Outcome]) -> Curves:
    """Quantity → attack → [[eps, value, low, high], …] from the smallest radius.

    A quantity that clean images have begins with them at radius 0; flips, which are counted against clean, do not. A
    quantity that the model does not have (reports of an encoder) has no curves.
    """
    attacks = [one for one in outcomes if one.table.condition.kind == "attack"]
    attacks.sort(key=lambda one: (one.table.condition.attack, one.table.condition.eps or 0))
    found: Curves = {}
    for one in attacks:
        condition = one.table.condition
        for name, quantity in one.image.items():
            if not quantity.n:
                continue
            start = [[0.0, *ends(clean[name]).values()]] if name in clean else []
            curve = found.setdefault(name, {}).setdefault(condition.attack, start)
            curve.append([condition.eps or 0.0, *ends(quantity).values()])
    return found


def worst_tables(evidence: Evidence, scores: ScoredReports, model: str) -> dict[str, Table]:
    """`worst@2/255` → the most harmful outputs of each study, for each radius that was tried.

    An attacker tries everything and keeps what works: for each study and radius the most harmful image is taken among
    all attacks of at most that radius, without those made for another model; corruptions are not attacks.
    """
    # From the smallest radius, so that the first of equally harmful images is the least changed one.
    attacks = sorted(
        (table for table in evidence.own(model).values() if table.condition.kind == "attack"),
        key=lambda table: (_radius(table), table.condition.text),
    )
    radii: list[tuple[float, str]] = []
    for table in attacks:
        if not radii or _radius(table) > radii[-1][0] + _SAME:
            radii.append((_radius(table), str(table.condition.eps_text)))
    clean = evidence.clean(model)
    found = {}
    for eps, text in radii:
        # The clean image lies in every ball: an attacker who finds nothing worse leaves it as it is.
        candidates = [clean, *(table for table in attacks if _radius(table) <= eps + _SAME)]
        image = worst([table.image for table in candidates], clean.image, evidence.truth, scores)
        rounded = [table.uint8 for table in candidates if table.uint8 is not None]
        before = clean.uint8 or clean.image
        uint8 = worst(rounded, before, evidence.truth, scores) if len(rounded) == len(candidates) else None
        key = f"{WORST}@{text}"
        found[key] = Table(model, parse_condition(key), model, image, uint8)
    return found


def _radius(table: Table) -> float:
    return table.condition.eps or 0.0


def worst(candidates: Sequence[Outputs], clean: Outputs, truth: Matrix, scores: ScoredReports) -> Outputs:
    """For each study the most harmful report and, separately, the most harmful answers; the first of equals.

    Reports are ranked by significant errors (without a reference, by observations that differ from the report of the
    clean image), then by loss; answers by the number that is wrong, then by the probability given to the truth.
    """
    harm = [np.where(np.isnan(e := scores.errors(one)), changed_findings(one, clean, scores), e) for one in candidates]
    report = _argmax_with_ties(harm, [one.loss for one in candidates])
    negative_truth_probability = []  # minus the mean probability that a study's answers give to the truth
    for one in candidates:
        given = np.where(truth == 1, one.probs, np.where(truth == 0, 1 - one.probs, np.nan))
        negative_truth_probability.append(-ratio(np.nansum(given, axis=1), (~np.isnan(given)).sum(axis=1)))
    answers = _argmax_with_ties([wrong_answers_by_study(one, truth) for one in candidates], negative_truth_probability)
    return candidates[0].select(candidates[1:], report, answers)


def wrong_answers_by_study(outputs: Outputs, truth: Matrix) -> Matrix:
    """Number of wrong answers per study, [N]; not-a-number where none was asked."""
    cells = correct_answers(outputs.probs, truth)
    return np.where(np.isnan(cells).all(axis=1), np.nan, (cells == 0).sum(axis=1))


def _argmax_with_ties(first: Sequence[Matrix], then: Sequence[Matrix]) -> NDArray[np.intp]:
    """For each study the index of the largest value, ties decided by `then`; unknown values rank last."""
    one, two = (np.where(np.isnan(columns), -np.inf, columns) for columns in (np.stack(first), np.stack(then)))
    tied = one == one.max(axis=0)
    top = np.where(tied, two, -np.inf)
    found: NDArray[np.intp] = np.argmax(tied & (top == top.max(axis=0)), axis=0)
    return found


def smallest_harmful(
    clean: Table, worst_of: Mapping[str, Table], harm: Callable[[Outputs], Matrix], name: str, resamples: Resamples
) -> dict[str, Any]:
    """The smallest radius at which the worst case has more harm than the clean image.

    Args:
        worst_of: See `worst_tables`; from the smallest radius.
        harm: A count for each study [N]: significant errors of its report, or wrong answers.
        name: Of the shares.

    Returns:
        n (studies of which the harm is known), median (radius by which half of the studies are harmed, or None), and
        harmed: radius → share of the studies that are harmed by then.
    """
    before = harm(clean.image)
    smallest = np.where(np.isnan(before), np.nan, np.inf)  # of each study; infinite where none did harm
    shares: dict[str, Tally] = {}
    for text, table in worst_of.items():
        after = harm(table.image)
        smallest = np.where(np.isnan(after), np.nan, smallest)
        smallest = np.where((after > before) & np.isinf(smallest), _radius(table), smallest)
        harmed = np.where(np.isnan(smallest), np.nan, np.isfinite(smallest))
        shares[text] = mean_tally(metric_of(name), harmed)
    found = quantities(shares, resamples)
    radii = {text: str(table.condition.eps_text) for text, table in worst_of.items()}
    return {
        "n": int((~np.isnan(smallest)).sum()),
        "median": next((radii[text] for text, share in found.items() if share.value >= 0.5), None),
        "harmed": {radii[text]: {"eps": _radius(worst_of[text]), **share.to_json()} for text, share in found.items()},
    }
