"""`grade:MODEL` and `grade-against:MODEL`: a report graded from 1 to 5, alone or beside its reference."""

from __future__ import annotations

import math
from typing import ClassVar

from cxrlab.metrics.judging.base import CANDIDATE, REFERENCE, UNDEFINED, Judge, Judged
from cxrlab.metrics.judging.parsing.grades import parse_grade
from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.prompts import JudgePrompt
from cxrlab.metrics.tally import Metric

LOW, HIGH = 1, 5


class Grade(Judge):
    """The grade of a report by itself; it says how a report reads, not whether it is right.

    A candidate without a word has the lowest grade, whatever the answer.
    """

    kind: ClassVar[str] = "grade"
    about: ClassVar[str] = "how good a report reads by itself, graded by a language model"
    wording: ClassVar[str] = "grade"
    places: ClassVar[tuple[str, ...]] = (CANDIDATE,)
    longest: ClassVar[int] = 512

    @classmethod
    def cards(cls, model: str, prompt: JudgePrompt) -> tuple[Metric, ...]:
        """The grade."""
        conventions = {
            "scale": f"{LOW}-{HIGH}",
            "shown": "+".join(cls.places),
            "no-word": str(LOW),
            "prompt": prompt.label,
            "average": "report",
        }
        name = f"{cls.kind}:{model}"
        return (Metric(name, "higher", (float(LOW), float(HIGH)), None, UNDEFINED, conventions, cls.about),)

    def read(self, answer: Answer, silent: bool) -> Judged:
        """The grade of one answer; see `Judge`."""
        parsed = parse_grade(answer, LOW, HIGH)
        value = float(LOW) if silent and parsed.value is not None else parsed.value
        number = math.nan if value is None else value
        return Judged(parsed.status, parsed.reason, (number,), {"score": value}, answer.text)


class GradeAgainst(Grade):
    """The grade of a report beside its reference."""

    kind: ClassVar[str] = "grade-against"
    about: ClassVar[str] = "how well a report tells what its reference tells, graded by a language model"
    wording: ClassVar[str] = "grade_against"
    places: ClassVar[tuple[str, ...]] = (REFERENCE, CANDIDATE)
