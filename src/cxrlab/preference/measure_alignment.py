"""Gains and costs of alignment: the model before and after it, on the same held-out studies.

    before/ after/                 reports of both, as `generate` writes them
    before_scored/ after_scored/   their scores
    questions.jsonl                closed questions: P(yes) before and after, and the truth
    drift.jsonl                    sampled reports of the aligned model: log-probability under both
    preference.json                before, after and paired difference per metric; length; drift; questions; retrieval

Every difference is after minus before, paired by study, with an interval over patients.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.files import read_json
from cxrlab.core.json_values import dumps, plain
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import track
from cxrlab.data.config import ContextConfig
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.compare import compare
from cxrlab.evaluation.config import GenerateConfig, ScoreConfig
from cxrlab.evaluation.generate import PREDICTIONS, Images, generate
from cxrlab.evaluation.load_model import open_model
from cxrlab.evaluation.score import run_score
from cxrlab.findings.closed_questions import known_answers, question_about
from cxrlab.metrics.base import Metric, mean_tally
from cxrlab.metrics.retrieval import first_match_rank, recall
from cxrlab.metrics.statistics.paired_tests import paired_difference
from cxrlab.models.decoding import TRUNCATED, Decoding
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_registry import load_encoder
from cxrlab.preference.config import Measure

RESULT = "preference.json"
SINGLE = ContextConfig()  # one image per study
ERRORS = "errors"  # the group of metrics that counts them by kind


BEFORE, AFTER = "before", "after"


@dataclass(frozen=True)
class MeasuredStudy:
    """One study; `reference` is its findings text, "" where it has none."""

    id: str
    patient: str
    reference: str


def measure_alignment(
    before: str,
    after: str,
    data: Path,
    settings: Measure,
    out: Path,
    seed: int,
    before_in: Path | None = None,
    context: ContextConfig = SINGLE,
) -> dict[str, Any]:
    """Compare the model after alignment with the one before it; returns the content of preference.json.

    Args:
        before: Name of the model that was aligned.
        after: Name of the aligned model.
        settings: Which studies, which metrics.
        out: Run folder; a stopped call is continued.
        seed: Decides the studies, the draws and the resamples.
        before_in: Folder for reports and scores of the model before, which models that were aligned from the same
            start may share; `out` when left out.
        context: What both models receive of each study.
    """
    inputs = {"before": before, "after": after, "data": str(data), "measure": settings, **context.recorded}
    if finished(out, inputs, seed=seed):
        found: dict[str, Any] = read_json(out / RESULT)
        return found
    with Run.open(out, inputs, seed=seed) as run:
        measure_start(before, data, settings, before_in or out, seed, context)
        folders = {BEFORE: (before_in or out) / BEFORE, AFTER: out / AFTER}
        scored = [folder.with_name(f"{folder.name}_scored") for folder in folders.values()]
        _generate_and_score(after, data, settings, folders[AFTER], scored[1], seed, context)
        compared = compare(scored, seed=seed, metrics=settings.metrics).to_json()
        # Apart: two dozen more tests would weaken the correction of the others.
        kinds = compare(scored, seed=seed, metrics=(ERRORS,)).to_json()
        corpus = load_corpus(data)
        reports = {
            side: {str(record["id"]): record for _, record in read_jsonl(folder / PREDICTIONS)}
            for side, folder in folders.items()
        }
        studies = []
        for key in reports[BEFORE]:
            study = corpus[key]
            text = study.sections.findings if study.sections else None
            studies.append(MeasuredStudy(study.id, study.patient, text or ""))
        result: dict[str, Any] = {"n": len(studies), "patients": compared["patients"]}
        result |= {BEFORE: {}, AFTER: {}, "difference": {}}
        for name, one in {**kinds["metrics"], **compared["metrics"]}.items():
            for side in (BEFORE, AFTER):
                value = one["values"][f"{side}_scored"]
                result[side][name] = {key: value[key] for key in ("value", "low", "high", "n")}
            gap = one["against"][f"{AFTER}_scored"]
            kept = ("difference", "low", "high", "p", "p_holm", "verdict", "by_study")
            result["difference"][name] = {"direction": one["direction"], **{key: gap[key] for key in kept}}
        result["length"] = compare_lengths(reports, studies, seed)
        result |= _drift_and_questions(run, {BEFORE: before, AFTER: after}, corpus, studies, settings, seed, context)
        if settings.encoder is not None:
            texts = {side: [str(reports[side][one.id]["report"]) for one in studies] for side in (BEFORE, AFTER)}
            result["retrieval"] = retrieve_images(Images(corpus), studies, texts, settings, seed)
        run.write(RESULT, result)
    return result


def measure_start(
    model: str, data: Path, settings: Measure, out: Path, seed: int, context: ContextConfig = SINGLE
) -> None:
    """Generate and score the reports of the model before alignment; see `measure_alignment`."""
    _generate_and_score(model, data, settings, out / BEFORE, out / f"{BEFORE}_scored", seed, context)


def _generate_and_score(
    model: str, data: Path, settings: Measure, reports: Path, scored: Path, seed: int, context: ContextConfig
) -> None:
    generate(reports_config(model, data, settings, seed, context), reports)
    metrics = (*settings.metrics, ERRORS)
    run_score(ScoreConfig(data, reports, metrics=metrics, floors=False, slices=False, seed=seed), scored)


def reports_config(
    model: str, data: Path, settings: Measure, seed: int, context: ContextConfig = SINGLE
) -> GenerateConfig:
    """How the reports of a model before or after alignment are generated."""
    return GenerateConfig(
        model,
        data,
        split=settings.split,
        n=settings.n,
        seed=seed,
        batch_size=settings.batch_size,
        control_studies=settings.control_studies,
        decoding=Decoding(max_new_tokens=settings.max_new_tokens),
        views=context.views,
        prior=context.prior,
        missing=context.missing,
    )


def compare_lengths(
    reports: Mapping[str, Mapping[str, Any]], studies: Sequence[MeasuredStudy], seed: int
) -> dict[str, Any]:
    """Words per report before, after and of the reference, and the model's own confidence."""
    patients = [study.patient for study in studies]
    words, confidences = {}, {}
    for side in (BEFORE, AFTER):
        records = [reports[side][study.id] for study in studies]
        words[side] = [float(len(str(record["report"]).split())) for record in records]
        confidences[side] = [record.get("confidence", {}).get("mean_logprob", np.nan) for record in records]
    return {
        "reference": float(np.mean([len(study.reference.split()) for study in studies])),
        "words": paired("words", words[BEFORE], words[AFTER], patients, seed),
        "mean_logprob": paired("mean_logprob", confidences[BEFORE], confidences[AFTER], patients, seed),
    }


