"""`chexprompt:MODEL`: a language model counts errors of six kinds, significant or not, as CheXprompt has it do."""

from __future__ import annotations

import math
from typing import ClassVar

from cxrlab.metrics.judging.base import CANDIDATE, REFERENCE, UNDEFINED, Judge, Judged
from cxrlab.metrics.judging.parsing.counts import parse_counts
from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.parsing.parsed import CELLS, SIGNIFICANT, told
from cxrlab.metrics.judging.prompts import JudgePrompt
from cxrlab.metrics.tally import Metric

_SIGNIFICANT = tuple(cell for cell in CELLS if cell[0] == SIGNIFICANT)


class ChexPrompt(Judge):
    """Errors a report: all, the significant ones, and each of the twelve counts.

    A total has no value where one of its counts is missing. A candidate without a word is asked about like any other:
    what the reference states is missing from it.
    """

    wording: ClassVar[str] = "chexprompt"
    places: ClassVar[tuple[str, ...]] = (REFERENCE, CANDIDATE)

    @classmethod
    def cards(cls, model: str, prompt: JudgePrompt) -> tuple[Metric, ...]:
        """Total, significant, and the twelve cells."""
        conventions = {"kinds": "rexval-6", "prompt": prompt.label, "average": "report"}

        def card(part: str, about: str) -> Metric:
            name = f"chexprompt{part}:{model}"
            return Metric(name, "lower", (0.0, math.inf), None, UNDEFINED, conventions, about)

        return (
            card("", "errors a report, as a language model counts them"),
            card(".significant", "errors a report that are likely to change what is done, as a language model counts"),
            *(card(f".{kind.value}.{weight}", f"{told((weight, kind))}, a report") for weight, kind in CELLS),
        )

    def read(self, answer: Answer, silent: bool) -> Judged:
        """The counts of one answer; see `Judge`."""
        parsed = parse_counts(answer)
        values = (
            parsed.total(),
            parsed.total(_SIGNIFICANT),
            *(parsed.counts.get(cell) for cell in CELLS),
        )
        numbers = tuple(math.nan if value is None else value for value in values)
        record = {"counts": parsed.plain(), "score": parsed.total()}
        return Judged(parsed.status, parsed.reason, numbers, record, answer.text)
