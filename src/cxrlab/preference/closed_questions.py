"""Closed questions with known answers, before and after alignment: whether another task has suffered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run
from cxrlab.data.corpus import Corpus
from cxrlab.evaluation.inference import Images
from cxrlab.findings.questions import known_answers, question_about
from cxrlab.preference.asked_twice import AFTER, BEFORE, Asked, batches, paired, write_lines
from cxrlab.preference.train_config import Measure

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