def _drift_and_questions(
    run: Run,
    models: Mapping[str, str],
    corpus: Corpus,
    studies: Sequence[MeasuredStudy],
    settings: Measure,
    seed: int,
    context: ContextConfig,
) -> dict[str, Any]:
    """Drift and closed questions; one model in memory at a time."""
    images = Images(corpus, context=context)
    questions = questions_about(corpus, studies, seed) if settings.questions else []
    sampled: dict[str, str] | None = None
    with_report: list[MeasuredStudy] = []
    tokens: list[int] = []
    sums: dict[str, list[float]] = {}
    yes: dict[str, list[float]] = {}
    for side in (AFTER, BEFORE):  # the aligned model first: it samples the reports
        model: Any = open_model(models[side], None, [corpus.egress_data])
        if settings.drift:
            if sampled is None:
                sampled = sample_reports(model, images, studies, settings, seed)
                with_report = [study for study in studies if study.id in sampled]
            sums[side], tokens = report_log_probabilities(model, images, with_report, sampled, settings)
        yes[side] = probabilities(model, images, questions, settings)
        del model
        gc.collect()
    found: dict[str, Any] = {}
    if with_report:
        found["drift"] = drift(run, with_report, sums, tokens, len(studies) - len(with_report), seed)
    if questions:
        found["questions"] = compare_answers(run, questions, yes, seed)
    return found


