"""Judges: metrics computed by a language model, and a judge that compares two reports."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, final
from weakref import WeakKeyDictionary

import numpy as np

from cxrlab.core.errors import RunError
from cxrlab.core.model_interfaces import REFUSED, Generated, TextModel
from cxrlab.metrics.base import VERSION, Metric, Tally, mean_tally
from cxrlab.metrics.finding_scores import green_score, length_controlled
from cxrlab.metrics.judging.answer_text import Answer, Reading
from cxrlab.metrics.judging.count_formats import CELLS, SIGNIFICANT, Parsed, describe_cell
from cxrlab.metrics.judging.grades_and_choices import EQUAL, FIRST, SECOND, ParsedChoice, parse_choice, parse_grade
from cxrlab.metrics.judging.parse_counts import parse_counts
from cxrlab.metrics.judging.prompts import JudgePrompt, Question, load_prompt
from cxrlab.metrics.report_pairs import Batch, Pair, wordless

REFERENCE, CANDIDATE = "reference", "candidate"
MODEL_REFUSES = "the model refuses to answer"
UNDEFINED = "pairs without a reference or a candidate, and those whose answer could not be read"


@dataclass(frozen=True)
class Judged:
    """One pair after judging."""

    status: Reading  # how much of the answer could be read
    reason: str | None  # why it is not whole; None where it is
    values: tuple[float, ...]  # in the order of the metrics; not-a-number where there is none
    details: Mapping[str, Any]  # what else the answer contains, for the record
    answer: str | None  # the model's own words; None where nothing was asked


class Judge(ABC):
    """A family of metrics computed by a language model, which the metrics call `name` (its own name when None)."""

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
    def read(self, answer: Answer, pair: Pair) -> Judged:
        """One answer about a pair as values."""

    @final
    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally per metric; the model is asked once per batch, however often this is called."""
        rows = np.array([judged.values for judged in self.judged(batch)], dtype=np.float64)
        return [mean_tally(metric, rows[:, column]) for column, metric in enumerate(self.metrics)]

    @final
    def evidence(self, batch: Batch) -> list[Mapping[str, Any]]:
        """One record per pair: status, what was read, and the answer."""
        return [
            {
                "id": pair.id,
                "status": judged.status.value,
                "reason": judged.reason,
                **judged.details,
                "answer": judged.answer,
            }
            for pair, judged in zip(batch.pairs, self.judged(batch), strict=True)
        ]

    @final
    def judged(self, batch: Batch) -> list[Judged]:
        """Every pair of a batch; asked on first use, and cached as long as the batch exists."""
        if batch not in self._judged:
            self._judged[batch] = self._judge(batch.pairs)
        return self._judged[batch]

    def why_not(self, pair: Pair) -> str | None:
        """Why a pair is not judged; None where it is, also for a candidate without a word."""
        if pair.reference is None or (REFERENCE in self.places and wordless(pair.reference)):
            return "there is no reference" if pair.reference is None else "the reference has no word"
        return "there is no candidate" if pair.candidate is None else None

    def _judge(self, pairs: Sequence[Pair]) -> list[Judged]:
        reasons = [self.why_not(pair) for pair in pairs]
        asked = [pair for pair, reason in zip(pairs, reasons, strict=True) if reason is None]
        questions = []
        for pair in asked:
            texts = {REFERENCE: pair.reference or "", CANDIDATE: pair.candidate or ""}
            questions.append(self.prompt.ask({place: texts[place] for place in self.places}))
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
                found.append(self.read(answer, pair))
        return found


def _silent(pair: Pair) -> bool:
    return wordless(pair.candidate or "")


def refused(given: Generated) -> bool:
    """Whether the model or its server marks the answer as a refusal."""
    return given.extra.get(REFUSED) is True or bool(given.extra.get("refusal"))


def ask(model: TextModel, questions: Sequence[Question], max_tokens: int) -> list[tuple[Answer, Generated]]:
    """The answer to each question, in order; a question that occurs twice is asked once."""
    prompts = list(dict.fromkeys(question.prompt for question in questions))
    given = model.complete(prompts, max_tokens=max_tokens) if prompts else []
    if len(given) != len(prompts):
        raise RunError(f"{model.name} gave {len(given)} answers to {len(prompts)} prompts; use another model.")
    answers = dict(zip(prompts, given, strict=True))
    found = []
    for question in questions:
        answer = answers[question.prompt]
        cut = answer.extra.get("truncated") is True or answer.extra.get("finish_reason") == "length"
        found.append((Answer(answer.text, question.mark, question.reports, cut), answer))
    return found


