"""`cxrlab classify`: observations from images, measured against reports, exact findings or label tables."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_json
from cxrlab.core.json_values import nan_if_none
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.randomness import generator
from cxrlab.core.records import Study
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.core.vocabulary import OBSERVATIONS
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.observation_labels import NORMAL, study_labels
from cxrlab.data.pairs import view_name
from cxrlab.data.views import selected_image
from cxrlab.evaluation.config import ClassifyConfig
from cxrlab.metrics.classification import (
    Auroc,
    auroc_interval,
    fit_temperature,
    fixed_calibration_error,
    scaled,
)
from cxrlab.metrics.statistics.intervals import Resamples
from cxrlab.models.finding_classifier import FindingClassifier

CLASSIFICATION, PROBABILITIES = "classification.json", "probabilities.jsonl"
OPERATIONAL = ("batch_size", "loading.device")  # settings that may change when a run is continued


@dataclass(frozen=True)
class Calibration:
    """Expected calibration error over all measured labels together, in 15 bins of equal width, by patient."""

    value: float
    low: float
    high: float
    n: int  # studies


@dataclass(frozen=True)
class Classified:
    """The result of a classification."""

    model: str | None
    data: str
    split: str | None  # None for the studies of files with probabilities
    studies: int
    truth: Mapping[str, int]  # source of the labels → studies
    left_out: Mapping[str, int]  # reason → studies
    labels: Mapping[str, Auroc]  # those with enough positive studies
    mean_auroc: float
    rare: Mapping[str, int]  # labels with fewer, and their positives
    calibration: Calibration
    temperature: float | None = None  # fitted on another split; None without --calibrate
    calibrated: Calibration | None = None  # after division of the logits by it

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Classified:
        """The content of classification.json."""

        def numbers(row: Mapping[str, Any]) -> dict[str, Any]:
            return {key: nan_if_none(value) if value is None else value for key, value in row.items()}

        after = values["calibrated"]
        return cls(
            **{
                **values,
                "labels": {name: Auroc(**numbers(row)) for name, row in values["labels"].items()},
                "mean_auroc": nan_if_none(values["mean_auroc"]),
                "calibration": Calibration(**numbers(values["calibration"])),
                "calibrated": None if after is None else Calibration(**numbers(after)),
            }
        )


def classify(config: ClassifyConfig, out: Path) -> Classified:
    """Measure the probabilities of a model, or of files, against what is known of each study.

    Writes RUN/probabilities.jsonl and RUN/classification.json. A stopped run is continued, a finished one with the same
    settings is left as it is.
    """
    if finished(out, config, seed=config.seed, operational=OPERATIONAL):
        return Classified.from_json(read_json(out / CLASSIFICATION))
    corpus = load_corpus(config.data)
    temperature = None
    if config.model is None:
        given = _read_probabilities(config.probabilities)
        names = tuple(name for name in (*OBSERVATIONS, NORMAL) if any(name in row for row in given.values()))
        studies, left_out = [_known(corpus, name) for name in given], Counter[str]()
        table = np.array([[row.get(name, math.nan) for name in names] for row in given.values()])
        with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
            return _measured(run, config, names, studies, table, left_out, None)
    classifier = FindingClassifier(config.model, config.loading, config.batch_size)
    names = classifier.labels.names
    views = classifier.labels.views if config.views is None else config.views
    with Run.open(out, config, seed=config.seed, operational=OPERATIONAL) as run:
        studies, left_out = _with_images(corpus, config.split, views)
        table = _predicted(run, corpus, studies, views, classifier)
        if config.calibrate is not None:
            others, _ = _with_images(corpus, config.calibrate, views)
            fitted = [
                classifier.probabilities([_images(corpus, study, views) for study in others[first : first + 64]])
                for first in track(range(0, len(others), 64), f"fitting the temperature on {config.calibrate}")
            ]
            temperature = fit_temperature(np.concatenate(fitted), _truth(config, names, others)[0])
        return _measured(run, config, names, studies, table, left_out, temperature)


def _read_probabilities(files: Sequence[Path]) -> dict[str, dict[str, float]]:
    """The probabilities by study; a study in two files is an error."""
    found: dict[str, dict[str, float]] = {}
    for file in files:
        path = file / PROBABILITIES if file.is_dir() else file
        for _, row in read_jsonl(path):
            values = row.get("probabilities") if isinstance(row, dict) else None
            if not isinstance(values, dict) or not isinstance(row.get("id"), str):
                raise DataError(f'{path}: every line must be {{"id": …, "probabilities": {{"cardiomegaly": 0.1, …}}}}.')
            if wrong := sorted(set(values) - {*OBSERVATIONS, NORMAL}):
                raise DataError(
                    f"{path}: '{wrong[0]}' is no observation of the vocabulary (cxrlab/core/vocabulary.py)."
                )
            if not all(isinstance(one, (int, float)) and 0.0 <= one <= 1.0 for one in values.values()):
                raise DataError(f"{path}: the probabilities of '{row['id']}' are not all numbers from 0 to 1.")
            if row["id"] in found:
                raise DataError(f"{path}: study '{row['id']}' has probabilities twice; a study belongs to one fold.")
            found[row["id"]] = {name: float(one) for name, one in values.items()}
    if not found:
        raise DataError(f"{', '.join(map(str, files))}: no probabilities there.")
    return found


def _known(corpus: Corpus, name: str) -> Study:
    try:
        return corpus[name]
    except (KeyError, DataError) as error:
        raise DataError(f"study '{name}' of the probabilities is not in {corpus.path}; name its corpus.") from error


def _with_images(corpus: Corpus, split: str, views: Sequence[str]) -> tuple[list[Study], Counter[str]]:
    """The studies of a split that have an image of the views, and how many have none."""
    if not corpus.ids(split):
        raise corpus.no_study_error(split)
    every = list(corpus.studies(split))
    usable = [study for study in every if _image_numbers(study, views)]
    if not usable:
        raise DataError(f"{corpus.path}: no {split} study has an image of the views {', '.join(views) or 'frontal'}.")
    return usable, Counter({"no image of these views": len(every) - len(usable)})


def _image_numbers(study: Study, views: Sequence[str]) -> list[int]:
    """Images of a study that the model receives: all of the views or, without views, one frontal image."""
    if study.caption is not None or not study.images:
        return []
    if views:
        return [number for number, image in enumerate(study.images) if view_name(image) in views]
    try:
        return [selected_image(study).number]
    except DataError:
        return []


def _images(corpus: Corpus, study: Study, views: Sequence[str]) -> list[Any]:
    return [corpus.image(study, number) for number in _image_numbers(study, views)]


def _predicted(
    run: Run, corpus: Corpus, studies: Sequence[Study], views: Sequence[str], classifier: FindingClassifier
) -> NDArray[np.float64]:
    """Probabilities [N, L]; those of a stopped run are read."""
    names, done = classifier.labels.names, run.done(PROBABILITIES)
    todo = [study for study in studies if study.id not in done]
    blocks = [todo[first : first + 64] for first in range(0, len(todo), 64)]
    for block in track(blocks, "classifying studies", len(todo), size=len):
        rows = classifier.probabilities([_images(corpus, study, views) for study in block])
        for study, row in zip(block, rows, strict=True):
            values = {name: round(float(value), 6) for name, value in zip(names, row, strict=True)}
            run.append(PROBABILITIES, {"id": study.id, "patient": study.patient, "probabilities": values})
    stored = {row["id"]: row["probabilities"] for _, row in read_jsonl(run.path(PROBABILITIES))}
    return np.array([[stored[study.id][name] for name in names] for study in studies])


def _truth(
    config: ClassifyConfig, names: Sequence[str], studies: Sequence[Study]
) -> tuple[NDArray[np.float64], Counter[str]]:
    """Known labels [N, L], 1 or 0 and not-a-number where unknown; and the sources of the labels."""
    rows, sources = np.full((len(studies), len(names)), math.nan), Counter[str]()
    for row, study in zip(rows, studies, strict=True):
        labels = study_labels(study, config.truth, config.section)
        sources[labels.source if labels else "none"] += 1
        if labels is not None:
            absent = labels.complete or (labels.source == "report" and config.unmentioned == "negative")
            row[:] = [float(labels.values.get(name, False if absent else math.nan)) for name in names]
    return rows, sources


def _measured(
    run: Run, config: ClassifyConfig, names: Sequence[str], studies: Sequence[Study], table: NDArray[np.float64],
    left_out: Counter[str], temperature: float | None,
) -> Classified:  # fmt: skip
    truth, sources = _truth(config, names, studies)
    truth[np.isnan(table)] = math.nan
    patients = np.array([study.patient for study in studies])
    positives = (truth == 1).sum(0)
    seed = int(generator(config.seed, "classify").integers(1 << 62))  # each label resamples from the same stream
    areas: dict[str, Auroc] = {}
    for column, name in enumerate(names):
        known = ~np.isnan(truth[:, column])
        if positives[column] >= config.min_positives and (truth[:, column] == 0).any():
            rng = np.random.Generator(np.random.PCG64(seed))
            resamples = Resamples(patients[known].tolist(), trials=config.trials, rng=rng)
            areas[name] = auroc_interval(table[known, column], truth[known, column] == 1, resamples, config.level)
    if not areas:
        most = max(zip(positives.tolist(), names, strict=True), default=(0, "none"))
        raise DataError(
            f"{config.data}: no label has {config.min_positives} positive studies of {len(studies):,} ('{most[1]}' has "
            f"{most[0]}); lower --min-positives, or choose another --truth or split."
        )
    measured = [column for column, name in enumerate(names) if name in areas]

    def calibration(probabilities: NDArray[np.float64]) -> Calibration:
        tally = fixed_calibration_error(probabilities[:, measured], truth[:, measured])
        rng = np.random.Generator(np.random.PCG64(seed))
        (found,) = Resamples(patients.tolist(), trials=config.trials, rng=rng).estimates([tally], config.level)
        return Calibration(tally.value, found.low, found.high, tally.n)

    found = Classified(
        model=config.model,
        data=str(config.data),
        split=config.split if config.model is not None else None,
        studies=len(studies),
        truth=dict(sources),
        left_out=dict(+left_out),
        labels=areas,
        mean_auroc=math.fsum(one.value for one in areas.values()) / len(areas),
        rare={name: int(count) for name, count in zip(names, positives, strict=True) if name not in areas},
        calibration=calibration(table),
        temperature=temperature,
        calibrated=None if temperature is None else calibration(scaled(table, temperature)),
    )
    run.write(CLASSIFICATION, found)
    return found
