"""What alignment has gained and what it has cost: the model before and after it, on the same held-out studies.

    before/ after/                 reports of both, as `generate` writes them
    before_scored/ after_scored/   their scores
    questions.jsonl                closed questions: P(yes) before and after, and the truth
    drift.jsonl                    drawn reports of the aligned model: log-probability under both
    preference.json                before, after and paired difference by metric; length; drift; questions; retrieval

Every difference is after minus before, paired by study, with an interval by patient.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.runs import Run, finished
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.compare import compare
from cxrlab.evaluation.config import GenerateConfig, ScoreConfig
from cxrlab.evaluation.generate import PREDICTIONS, generate
from cxrlab.evaluation.inference import Images
from cxrlab.evaluation.open_models import open_model
from cxrlab.evaluation.score import run_score
from cxrlab.models.decoding import Decoding
from cxrlab.preference.asked_twice import AFTER, BEFORE, Asked, paired
from cxrlab.preference.closed_questions import answered, probabilities, questions_about
from cxrlab.preference.drift import drawn_reports, drift, weighed
from cxrlab.preference.train_config import Measure

RESULT = "preference.json"
ERRORS = "errors"  # the group of metrics that counts them by kind


def measure_cost(
    before: str, after: str, data: Path, settings: Measure, out: Path, seed: int, before_in: Path | None = None
) -> dict[str, Any]:
    """Compare the model after alignment with the one before it; returns the content of preference.json.

    Args:
        before: Name of the model that was aligned.
        after: Name of the aligned model.
        data: Corpus folder.
        settings: Which studies, which metrics.
        out: Folder for all of it; what is there of an earlier, stopped call is used.
        seed: Decides the studies, the draws and the resamples.
        before_in: Folder for reports and scores of the model before, may be shared by models that were aligned from
            the same start and are measured alike; `out` when left out.
    """
    told = {"before": before, "after": after, "data": str(data), "measure": settings}
    if finished(out, told, seed=seed):
        found: dict[str, Any] = read_json(out / RESULT)
        return found
    with Run.open(out, told, seed=seed) as run:
        written = [(before_in or out) / BEFORE, out / AFTER]
        scored = [folder.with_name(f"{folder.name}_scored") for folder in written]
        measure_before(before, data, settings, before_in or out, seed)
        _written(after, data, settings, written[1], seed)
        _scored(data, written[1], settings, scored[1], seed)
        compared = compare(scored, seed=seed, metrics=settings.metrics).to_json()
        kinds = compare(scored, seed=seed, metrics=(ERRORS,)).to_json()  # apart: two dozen tests would drown the rest
        corpus = load_corpus(data)
        studies = list(_studies(corpus, written[0]))
        result = {
            "n": len(studies),
            "patients": compared["patients"],
            **_by_metric({**kinds["metrics"], **compared["metrics"]}),
            "length": _length(studies, written, seed),
        }
        result |= _asked_both(run, before, after, corpus, studies, settings, seed)
        if settings.encoder is not None:
            from cxrlab.preference.found_images import found_images

            texts = {side: _texts(folder, studies) for side, folder in zip((BEFORE, AFTER), written, strict=True)}
            result["retrieval"] = found_images(Images(corpus), studies, texts, settings, seed)
        run.write(RESULT, result)
    return result


def measure_before(model: str, data: Path, settings: Measure, out: Path, seed: int) -> None:
    """Let the model that is to be aligned write its reports, and score them; see `measure_cost`."""
    _written(model, data, settings, out / BEFORE, seed)
    _scored(data, out / BEFORE, settings, out / f"{BEFORE}_scored", seed)


def _written(model: str, data: Path, settings: Measure, out: Path, seed: int) -> None:
    generate(
        GenerateConfig(
            model,
            data,
            split=settings.split,
            n=settings.n,
            seed=seed,
            batch_size=settings.batch_size,
            control_studies=settings.control_studies,
            decoding=Decoding(max_new_tokens=settings.max_new_tokens),
        ),
        out,
    )


def _scored(data: Path, predictions: Path, settings: Measure, out: Path, seed: int) -> None:
    metrics = (*settings.metrics, ERRORS)
    run_score(ScoreConfig(data, predictions, metrics=metrics, floors=False, slices=False, seed=seed), out)


def _by_metric(compared: Mapping[str, Any]) -> dict[str, Any]:
    """Before, after and difference, each by metric."""
    told: dict[str, dict[str, Any]] = {BEFORE: {}, AFTER: {}, "difference": {}}
    for name, one in compared.items():
        for side in (BEFORE, AFTER):
            value = one["values"][f"{side}_scored"]
            told[side][name] = {key: value[key] for key in ("value", "low", "high", "n")}
        gap = one["against"][f"{AFTER}_scored"]
        kept = ("difference", "low", "high", "p", "p_holm", "verdict", "by_study")
        told["difference"][name] = {"direction": one["direction"], **{key: gap[key] for key in kept}}
    return told


def _studies(corpus: Corpus, run: Path) -> Iterator[Asked]:
    for _, record in read_jsonl(run / PREDICTIONS):
        study = corpus[str(record["id"])]
        text = study.sections.findings if study.sections else None
        yield Asked(study.id, study.patient, text or "")


def _texts(run: Path, studies: Sequence[Asked]) -> list[str]:
    said = _reports(run)
    return [str(said[study.id]["report"]) for study in studies]


def _reports(run: Path) -> dict[str, dict[str, Any]]:
    return {str(record["id"]): record for _, record in read_jsonl(run / PREDICTIONS)}


def _length(studies: Sequence[Asked], written: Sequence[Path], seed: int) -> dict[str, Any]:
    """Words a report before and after, of the reference, and how sure the model was of its own words."""
    patients = [study.patient for study in studies]
    told: dict[str, Any] = {"reference": float(np.mean([len(study.reference.split()) for study in studies]))}
    runs = [_reports(folder) for folder in written]
    words = [[float(len(str(run[study.id]["report"]).split())) for study in studies] for run in runs]
    told["words"] = paired("words", words[0], words[1], patients, seed)
    sure = [[run[study.id].get("confidence", {}).get("mean_logprob", np.nan) for study in studies] for run in runs]
    told["mean_logprob"] = paired("mean_logprob", sure[0], sure[1], patients, seed)
    return told


def _asked_both(
    run: Run, before: str, after: str, corpus: Corpus, studies: Sequence[Asked], settings: Measure, seed: int
) -> dict[str, Any]:
    """Drift and closed questions; one model in memory at a time."""
    images = Images(corpus)
    questions = questions_about(corpus, studies, seed) if settings.questions else []
    drawn: dict[str, str] | None = None
    weighable: list[Asked] = []
    tokens: list[int] = []
    sums: dict[str, list[float]] = {}
    yes: dict[str, list[float]] = {}
    for name, model_name in ((AFTER, after), (BEFORE, before)):  # the aligned one first: it draws what both weigh
        model: Any = open_model(model_name, None, [corpus.shown])
        if settings.drift:
            if drawn is None:
                drawn = drawn_reports(model, images, studies, settings, seed)
                weighable = [study for study in studies if study.id in drawn]
            sums[name], tokens = weighed(model, images, weighable, drawn, settings)
        yes[name] = probabilities(model, images, questions, settings)
        del model
        gc.collect()
    told: dict[str, Any] = {}
    if weighable:
        told["drift"] = drift(run, weighable, sums, tokens, len(studies) - len(weighable), seed)
    if questions:
        told["questions"] = answered(run, questions, yes, seed)
    return told