_SIGNIFICANT = tuple(cell for cell in CELLS if cell[0] == SIGNIFICANT)


class ChexPrompt(Judge):
    """Errors per report: all, the significant ones, each of the twelve counts, and the shares of reports without errors.

    A count is a whole number. A total, and whether it is 0, has no value where one of its counts is missing. A candidate
    without a word is judged like any other, as all findings of the reference are missing from it, but is never free of
    errors.
    """

    wording: ClassVar[str] = "chexprompt"
    places: ClassVar[tuple[str, ...]] = (REFERENCE, CANDIDATE)

    @classmethod
    def cards(cls, model: str, prompt: JudgePrompt) -> tuple[Metric, ...]:
        """See `Judge`."""
        conventions = {"kinds": "rexval-6", "prompt": prompt.label, "average": "report"}

        def card(part: str, about: str) -> Metric:
            name = f"chexprompt{part}:{model}"
            return Metric(name, "lower", (0.0, math.inf), None, UNDEFINED, conventions, about)

        def share(part: str, about: str) -> Metric:
            name = f"chexprompt.error-free{part}:{model}"
            return Metric(name, "higher", (0.0, 1.0), None, UNDEFINED, conventions, about)

        return (
            card("", "errors per report, as a language model counts them"),
            card(
                ".significant", "errors per report that are likely to change what is done, as a language model counts"
            ),
            share("", "share of reports without an error, as a language model counts"),
            share(".significant", "share of reports without a significant error, as a language model counts"),
            *(
                card(f".{kind.value}.{weight}", f"{describe_cell((weight, kind))}, per report")
                for weight, kind in CELLS
            ),
        )

    def read(self, answer: Answer, pair: Pair) -> Judged:
        """See `Judge`."""
        parsed = parse_counts(answer)
        totals = (parsed.total(), parsed.total(_SIGNIFICANT))
        free = (None if total is None else float(total == 0 and not _silent(pair)) for total in totals)
        values = (*totals, *free, *(parsed.counts.get(cell) for cell in CELLS))
        numbers = tuple(math.nan if value is None else value for value in values)
        record = {"counts": parsed.plain(), "score": parsed.total()}
        return Judged(parsed.status, parsed.reason, numbers, record, answer.text)


def green_value(parsed: Parsed, nothing_matched: float = 1.0) -> float | None:
    """GREEN's score of an answer; None where a count that it needs is missing.

    `nothing_matched` is the score where nothing is matched and nothing is wrong. As in `green:rules` it is 1, because two
    normal reports agree; published is 0.
    """
    wrong = parsed.total(_SIGNIFICANT)
    if wrong is None or parsed.matched is None:
        return None
    # Both are whole numbers: the parser refuses fractions.
    matched, errors = int(parsed.matched), int(wrong)
    return green_score(matched, [errors]) if matched or errors else nothing_matched


class GreenJudge(Judge):
    """GREEN's score, and its significant errors and matched findings.

    A candidate without a word scores 0 at most, whatever the answer: an empty report is not a normal one.
    """

    kind: ClassVar[str] = "green"
    about: ClassVar[str] = "matched findings against significant errors, as a language model counts them"
    nothing_matched: ClassVar[float] = 1.0
    conventions: ClassVar[Mapping[str, str]] = {"nothing-to-match": "1"}
    wording: ClassVar[str] = "green"
    places: ClassVar[tuple[str, ...]] = (REFERENCE, CANDIDATE)

    @classmethod
    def cards(cls, model: str, prompt: JudgePrompt) -> tuple[Metric, ...]:
        """See `Judge`."""
        counts = {"kinds": "rexval-6", "prompt": prompt.label, "average": "report"}
        formula = {"formula": "green", **cls.conventions, "no-word": "0", **counts}
        significant = "significant errors per report, from the same answer"
        matched = "findings per report that both reports have, from the same answer"
        endless = (0.0, math.inf)
        return (
            Metric(f"{cls.kind}:{model}", "higher", (0.0, 1.0), None, UNDEFINED, formula, cls.about),
            Metric(f"{cls.kind}.significant:{model}", "lower", endless, None, UNDEFINED, counts, significant),
            Metric(f"{cls.kind}.matched:{model}", "higher", endless, None, UNDEFINED, counts, matched),
        )

    def read(self, answer: Answer, pair: Pair) -> Judged:
        """See `Judge`."""
        parsed = self.parse(answer)
        score = green_value(parsed, self.nothing_matched)
        score = min(0.0, score) if score is not None and _silent(pair) else score
        values = (score, parsed.total(_SIGNIFICANT), parsed.matched)
        numbers = tuple(math.nan if value is None else value for value in values)
        record = {"counts": parsed.plain(), "matched": parsed.matched, "score": score}
        return Judged(parsed.status, parsed.reason, numbers, record, answer.text)

    def parse(self, answer: Answer) -> Parsed:
        """The counts of an answer; one that is left out is unknown."""
        return parse_counts(answer, matched=True)


