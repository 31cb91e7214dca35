"""One thing that an answer states, a grade or a choice: which statement is the judge's, and whether they agree."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cxrlab.metrics.judging.parsing.own_words import Answer, Region, own_words

Value = TypeVar("Value")
MOST_STATEMENTS = 200
FEW_WORDS = 4
# What may follow a value that is an answer: the end, a full stop, a reason. "4 errors", "4 or 5" and "FIRST is worse"
# are no answers; what stands in double brackets always is.
_CLOSE, _REASON = r"[\"'*_`\])}]{0,6}", r"(?:because|since|as|due|for|given|overall)\b"
_NEXT = r"(?!\s?(?:\d|(?:first|second|equal|tie)\b))"
ENDS = re.compile(
    rf"\s?\]\]|{_CLOSE}(?:\s?(?:$|\n|(?:[.!](?!\w)|;|:\s|-\s){_NEXT}|[\"'}}])|\s?\((?!\s?(?:or|maybe|possibly|perhaps|\d)\b)"
    rf"|,?\s?{_REASON}|,(?=\s?[\"'}}]))",
    re.I,
)
DECORATION = " \n:=*_`\"'[({."  # what may stand before an answer
_SENTENCE = re.compile(r"[.!?;\n]")
_NEAR = 200  # characters of a sentence that are looked at, before and after
# Words that take a statement out of the judge's mouth: before it, or behind it in the same sentence.
_NOT_SAID = re.compile(
    r"\b(?:if|whether|unless|not|never|no|hardly|unclear|cannot|could|might|may|some|says?|claims?)\b|n't\b", re.I
)
_TAKEN_BACK = re.compile(r"\b(?:if|unless|would|requires?|needs?|only|except)\b", re.I)


def meant(text: str, start: int, end: int) -> bool:
    """Whether a statement in passing is the judge's: not denied, not a condition, and not taken back in its sentence.

    Args:
        text: Folded.
        start: Where the statement begins.
        end: Where it ends.
    """
    early = max(0, start - _NEAR)
    begins = max((found.end() for found in _SENTENCE.finditer(text, early, start)), default=early)
    stop = _SENTENCE.search(text, end, end + _NEAR)
    ends = stop.start() if stop else end + _NEAR
    return not _NOT_SAID.search(text, begins, start) and not _TAKEN_BACK.search(text, end, ends)


@dataclass(frozen=True)
class Statement(Generic[Value]):
    """A value that a text states.

    Args:
        value: The value; None where the statement has none that could be taken.
        problem: Why there is no value.
        plain: Whether it is said in the form of an answer ("Score: 3"), not in passing ("a score of 3").
        named: The value that its words name, also where it could not be taken.
    """

    value: Value | None
    problem: str = ""
    plain: bool = True
    named: Value | None = None

    @property
    def words(self) -> tuple[Value | str, bool]:
        """By what a copy is known: the value that it names, or else what is wrong with it, and its form."""
        named = self.value if self.named is None else self.named
        return (self.problem if named is None else named), self.plain


@dataclass(frozen=True)
class Reader(Generic[Value]):
    """How one kind of answer is found.

    Args:
        what: Its name in reasons ("grade").
        find: Every statement in a folded text.
        lead: The value that a text begins with, and whether nothing else follows; None where there is none.
        rivals: Further lines that are a value and nothing else; they must agree with the one that leads.
    """

    what: str
    find: Callable[[str], Sequence[Statement[Value]]]
    lead: Callable[[str], tuple[Statement[Value], bool] | None]
    rivals: Callable[[str], Sequence[Statement[Value]]]


@dataclass(frozen=True)
class Settled(Generic[Value]):
    """What the judge states, or the reason why nothing can be taken from it."""

    value: Value | None
    reason: str | None = None


def settle(answer: Answer, reader: Reader[Value]) -> Settled[Value]:
    """What the judge states, or the reason why nothing can be taken from it.

    What stands first after the mark is the answer; whatever else is stated must agree with it. A statement that a
    report makes too is a copy, unless the mark vouches for it.
    """
    words = own_words(answer)
    if words.problem is not None:
        return Settled(None, words.problem)
    told = {statement.words for report in answer.folded_reports for statement in reader.find(report)}
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


def _stated(region: Region, reader: Reader[Value], told: set[tuple[Value | str, bool]]) -> list[Statement[Value]]:
    found = reader.find(region.text)
    if len(found) > MOST_STATEMENTS:
        return [Statement(None, f"the answer states more than {MOST_STATEMENTS} {reader.what}s")]
    own = [statement for statement in found if statement.words not in told]
    plain: list[Statement[Value]] = [statement for statement in own if statement.plain]
    lead = reader.lead(region.text)
    if lead is not None and (region.marked or lead[1]):
        rivals = [statement for statement in reader.rivals(region.text) if statement.words not in told]
        return [lead[0], *own, *rivals]
    # A few words after the mark are the answer, also where a report would have the judge say the same.
    vouched = region.marked and len(region.text.split()) <= FEW_WORDS
    if plain or not own:
        return plain or (list(found) if vouched else [])
    # In passing: whether an answer in due form that says otherwise is the judge's or a copy, nobody can tell.
    return [*own, *(statement for statement in found if statement.plain)]


def _agreed(stated: Sequence[Statement[Value]], what: str) -> Settled[Value]:
    values = {statement.value for statement in stated if statement.value is not None}
    problems = [statement.problem for statement in stated if statement.value is None]
    if len(values) > 1:
        return Settled(None, f"two different {what}s compete")
    return Settled(None, problems[0]) if problems else Settled(values.pop())
