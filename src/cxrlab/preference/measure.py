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
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.evaluation.compare import compare
from cxrlab.evaluation.config import GenerateConfig, ScoreConfig
from cxrlab.evaluation.generate import PREDICTIONS, Images, generate
from cxrlab.evaluation.open_models import open_model
from cxrlab.evaluation.score import run_score
from cxrlab.findings.questions import known_answers, question_about
from cxrlab.metrics.retrieval import first_match_rank, recall
from cxrlab.metrics.statistics.paired_tests import paired_difference
from cxrlab.metrics.tally import Metric, mean_tally
from cxrlab.models.decoding import TRUNCATED, Decoding
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.names import load_encoder
from cxrlab.preference.config import Measure

RESULT = "preference.json"
ERRORS = "errors"  # the group of metrics that counts them by kind


def measure_alignment(
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
        measure_start(before, data, settings, before_in or out, seed)
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
            texts = {side: _texts(folder, studies) for side, folder in zip((BEFORE, AFTER), written, strict=True)}
            result["retrieval"] = found_images(Images(corpus), studies, texts, settings, seed)
        run.write(RESULT, result)
    return result


def measure_start(model: str, data: Path, settings: Measure, out: Path, seed: int) -> None:
    """Let the model that is to be aligned write its reports, and score them; see `measure_alignment`."""
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
        model: Any = open_model(model_name, None, [corpus.egress_data])
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


BEFORE, AFTER = "before", "after"


@dataclass(frozen=True)
class Asked:
    """One study; `reference` is its findings in words, "" where there are none."""

    id: str
    patient: str
    reference: str


def paired(
    name: str, before: Sequence[float], after: Sequence[float], patients: Sequence[str], seed: int
) -> dict[str, float]:
    """Means before and after, and the difference with its interval and p, by patient."""
    card = Metric(name, "higher", (-np.inf, np.inf), None, "")  # the direction plays no part here
    found = paired_difference(
        mean_tally(card, list(before)), mean_tally(card, list(after)), patients, rng=generator(seed, "cost", name)
    )
    told = {BEFORE: found.a, AFTER: found.b, "difference": found.difference}
    return {**told, "low": found.low, "high": found.high, "p": found.p}


def batches(items: Sequence[Any], size: int, label: str) -> Iterator[Sequence[Any]]:
    """The items so many at a time, with progress."""
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

    study: Asked
    words: str
    truth: bool


def questions_about(corpus: Corpus, studies: Sequence[Asked], seed: int) -> list[Question]:
    """Of each study one question that is answered by yes and one by no, where it knows them."""
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


def answered(run: Run, questions: Sequence[Question], yes: Mapping[str, Sequence[float]], seed: int) -> dict[str, Any]:
    """Share of questions answered rightly, squared error of P(yes) and calibration error; evidence in questions.jsonl.

    Args:
        run: The open run.
        questions: In order.
        yes: P(yes) of the model before and after.
        seed: Of the resamples.
    """
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
    """Mean distance of P(yes) from the share of yes, over ten bins of equal width weighted by what they hold."""
    bins = np.minimum((probability * _BINS).astype(int), _BINS - 1)
    gaps = [
        abs(float(probability[bins == one].sum()) - float(truth[bins == one].sum()))
        for one in range(_BINS)
        if (bins == one).any()
    ]
    return float(np.sum(gaps) / max(len(probability), 1))


DRIFT = "drift.jsonl"


def drawn_reports(model: Any, images: Images, studies: Sequence[Asked], settings: Measure, seed: int) -> dict[str, str]:
    """Study → one report from the model's own distribution.

    A report that was cut at `max_new_tokens` is left out: weighed again it would have an end that was never drawn.
    """
    decoding = Decoding("sample", max_new_tokens=settings.max_new_tokens, seed=seed)
    found: dict[str, str] = {}
    for batch in batches(studies, settings.batch_size, "drawing reports"):
        shown = [images.image(study.id) for study in batch], [images.indication(study.id) for study in batch]
        for study, (answer, *_) in zip(batch, model.answers(*shown, decoding), strict=True):
            if not answer.extra.get(TRUNCATED):
                found[study.id] = answer.text
    return found


def weighed(
    model: Any, images: Images, studies: Sequence[Asked], reports: Mapping[str, str], settings: Measure
) -> tuple[list[float], list[int]]:
    """Natural log-probability of the report of each study under a model, and its tokens, the end token among them."""
    import torch

    sums: list[float] = []
    tokens: list[int] = []
    for batch in batches(studies, settings.batch_size, "weighing drawn reports"):
        shown, texts = [images.image(study.id) for study in batch], [reports[study.id] for study in batch]
        with torch.no_grad():
            found = model.log_probabilities(shown, texts, [images.indication(study.id) for study in batch])
        sums += found.sums.tolist()
        tokens += found.mask.sum(dim=1).tolist()
    return sums, tokens


def drift(
    run: Run, studies: Sequence[Asked], sums: Mapping[str, Sequence[float]], tokens: Sequence[int], cut: int, seed: int
) -> dict[str, Any]:
    """KL a report with its interval, and a token; the evidence goes into drift.jsonl.

    Args:
        run: The open run.
        studies: Those with a report, in order.
        sums: Log-probability of the drawn reports under the model before and after.
        tokens: Of the reports.
        cut: Studies whose report was cut, and is not among them.
        seed: Of the resamples.
    """
    rows = zip(studies, sums[BEFORE], sums[AFTER], tokens, strict=True)
    write_lines(run, DRIFT, ({"id": one.id, BEFORE: low, AFTER: high, "tokens": n} for one, low, high, n in rows))
    each = paired("log-probability", sums[BEFORE], sums[AFTER], [study.patient for study in studies], seed)
    a_token = float(np.sum(sums[AFTER]) - np.sum(sums[BEFORE])) / max(sum(tokens), 1)
    told = {"kl_report": each["difference"], "low": each["low"], "high": each["high"], "kl_token": a_token}
    return {**told, "n": len(studies), "cut": cut}


KS = (1, 5, 10)


def found_images(
    images: Images, studies: Sequence[Asked], reports: Mapping[str, Sequence[str]], settings: Measure, seed: int
) -> dict[str, Any]:
    """Recall@1, 5 and 10 of the image by the report that was written for it, among the images of all studies.

    Args:
        images: What the encoder is shown.
        studies: In order.
        reports: Those of the model before and after, in the same order.
        settings: With the name of the encoder.
        seed: Of the resamples.
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
    told: dict[str, Any] = {"encoder": settings.encoder, "gallery": len(studies)}
    for k in KS:
        hits = [recall("text_to_image", places[side], k).by_pair.tolist() for side in (BEFORE, AFTER)]
        told[f"recall@{k}"] = paired(f"recall@{k}", hits[0], hits[1], patients, seed)
    return told