class PublishedGreen(GreenJudge):
    """GREEN by the conventions of its authors' program (green-score), for CheXalign's rewards.

    A report of which nothing is matched scores 0, also beside a normal reference, and a kind of error that the answer
    leaves out counts 0. An answer that could not be read still has no score; there it counts as free of errors.
    CheXalign's length-controlled form comes from the same answer.
    """

    kind: ClassVar[str] = "green-published"
    about: ClassVar[str] = "the same by the conventions of GREEN's authors: 0 where nothing is matched"
    nothing_matched: ClassVar[float] = 0.0
    conventions: ClassVar[Mapping[str, str]] = {"nothing-to-match": "0", "left-out": "0"}

    @classmethod
    def cards(cls, model: str, prompt: JudgePrompt) -> tuple[Metric, ...]:
        """See `Judge`."""
        score, *counts = super().cards(model, prompt)
        controlled = replace(
            score,
            name=f"{cls.kind}.length-controlled:{model}",
            conventions={**score.conventions, "length": "÷ max(words / reference's words, 1)"},
            about="the score of a report that is no longer than its reference, less of a longer one",
        )
        return (score, *counts, controlled)

    def read(self, answer: Answer, pair: Pair) -> Judged:
        """See `Judge`."""
        judged = super().read(answer, pair)
        controlled = length_controlled(judged.values[0], pair.candidate or "", pair.reference or "")
        return replace(judged, values=(*judged.values, controlled))

    def parse(self, answer: Answer) -> Parsed:
        """See `GreenJudge`."""
        parsed = parse_counts(answer, matched=True)
        stated = parsed.matched is not None and any(cell in parsed.counts for cell in _SIGNIFICANT)
        if parsed.status is not Reading.PARTIAL or parsed.unreadable or not stated:
            return parsed
        return Parsed(Reading.PARSED, {cell: parsed.counts.get(cell, 0.0) for cell in CELLS}, parsed.matched)


LOW, HIGH = 1, 5


class Grade(Judge):
    """The grade of a report by itself: how it reads, not whether it is right.

    A candidate without a word has the lowest grade, whatever the answer.
    """

    kind: ClassVar[str] = "grade"
    about: ClassVar[str] = "how good a report reads by itself, graded by a language model"
    wording: ClassVar[str] = "grade"
    places: ClassVar[tuple[str, ...]] = (CANDIDATE,)
    longest: ClassVar[int] = 512

    @classmethod
    def cards(cls, model: str, prompt: JudgePrompt) -> tuple[Metric, ...]:
        """See `Judge`."""
        conventions = {
            "scale": f"{LOW}-{HIGH}",
            "shown": "+".join(cls.places),
            "no-word": str(LOW),
            "prompt": prompt.label,
            "average": "report",
        }
        name = f"{cls.kind}:{model}"
        return (Metric(name, "higher", (float(LOW), float(HIGH)), None, UNDEFINED, conventions, cls.about),)

    def read(self, answer: Answer, pair: Pair) -> Judged:
        """See `Judge`."""
        parsed = parse_grade(answer, LOW, HIGH)
        value = float(LOW) if parsed.value is not None and _silent(pair) else parsed.value
        number = math.nan if value is None else value
        return Judged(parsed.status, parsed.reason, (number,), {"score": value}, answer.text)


class GradeAgainst(Grade):
    """The grade of a report beside its reference."""

    kind: ClassVar[str] = "grade-against"
    about: ClassVar[str] = "how well a report states what its reference states, graded by a language model"
    wording: ClassVar[str] = "grade_against"
    places: ClassVar[tuple[str, ...]] = (REFERENCE, CANDIDATE)


