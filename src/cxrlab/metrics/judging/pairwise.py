"""`pairwise:MODEL`: which of two reports is better beside a reference; asked in both orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from cxrlab.core.protocols import Generated, TextModel
from cxrlab.metrics.judging.judges import MODEL_REFUSES, REFERENCE, ask, refused
from cxrlab.metrics.judging.parsing.answer_text import Answer
from cxrlab.metrics.judging.parsing.results import ParsedChoice, Reading
from cxrlab.metrics.judging.parsing.verdicts import EQUAL, FIRST, SECOND, parse_choice
from cxrlab.metrics.judging.prompts import JudgePrompt, Question, load_prompt
from cxrlab.metrics.pairs import wordless
from cxrlab.metrics.tally import VERSION

PLACES = (REFERENCE, FIRST, SECOND)
_MAX_TOKENS = 512
_TURNED = {FIRST: SECOND, SECOND: FIRST, EQUAL: EQUAL, None: None}


class Verdict(StrEnum):
    """What is said of report a beside report b."""

    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal"  # both orders say so, or they disagree
    UNDECIDED = "undecided"  # nothing is known: an answer could not be read, or nothing was asked


_VERDICTS = {FIRST: Verdict.BETTER, SECOND: Verdict.WORSE, EQUAL: Verdict.EQUAL}


@dataclass(frozen=True)
class Choice:
    """One comparison.

    Args:
        verdict: Of a beside b.
        agreed: Whether both orders gave the same; False for a tie by disagreement; None where nothing is known.
        reason: Why the verdict is undecided or was not asked for; None otherwise.
        heard: What each order preferred, "first" being a and "second" b: a before b, then b before a; None where
            it could not be read.
        answers: The model's own words, in the same order; empty where nothing was asked.
    """

    verdict: Verdict
    agreed: bool | None = None
    reason: str | None = None
    heard: tuple[str | None, ...] = ()
    answers: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """The comparison as a record."""
        told = {"verdict": self.verdict.value, "agreed": self.agreed, "reason": self.reason}
        return {**told, "heard": list(self.heard), "answers": list(self.answers)}


class PairwiseModel:
    """A language model that compares two reports.

    `counts` keeps how often each verdict was given, and how many ties were disagreements ("disagreed").

    Args:
        model: What is asked.
        prompt: A YAML file with another wording, or the wording; the built-in when None.
        max_tokens: Longest answer.
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
        """What the model says of a beside b, one choice an item.

        Two reports of the same words are equal without asking. A report that is absent, or a reference without a word,
        leaves the comparison undecided.

        Args:
            items: Reference, a and b.
        """
        settled = [_without_asking(*item) for item in items]
        questions = [
            question
            for (reference, a, b), known in zip(items, settled, strict=True)
            if known is None
            for question in self._both(reference or "", a or "", b or "")
        ]
        answers = iter(ask(self.model, questions, self._max_tokens))
        choices = [known or _choice(next(answers), next(answers)) for known in settled]
        for choice in choices:
            self.counts[choice.verdict.value] += 1
            self.counts["disagreed"] += choice.agreed is False
        return choices

    def _both(self, reference: str, a: str, b: str) -> tuple[Question, Question]:
        shown = ({REFERENCE: reference, FIRST: x, SECOND: y} for x, y in ((a, b), (b, a)))
        return self.prompt.ask(next(shown)), self.prompt.ask(next(shown))


def _without_asking(reference: str | None, a: str | None, b: str | None) -> Choice | None:
    if reference is None or wordless(reference):
        return Choice(Verdict.UNDECIDED, reason="there is no reference" if reference is None else "it has no word")
    if a is None or b is None:
        return Choice(Verdict.UNDECIDED, reason="one of the two reports is absent")
    return Choice(Verdict.EQUAL, reason="the two reports are the same") if a == b else None


def _choice(forth: tuple[Answer, Generated], back: tuple[Answer, Generated]) -> Choice:
    read = (_read(*forth), _read(*back))
    heard = (read[0].value, _TURNED[read[1].value])
    answers = (forth[0].text, back[0].text)
    failed = [
        f"{order}: {parsed.reason}"
        for order, parsed in zip(("a before b", "b before a"), read, strict=True)
        if parsed.status is not Reading.PARSED
    ]
    if failed:
        return Choice(Verdict.UNDECIDED, None, "; ".join(failed), heard, answers)
    agreed = heard[0] == heard[1]
    return Choice(_VERDICTS[heard[0] or EQUAL] if agreed else Verdict.EQUAL, agreed, None, heard, answers)


def _read(answer: Answer, given: Generated) -> ParsedChoice:
    if refused(given):
        return ParsedChoice(Reading.FAILED, reason=MODEL_REFUSES)
    return parse_choice(answer)
