"""What becomes of each model under each condition, everything on one set of resampled patients."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cxrlab.core.randomness import generator
from cxrlab.metrics.tally import Tally
from cxrlab.robustness.conditions import CLEAN
from cxrlab.robustness.flips import flip_tallies
from cxrlab.robustness.quantities import (
    AUROC,
    KeptResamples,
    Quantity,
    asked_tallies,
    change,
    ends,
    mean_auroc,
    quantities,
    written_tallies,
)
from cxrlab.robustness.scored_reports import REPORT_METRICS, ScoredReports
from cxrlab.robustness.tables import Evidence, Said, Table
from cxrlab.robustness.worst_case import worst_tables

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