def paired(
    name: str, before: Sequence[float], after: Sequence[float], patients: Sequence[str], seed: int
) -> dict[str, float]:
    """Means before and after, and the difference with its interval and p over patients."""
    card = Metric(name, "higher", (-np.inf, np.inf), None, "")  # the direction plays no part here
    found = paired_difference(
        mean_tally(card, list(before)), mean_tally(card, list(after)), patients, rng=generator(seed, "cost", name)
    )
    means = {BEFORE: found.a, AFTER: found.b, "difference": found.difference}
    return {**means, "low": found.low, "high": found.high, "p": found.p}


def batches(items: Sequence[Any], size: int, label: str) -> Iterator[Sequence[Any]]:
    """The items in batches, with progress."""
    parts = [items[first : first + size] for first in range(0, len(items), size)]
    return track(parts, label, len(items), size=len)


def write_lines(run: Run, name: str, records: Iterable[Mapping[str, Any]]) -> None:
    """Write a whole `.jsonl` file."""
    run.write(name, "".join(dumps(plain(record)) + "\n" for record in records))


QUESTIONS = "questions.jsonl"
_BINS = 10  # of the calibration error


@dataclass(frozen=True)
class Question:
    """A question about the image of a study, and whether yes is the answer."""

    study: MeasuredStudy
    words: str
    truth: bool


def questions_about(corpus: Corpus, studies: Sequence[MeasuredStudy], seed: int) -> list[Question]:
    """For each study one question that is answered by yes and one by no, where such answers are known."""
    found = []
    for study in studies:
        answers, rng = known_answers(corpus[study.id]), generator(seed, "asked", study.id)
        for verdict in (True, False):
            if names := [name for name, value in answers.items() if value is verdict]:
                found.append(Question(study, question_about(names[int(rng.integers(len(names)))]), verdict))
    return found


def probabilities(model: Any, images: Images, questions: Sequence[Question], settings: Measure) -> list[float]:
    """P(yes) of every question."""
    import torch

    found: list[float] = []
    for batch in batches(questions, settings.batch_size, "asking closed questions"):
        with torch.no_grad():
            shown = [images.image(question.study.id) for question in batch]
            found += model.probability_of_yes(shown, [question.words for question in batch]).tolist()
    return found


def compare_answers(
    run: Run, questions: Sequence[Question], yes: Mapping[str, Sequence[float]], seed: int
) -> dict[str, Any]:
    """Accuracy, squared error of P(yes) and calibration error before and after; writes questions.jsonl."""
    rows = zip(questions, yes[BEFORE], yes[AFTER], strict=True)
    lines = (
        {"id": one.study.id, "question": one.words, "truth": one.truth, BEFORE: low, AFTER: high}
        for one, low, high in rows
    )
    write_lines(run, QUESTIONS, lines)
    truth = np.array([question.truth for question in questions])
    patients = [question.study.patient for question in questions]
    sides = [np.array(yes[name]) for name in (BEFORE, AFTER)]
    right = [((side > 0.5) == truth).astype(float).tolist() for side in sides]
    squared = [((side - truth) ** 2).tolist() for side in sides]
    errors = [calibration_error(side, truth) for side in sides]
    return {
        "n": len(questions),
        "accuracy": paired("accuracy", right[0], right[1], patients, seed),
        "squared_error": paired("squared_error", squared[0], squared[1], patients, seed),
        "calibration_error": {BEFORE: errors[0], AFTER: errors[1]},
    }


