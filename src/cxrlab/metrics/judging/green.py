"""`green:MODEL`: a language model counts errors and matched findings, and GREEN's formula makes one number of them."""

from __future__ import annotations

import math
from typing import ClassVar

from cxrlab.metrics.judging.base import CANDIDATE, REFERENCE, UNDEFINED, Judge, Judged
from cxrlab.metrics.judging.parsing.counts import parse_counts
from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.parsing.parsed import CELLS, SIGNIFICANT, Parsed
from cxrlab.metrics.judging.prompts import JudgePrompt
from cxrlab.metrics.rules import green_score
from cxrlab.metrics.tally import Metric

_SIGNIFICANT = tuple(cell for cell in CELLS if cell[0] == SIGNIFICANT)


def green_value(parsed: Parsed) -> float | None:
    """GREEN's score of an answer; None where a count that it needs is missing.

    As `green:rules` has it, nothing to match and nothing wrong is 1, not the published 0: two normal reports agree.
    """
    wrong = parsed.total(_SIGNIFICANT)
    if wrong is None or parsed.matched is None:
        return None
    # Both are whole numbers: a fraction is no count of findings, and the parser has refused it.
    matched, errors = int(parsed.matched), int(wrong)
    return green_score(matched, [errors]) if matched or errors else 1.0


class GreenJudge(Judge):
    """GREEN's score, and the significant errors and matched findings that it is made of.

    A candidate without a word scores 0 at most, whatever the answer: silence is not a normal report.
    """

    wording: ClassVar[str] = "green"
    places: ClassVar[tuple[str, ...]] = (REFERENCE, CANDIDATE)

    @classmethod
    def cards(cls, model: str, prompt: JudgePrompt) -> tuple[Metric, ...]:
        """Score, significant errors, matched findings."""
        asked = {"kinds": "rexval-6", "prompt": prompt.label, "average": "report"}
        formula = {"formula": "green", "nothing-to-match": "1", "no-word": "0", **asked}
        endless = (0.0, math.inf)
        return (
            Metric(
                f"green:{model}",
                "higher",
                (0.0, 1.0),
                None,
                UNDEFINED,
                formula,
                "matched findings against significant errors, as a language model counts them",
            ),
            Metric(
                f"green.significant:{model}",
                "lower",
                endless,
                None,
                UNDEFINED,
                asked,
                "significant errors a report, from the same answer",
            ),
            Metric(
                f"green.matched:{model}",
                "higher",
                endless,
                None,
                UNDEFINED,
                asked,
                "findings a report that both reports have, from the same answer",
            ),
        )

    def read(self, answer: Answer, silent: bool) -> Judged:
        """Score and counts of one answer; see `Judge`."""
        parsed = parse_counts(answer, matched=True, fractions=False)
        score = green_value(parsed)
        score = min(0.0, score) if silent and score is not None else score
        values = (score, parsed.total(_SIGNIFICANT), parsed.matched)
        numbers = tuple(math.nan if value is None else value for value in values)
        record = {"counts": parsed.plain(), "matched": parsed.matched, "score": score}
        return Judged(parsed.status, parsed.reason, numbers, record, answer.text)
