"""The table that is read first: label by label, how often a model is right and how sure it is, before and after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.tally import Matrix, Tally
from cxrlab.robustness.quantities import agreement, change, confidence, ends, mean_of_cells, quantities, right
from cxrlab.robustness.tables import Evidence, Said

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
