"""Sums that an answer states beside its counts; one that is not their sum shows that the judge does not know."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cxrlab.metrics.judging.parsing.kinds import weight_of
from cxrlab.metrics.judging.parsing.numbers import read_count
from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.parsing.parsed import CELLS, MATCHED, WEIGHTS, Cell

Total = tuple[str | None, float]  # of one of `WEIGHTS`, or of what the answer does not tell; and the sum
_NAME = (
    r"\W{0,6}(?:the\s)?(?:grand[\s_])?(?:totals?|sum)(?:[\s_](?:number|count))?(?:[\s_]of)?(?:[\s_]all)?"
    r"(?:[\s_](?:clinically[\s_-])?(?:in|non-?)?significant)?(?:[\s_]errors?)?(?:[\s_](?:found|count))?"
)
TOTAL = re.compile(rf"{_NAME}\W{{0,4}}", re.I)  # a cell or a key that is nothing else
_STATED = re.compile(rf"(?:^|[.;(\[,]\s?){_NAME}[\"'*_)\]]{{0,4}}\s?(?:[:=]|is\b)(?P<rest>[^\n]{{1,40}})", re.I | re.M)
_ROUNDING = 0.005  # of each count, where a mean over readers is written with two digits


def stated_totals(text: str, answer: Answer) -> tuple[Total, ...]:
    """The totals that a region of an answer states in words, without those that a report states too."""
    totals = []
    for found in _STATED.finditer(text):
        count = read_count(found["rest"])
        said = text[found.start() : found.start("rest") + count.end]
        about = weight_of(said)
        if count.value is not None and about != MATCHED and not answer.holds(said):
            totals.append((about, count.value))
    return tuple(totals)


def contradiction(counts: Mapping[Cell, float], totals: Sequence[Total]) -> str | None:
    """Which of the totals is not the sum of its counts, in words; None where none is.

    A total of all errors may be that of the list that it stands under. Where a count is missing nothing is known.

    Args:
        counts: What was read.
        totals: What the answer states.
    """
    sums: dict[str | None, float | None] = {None: _sum(counts, CELLS)}
    sums |= {weight: _sum(counts, [cell for cell in CELLS if cell[0] == weight]) for weight in WEIGHTS}
    for about, total in totals:
        may_be = list(sums.values()) if about is None else [sums[about]]
        if not any(value is None or abs(value - total) <= _ROUNDING * len(CELLS) for value in may_be):
            whose = f"{about} errors" if about else "errors"
            return f"a total of {total:g} {whose} that is not the sum of the counts"
    return None


def _sum(counts: Mapping[Cell, float], cells: Sequence[Cell]) -> float | None:
    return sum(counts[cell] for cell in cells) if all(cell in counts for cell in cells) else None
