"""What all judges share: who is asked, each question once, and a record of every answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final
from weakref import WeakKeyDictionary

import numpy as np

from cxrlab.core.errors import RunError
from cxrlab.core.protocols import REFUSED, Generated, TextModel
from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.parsing.parsed import Reading
from cxrlab.metrics.judging.prompts import JudgePrompt, Question, load_prompt
from cxrlab.metrics.pairs import Batch, Pair, wordless
from cxrlab.metrics.tally import Metric, Tally, mean_tally

REFERENCE, CANDIDATE = "reference", "candidate"
MODEL_REFUSES = "the model refuses to answer"
UNDEFINED = "pairs without a reference or a candidate, and those whose answer could not be read"


@dataclass(frozen=True)
class Judged:
    """One pair after judging.

    Args:
        status: What became of the answer.
        reason: Why it is not whole; None where it is.
        values: The metrics' values in the order of the cards; not-a-number where there is none.
        told: What else the answer tells, for the record.
        answer: The model's own words; None where nothing was asked.
    """

    status: Reading
    reason: str | None
    values: tuple[float, ...]
    told: Mapping[str, Any]
    answer: str | None


class Judge(ABC):
    """A family of metrics whose values a language model gives.

    Args:
        model: What is asked.
        name: What the metrics call the model; its own name when None.
        prompt: The wording; the built-in when None.
        max_tokens: Longest answer; the class's own when None.
    """

    wording: ClassVar[str]  # the file beside this one that holds the built-in wording
    places: ClassVar[tuple[str, ...]]  # the reports that the judge is shown
    longest: ClassVar[int] = 1024  # tokens of an answer

    def __init__(
        self,
        model: TextModel,
        name: str | None = None,
        prompt: JudgePrompt | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.model, self.max_tokens = model, max_tokens or self.longest
        self.prompt = prompt or load_prompt(self.wording, self.places)
        self.metrics: Sequence[Metric] = self.cards(name or model.name, self.prompt)
        self._judged: WeakKeyDictionary[Batch, list[Judged]] = WeakKeyDictionary()

    @classmethod
    @abstractmethod
    def cards(cls, model: str, prompt: JudgePrompt) -> tuple[Metric, ...]:
        """The cards of its metrics for a model of this name; no model is needed."""

    @abstractmethod
    def read(self, answer: Answer, silent: bool) -> Judged:
        """One answer as values.

        Args:
            answer: What the model said, with its mark and the reports that it was shown.
            silent: Whether the candidate has no word.
        """

    @final
    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally a metric; the model is asked once a batch, however often this is called."""
        rows = np.array([judged.values for judged in self.judged(batch)], dtype=np.float64)
        return [mean_tally(metric, rows[:, column]) for column, metric in enumerate(self.metrics)]

    @final
    def evidence(self, batch: Batch) -> list[Mapping[str, Any]]:
        """One plain record a pair: what became of the question, what was read and what was said."""
        return [
            {
                "id": pair.id,
                "status": judged.status.value,
                "reason": judged.reason,
                **judged.told,
                "answer": judged.answer,
            }
            for pair, judged in zip(batch.pairs, self.judged(batch), strict=True)
        ]

    @final
    def judged(self, batch: Batch) -> list[Judged]:
        """Every pair of a batch; asked when first wanted, and kept while the batch lives."""
        if batch not in self._judged:
            self._judged[batch] = self._judge(batch.pairs)
        return self._judged[batch]

    def why_not(self, pair: Pair) -> str | None:
        """Why a pair is not to be asked about; None where it is. A candidate without a word is a report that fails."""
        if pair.reference is None or (REFERENCE in self.places and wordless(pair.reference)):
            return "there is no reference" if pair.reference is None else "the reference has no word"
        return "there is no candidate" if pair.candidate is None else None

    def _judge(self, pairs: Sequence[Pair]) -> list[Judged]:
        reasons = [self.why_not(pair) for pair in pairs]
        asked = [pair for pair, reason in zip(pairs, reasons, strict=True) if reason is None]
        questions = [self.prompt.ask(self._shown(pair)) for pair in asked]
        answers = iter(ask(self.model, questions, self.max_tokens))
        found = []
        nothing = tuple(float("nan") for _ in self.metrics)
        for pair, reason in zip(pairs, reasons, strict=True):
            if reason is not None:
                found.append(Judged(Reading.NOT_ASKED, reason, nothing, {}, None))
                continue
            answer, given = next(answers)
            if refused(given):
                found.append(Judged(Reading.FAILED, MODEL_REFUSES, nothing, {}, given.text))
            else:
                found.append(self.read(answer, wordless(pair.candidate or "")))
        return found

    def _shown(self, pair: Pair) -> dict[str, str]:
        texts = {REFERENCE: pair.reference or "", CANDIDATE: pair.candidate or ""}
        return {place: texts[place] for place in self.places}


def refused(given: Generated) -> bool:
    """Whether an answer is no answer but a refusal, as far as the model or its server says so itself."""
    return given.extra.get(REFUSED) is True or bool(given.extra.get("refusal"))


def ask(model: TextModel, questions: Sequence[Question], max_tokens: int) -> list[tuple[Answer, Generated]]:
    """The answer to each question, in order; a question that occurs twice is asked once.

    Args:
        model: What is asked.
        questions: Any number.
        max_tokens: Longest answer.
    """
    prompts = list(dict.fromkeys(question.prompt for question in questions))
    given = model.complete(prompts, max_tokens=max_tokens) if prompts else []
    if len(given) != len(prompts):
        raise RunError(f"{model.name} gave {len(given)} answers to {len(prompts)} prompts; use another model.")
    answers = dict(zip(prompts, given, strict=True))
    return [(_answer(question, answers[question.prompt]), answers[question.prompt]) for question in questions]


def _answer(question: Question, given: Generated) -> Answer:
    cut = given.extra.get("truncated") is True or given.extra.get("finish_reason") == "length"
    return Answer(given.text, question.mark, question.reports, cut)
