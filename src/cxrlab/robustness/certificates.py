"""Radii inside which no change can turn a smoothed answer, study by study, and how many answers have them.

The votes on the clean images are on file already; what follows from them costs no further look at an image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.tally import Matrix
from cxrlab.robustness.evidence import ImageAnswer, StudyTruth
from cxrlab.robustness.quantities import mean_of_cells, quantities
from cxrlab.robustness.smoothing import SmoothedAnswer, Smoothing, vote

CERTIFICATES = "certificates.jsonl"
RADII = (0.0, 0.25, 0.5, 1.0)  # in standard deviations of the noise


def keep_certificates(run: Run, key: str, clean: Mapping[str, ImageAnswer], settings: Smoothing) -> None:
    """A line a study in certificates.jsonl: of each label the votes, the answer and its radius.

    Args:
        run: The open run.
        key: Of the smoothed model.
        clean: Study → what it said of the clean image.
        settings: Of its votes.
    """
    done = run.done(CERTIFICATES)
    for study, said in clean.items():
        line = f"{key}|{study}"
        if line not in done:
            answers = {name: voted(share, settings) for name, share in said.label_probs.items()}
            run.append(CERTIFICATES, {"id": line, "model": key, "study": study, "answers": answers})


def voted(share: float, settings: Smoothing) -> SmoothedAnswer:
    """What a share of yes among the copies comes to."""
    return vote(round(share * settings.n), settings.n, settings.sigma, settings.alpha)


def certified(
    run: Run, key: str, truths: Sequence[StudyTruth], settings: Smoothing, *, trials: int, seed: int
) -> dict[str, Any]:
    """Share of the known labels that are answered rightly and cannot be turned within a radius, and of no answers.

    Args:
        run: Whose certificates.jsonl is read.
        key: Of the smoothed model.
        truths: Of all studies.
        settings: Of its votes.
        trials: Resamples of patients.
        seed: Decides them.
    """
    lines = {record["study"]: record["answers"] for _, record in read_jsonl(run.path(CERTIFICATES))
             if record["model"] == key}  # fmt: skip
    sizes = [radius * settings.sigma for radius in RADII]
    tables = {f"{size:g}": _cells(truths, lines, size) for size in sizes}
    resamples = Resamples(
        [one.patient for one in truths], trials=trials, rng=generator(seed, "robustness", "intervals")
    )
    tallies = {name: mean_of_cells("certified", cells) for name, cells in tables.items()}
    tallies["abstained"] = mean_of_cells("abstained", _cells(truths, lines, None))
    found = {name: one.to_json() for name, one in quantities(tallies, resamples).items()}
    return {
        "sigma": settings.sigma,
        "copies": settings.n,
        "alpha": settings.alpha,
        "largest": vote(settings.n, settings.n, settings.sigma, settings.alpha).radius,
        "abstained": found.pop("abstained"),
        "right_within": found,
        "sentence": (
            f"Closed answers to clean images that are right and stay so under every change of at most this Euclidean "
            f"length (ε in each of P pixels is ε·√P), each wrongly with a probability of at most {settings.alpha:g}; "
            "reports are not smoothed."
        ),
    }


def _cells(truths: Iterable[StudyTruth], lines: Mapping[str, Mapping[str, Any]], size: float | None) -> Matrix:
    """[studies, labels]: 1 where an answer is right at this radius, or with None where there is no answer; else 0."""
    names = sorted({name for answers in lines.values() for name in answers})
    return np.array([[_cell(truth, lines[truth.id], name, size) for name in names] for truth in truths], np.float64)


def _cell(truth: StudyTruth, answers: Mapping[str, Any], name: str, size: float | None) -> float:
    if name not in truth.labels or name not in answers:
        return np.nan
    answer = answers[name]["answer"]
    if size is None:
        return float(answer is None)
    return float(answer is not None and answer == bool(truth.labels[name]) and answers[name]["radius"] >= size)