def calibration_error(probability: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    """Expected calibration error: mean distance of P(yes) from the share of yes, over ten bins of equal width."""
    bins = np.minimum((probability * _BINS).astype(int), _BINS - 1)
    gaps = [
        abs(float(probability[bins == one].sum()) - float(truth[bins == one].sum()))
        for one in range(_BINS)
        if (bins == one).any()
    ]
    return float(np.sum(gaps) / max(len(probability), 1))


DRIFT = "drift.jsonl"


def sample_reports(
    model: Any, images: Images, studies: Sequence[MeasuredStudy], settings: Measure, seed: int
) -> dict[str, str]:
    """Study → one report sampled from the model.

    A report that was cut at `max_new_tokens` is left out: its log-probability would include an end that was not sampled.
    """
    decoding = Decoding("sample", max_new_tokens=settings.max_new_tokens, seed=seed)
    found: dict[str, str] = {}
    for batch in batches(studies, settings.batch_size, "sampling reports"):
        shown, contexts = zip(*(images.given(study.id) for study in batch), strict=True)
        for study, (answer, *_) in zip(batch, model.answers(shown, contexts, decoding), strict=True):
            if not answer.extra.get(TRUNCATED):
                found[study.id] = answer.text
    return found


def report_log_probabilities(
    model: Any, images: Images, studies: Sequence[MeasuredStudy], reports: Mapping[str, str], settings: Measure
) -> tuple[list[float], list[int]]:
    """Natural log-probability of each study's report under a model, and its number of tokens, end token included."""
    import torch

    sums: list[float] = []
    tokens: list[int] = []
    for batch in batches(studies, settings.batch_size, "computing log-probabilities"):
        shown, contexts = zip(*(images.given(study.id) for study in batch), strict=True)
        with torch.no_grad():
            found = model.log_probabilities(shown, [reports[study.id] for study in batch], contexts)
        sums += found.sums.tolist()
        tokens += found.mask.sum(dim=1).tolist()
    return sums, tokens


def drift(
    run: Run,
    studies: Sequence[MeasuredStudy],
    sums: Mapping[str, Sequence[float]],
    tokens: Sequence[int],
    cut: int,
    seed: int,
) -> dict[str, Any]:
    """KL(after ‖ before) per report, with its interval, and per token; writes drift.jsonl.

    Args:
        studies: Those with a sampled report.
        sums: Log-probabilities of the sampled reports under the model before and after.
        cut: Number of studies whose report was cut, which are left out.
    """
    rows = zip(studies, sums[BEFORE], sums[AFTER], tokens, strict=True)
    write_lines(run, DRIFT, ({"id": one.id, BEFORE: low, AFTER: high, "tokens": n} for one, low, high, n in rows))
    each = paired("log-probability", sums[BEFORE], sums[AFTER], [study.patient for study in studies], seed)
    per_token = float(np.sum(sums[AFTER]) - np.sum(sums[BEFORE])) / max(sum(tokens), 1)
    found = {"kl_report": each["difference"], "low": each["low"], "high": each["high"], "kl_token": per_token}
    return {**found, "n": len(studies), "cut": cut}


KS = (1, 5, 10)


def retrieve_images(
    images: Images, studies: Sequence[MeasuredStudy], reports: Mapping[str, Sequence[str]], settings: Measure, seed: int
) -> dict[str, Any]:
    """Recall@1, 5 and 10 of each image by its generated report, among the images of all studies.

    Args:
        reports: Of the model before and after, in the same order.
        settings: With the name of the encoder.
    """
    encoder = load_encoder(str(settings.encoder), LoadSettings())
    shown = [
        encoder.embed_images([images.image(study.id) for study in batch])
        for batch in batches(studies, settings.batch_size, "embedding images")
    ]
    gallery, keys = np.concatenate(shown), np.arange(len(studies))
    places = {
        side: first_match_rank(encoder.embed_texts([text or "." for text in reports[side]]), keys, gallery, keys)
        for side in (BEFORE, AFTER)
    }
    patients = [study.patient for study in studies]
    found: dict[str, Any] = {"encoder": settings.encoder, "gallery": len(studies)}
    for k in KS:
        hits = [recall("text_to_image", places[side], k).by_pair.tolist() for side in (BEFORE, AFTER)]
        found[f"recall@{k}"] = paired(f"recall@{k}", hits[0], hits[1], patients, seed)
    return found
