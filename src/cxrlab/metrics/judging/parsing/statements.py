"""One thing that an answer states, a grade or a choice: which statement is the judge's, and whether they agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cxrlab.metrics.judging.parsing.own_words import Answer, Region, own_words

Value = TypeVar("Value")
MOST_STATEMENTS = 200
FEW_WORDS = 4


@dataclass(frozen=True)
class Statement(Generic[Value]):
    """A value that a text states.

    Args:
        value: The value; None where the statement has none that could be taken.
        problem: Why there is no value.
        plain: Whether it is said in the form of an answer ("Score: 3"), not in passing ("a score of 3").
    """

    value: Value | None
    problem: str = ""
    plain: bool = True


@dataclass(frozen=True)
class Reader(Generic[Value]):
    """How one kind of answer is found.

    Args:
        what: Its name in reasons ("grade").
        find: Every statement in a folded text.
        lead: The value that a text begins with, and whether nothing else follows; None where there is none.
    """

    what: str
    find: Callable[[str], Sequence[Statement[Value]]]
    lead: Callable[[str], tuple[Statement[Value], bool] | None]


@dataclass(frozen=True)
class Settled(Generic[Value]):
    """What the judge states, or the reason why nothing can be taken from it."""

    value: Value | None
    reason: str | None = None


def settle(answer: Answer, reader: Reader[Value]) -> Settled[Value]:
    """What the judge states, or the reason why nothing can be taken from it.

    What stands first after the mark goes before what is said in passing; statements in the form of an answer must
    agree with it. A statement that a report makes too is a copy, unless the mark vouches for it.
    """
    words = own_words(answer)
    if words.problem is not None:
        return Settled(None, words.problem)
    told = {statement for report in answer.folded_reports for statement in reader.find(report)}
    copied = False
    for region in words.regions:
        stated = _stated(region, reader, told)
        if stated:
            return _agreed(stated, reader.what)
        copied = copied or bool(reader.find(region.text))
    if copied:
        return Settled(None, f"the only {reader.what} in the answer is a copy of what a report says")
    nothing = "the judge refuses to answer" if words.refusal else f"no {reader.what} was found in the answer"
    return Settled(None, nothing)


def _stated(region: Region, reader: Reader[Value], told: set[Statement[Value]]) -> list[Statement[Value]]:
    found = reader.find(region.text)
    if len(found) > MOST_STATEMENTS:
        return [Statement(None, f"the answer states more than {MOST_STATEMENTS} {reader.what}s")]
    own = [statement for statement in found if statement not in told]
    plain: list[Statement[Value]] = [statement for statement in own if statement.plain]
    lead = reader.lead(region.text)
    if lead is not None and (region.marked or lead[1]):
        return [lead[0], *plain]
    # A few words after the mark are the answer, also where a report would have the judge say the same.
    vouched = region.marked and len(region.text.split()) <= FEW_WORDS
    return plain or own or (list(found) if vouched else [])


def _agreed(stated: Sequence[Statement[Value]], what: str) -> Settled[Value]:
    values = {statement.value for statement in stated if statement.value is not None}
    problems = [statement.problem for statement in stated if statement.value is None]
    if len(values) > 1:
        return Settled(None, f"two different {what}s compete")
    return Settled(None, problems[0]) if problems else Settled(values.pop())
