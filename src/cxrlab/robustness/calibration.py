"""Temperature scaling of closed answers: fitted on clean images of the val split, applied to every condition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cxrlab.core.errors import DataError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.runs import Run
from cxrlab.core.terminal import track
from cxrlab.core.workers import Workers
from cxrlab.evaluation.generate import select_studies
from cxrlab.metrics.classification import HOTTEST, fit_temperature
from cxrlab.robustness.sweep import group_by_shape, image_batch

if TYPE_CHECKING:
    from cxrlab.robustness.audited_models import AuditedModel
    from cxrlab.robustness.audited_studies import Case, Cases
    from cxrlab.robustness.config import RobustnessConfig

CALIBRATION_FILE = "calibration.jsonl"
SPLIT = "val"


@dataclass(frozen=True)
class FittedTemperature:
    """The temperature of one model."""

    temperature: float  # Above 1 for answers that are too confident
    answers: int  # Known answers that it was fitted to
    studies: int
    split: str = SPLIT
    at_limit: bool = False  # Whether the answers were all right, or so wrong that none fits


def fit_temperatures(
    run: Run, cases: Cases, models: Sequence[AuditedModel], config: RobustnessConfig, workers: Workers | None = None
) -> dict[str, FittedTemperature]:
    """Key of each model that answers questions → its temperature; answers are kept in calibration.jsonl."""
    if not config.calibration_studies:
        return {}
    ids = select_studies(cases.corpus, SPLIT, config.calibration_studies, config.seed)
    chosen = cases.load(ids)
    tested = {case.patient for case in cases.all}
    if both := sorted(tested & {case.patient for case in chosen}):
        raise DataError(
            f"{cases.corpus.path}: {len(both)} audited patients are also in the {SPLIT} split (for example '{both[0]}'), "
            "on which temperatures are fitted; keep each patient in one split, or give --calibration-studies 0."
        )
    if not chosen:
        raise DataError(
            f"{cases.corpus.path} has no study in its {SPLIT} split to fit temperatures on; give --calibration-studies 0."
        )
    done, size = run.done(CALIBRATION_FILE), config.batch_size
    batches = [chosen[start : start + size] for start in range(0, len(chosen), size)]
    work = [(model, batch) for model in models for batch in batches]
    left = [one for one in work if not done.issuperset(f"{one[0].key}|{case.id}" for case in one[1])]
    found: Iterator[list[tuple[int, list[float]]]]
    if workers is None:
        found = (label_probabilities(model, cases, batch) for model, batch in left)
    else:
        found = workers.map("label_probabilities", ((model.key, [case.id for case in batch]) for model, batch in left))
    for model, batch in track(work, "asking studies of the val split", len(models) * len(chosen), size=_size):
        if done.issuperset(f"{model.key}|{case.id}" for case in batch):
            continue
        for place, row in next(found):
            case = batch[place]
            if (name := f"{model.key}|{case.id}") not in done:
                given = {label.name: value for label, value in zip(model.labels, row, strict=True)}
                known = {label: case.truth[label] for label in given if label in case.truth}
                line = {"id": name, "model": model.key, "study": case.id, "label_probs": given, "labels": known}
                run.append(CALIBRATION_FILE, line)
    return read_temperatures(file) if (file := run.path(CALIBRATION_FILE)).is_file() else {}


def label_probabilities(model: AuditedModel, cases: Cases, batch: Sequence[Case]) -> list[tuple[int, list[float]]]:
    """Place in the batch and P(yes) of each label; nothing for a model that answers no questions."""
    model.clear_cache()
    rows: list[tuple[int, list[float]]] = []
    for places in group_by_shape(images := [cases.image(case) for case in batch]):
        shown = image_batch([images[place] for place in places]).to(model.device)
        with torch.no_grad():
            found = model.probabilities(shown, [batch[place] for place in places])
        if found is None:
            break
        rows += zip(places, found.double().cpu().tolist(), strict=True)
    return rows


def read_temperatures(file: Path) -> dict[str, FittedTemperature]:
    """Key of each model → the temperature that fits its answers on file."""
    by_model: dict[str, list[tuple[float, int]]] = {}
    studies: dict[str, int] = {}
    for _, line in read_jsonl(file):
        key = str(line["model"])
        studies[key] = studies.get(key, 0) + 1
        pairs = [(line["label_probs"][name], value) for name, value in line["labels"].items()]
        by_model.setdefault(key, []).extend(pairs)
    found = {}
    for key, pairs in by_model.items():
        given, true = np.array(pairs, np.float64).reshape(-1, 2).T
        temperature = fit_temperature(given, true)
        if not math.isnan(temperature):
            at_limit = not 1.01 / HOTTEST < temperature < HOTTEST / 1.01
            found[key] = FittedTemperature(temperature, len(pairs), studies[key], at_limit=at_limit)
    return found


def _size(work: tuple[Any, Sequence[Case]]) -> int:
    return len(work[1])