PLACES = (REFERENCE, FIRST, SECOND)
_MAX_TOKENS = 512
_TURNED = {FIRST: SECOND, SECOND: FIRST, EQUAL: EQUAL, None: None}


class Verdict(StrEnum):
    """Report a compared with report b."""

    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal"  # in both orders, or the orders disagree
    UNDECIDED = "undecided"  # an answer could not be read, or nothing was asked


_VERDICTS = {FIRST: Verdict.BETTER, SECOND: Verdict.WORSE, EQUAL: Verdict.EQUAL}


@dataclass(frozen=True)
class Choice:
    """One comparison."""

    verdict: Verdict  # of a compared with b
    # Whether both orders gave the same; False for a tie by disagreement; None where undecided.
    agreed: bool | None = None
    reason: str | None = None  # why the verdict is undecided or the model was not asked; None otherwise
    # The preference in each order, "first" for a and "second" for b: a before b, then b before a; None where it could
    # not be read.
    preferences: tuple[str | None, ...] = ()
    answers: tuple[str, ...] = ()  # the model's own words, in the same order; empty where nothing was asked

    def plain(self) -> dict[str, Any]:
        """The comparison as a record."""
        return {
            "verdict": self.verdict.value,
            "agreed": self.agreed,
            "reason": self.reason,
            "preferences": list(self.preferences),
            "answers": list(self.answers),
        }


class PairwiseModel:
    """A language model that compares two reports.

    `counts` has how often each verdict was given, and how many ties were disagreements ("disagreed"). The prompt is a
    wording or the YAML file of one; the built-in when None.
    """

    def __init__(
        self, model: TextModel, prompt: Path | JudgePrompt | None = None, max_tokens: int | None = None
    ) -> None:
        self.model, self._max_tokens = model, max_tokens or _MAX_TOKENS
        self.prompt = prompt if isinstance(prompt, JudgePrompt) else load_prompt("pairwise", PLACES, prompt)
        self.counts: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """`pairwise:MODEL`."""
        return f"pairwise:{self.model.name}"

    @property
    def signature(self) -> str:
        """Name and conventions."""
        return f"{self.name}|orders:both|disagreement:tie|prompt:{self.prompt.label}|v:{VERSION}"

    def compare(self, items: Sequence[tuple[str | None, str | None, str | None]]) -> list[Choice]:
        """The choice between a and b, for each (reference, a, b).

        Two reports of the same words are equal without asking. A report that is absent, or a reference without a word,
        leaves the comparison undecided.
        """
        settled: list[Choice | None] = []
        questions = []
        for reference, a, b in items:
            if reference is None or wordless(reference):
                reason = "there is no reference" if reference is None else "it has no word"
                settled.append(Choice(Verdict.UNDECIDED, reason=reason))
            elif a is None or b is None:
                settled.append(Choice(Verdict.UNDECIDED, reason="one of the two reports is absent"))
            elif a == b:
                settled.append(Choice(Verdict.EQUAL, reason="the two reports are the same"))
            else:
                settled.append(None)
                questions += [self.prompt.ask({REFERENCE: reference, FIRST: x, SECOND: y}) for x, y in ((a, b), (b, a))]
        answers = iter(ask(self.model, questions, self._max_tokens))
        choices = [known or _choose(next(answers), next(answers)) for known in settled]
        for choice in choices:
            self.counts[choice.verdict.value] += 1
            self.counts["disagreed"] += choice.agreed is False
        return choices


def _choose(forth: tuple[Answer, Generated], back: tuple[Answer, Generated]) -> Choice:
    read = (_read(*forth), _read(*back))
    preferences = (read[0].value, _TURNED[read[1].value])
    answers = (forth[0].text, back[0].text)
    failed = [
        f"{order}: {parsed.reason}"
        for order, parsed in zip(("a before b", "b before a"), read, strict=True)
        if parsed.status is not Reading.PARSED
    ]
    if failed:
        return Choice(Verdict.UNDECIDED, None, "; ".join(failed), preferences, answers)
    agreed = preferences[0] == preferences[1]
    return Choice(_VERDICTS[preferences[0] or EQUAL] if agreed else Verdict.EQUAL, agreed, None, preferences, answers)


def _read(answer: Answer, given: Generated) -> ParsedChoice:
    if refused(given):
        return ParsedChoice(Reading.FAILED, reason=MODEL_REFUSES)
    return parse_choice(answer)
