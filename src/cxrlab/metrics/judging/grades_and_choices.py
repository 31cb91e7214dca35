"""Grades and choices in a judge's answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from cxrlab.metrics.judging.answer_text import NUMBER_WORDS, Answer, Reading, Region, answer_regions

_NUMBER = r"(?P<number>-?\d{1,6}(?:\.\d{1,6})?|" + "|".join(sorted(NUMBER_WORDS, key=len, reverse=True)) + r")(?![\w^])"
_QUOTES = r"[\"'*_`\[({]{0,6}"
_OF = r"(?:\s?\((?:out of \d{1,3}|\d{1,2}\s?(?:-|to)\s?\d{1,3})\))?"  # "Grade (1-5): 4"
_PLAIN = re.compile(
    rf"\b(?:score|rating|grade|mark|verdict){_OF}[\"'*_`\])]{{0,4}}\s?(?:[:=]|\bis:)[*_]{{0,3}}\s?{_QUOTES}\s?{_NUMBER}"
    rf"|\[\[\s?{_NUMBER.replace('number', 'boxed')}"
    rf"|(?<![\w./-]){_NUMBER.replace('number', 'share')}(?=[\"'*_`\])}}]{{0,6}}\s?(?:/\s?\d|out of\s\d))",
    re.I,
)
_PASSING = re.compile(
    rf"\b(?:(?:score|rating)\s(?:is\s|of\s)?|(?:grade|mark)\s(?:is|of|it)\s)(?:an?\s)?{_QUOTES}{_NUMBER}", re.I
)
_LEAD = re.compile(rf"[\s:=*_`\"'\[({{.]{{0,8}}{_NUMBER}", re.I)
_UNREADABLE = re.compile(
    r"\b(?:score|rating|grade)[\"'*_`\])]{0,4}\s?[:=]\s?[\"'*_`\[(]{0,4}([a-f][+-]?|n/a|excellent|good|fair|poor|bad)(?!\w)",
    re.I,
)
_SCALE = re.compile(r"[\"'*_`\])}]{0,6}\s?(?:/|out of)\s?(\d{1,4}(?:\.0)?)(?!\w)", re.I)
_RANGE = re.compile(r"\s?(?:-|~|to\b|or\b|and\b|,)\s?(?:\d|one|two|three|four|five)", re.I)
_FOLLOWED = re.compile(r"\s(?:to|for)\s(?:this|the|it)\b", re.I)  # "a score of 3 to this report"
_END = re.compile(r"[\"'*_`\])}.!\s]{0,12}(?:(?:/|out of)\s?\d{1,4}[\"'*_`\])}.!\s]{0,12})?")
_ALONE = re.compile(
    rf"^[^\w\n-]{{0,8}}{_NUMBER}(?:\s?(?:/|out of)\s?\d{{1,4}})?[\"'*_`\])}}.!]{{0,6}}\s?$", re.I | re.M
)
_LISTED = re.compile(r"^\W{0,4}2[.)]", re.M)


@dataclass(frozen=True)
class ParsedGrade:
    """A judge's grade, or the reason why there is none; it is never partial."""

    status: Reading
    value: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class ParsedChoice:
    """A judge's choice, "first", "second" or "equal", or the reason why there is none."""

    status: Reading
    value: str | None = None
    reason: str | None = None


def parse_grade(answer: Answer, low: int = 1, high: int = 5) -> ParsedGrade:
    """The grade of an answer, on a scale from `low` to `high`."""
    scale = _Scale(low, high)
    settled = settle(answer, Reader("grade", scale.find, scale.lead, scale.alone))
    return ParsedGrade(Reading.PARSED if settled.reason is None else Reading.FAILED, settled.value, settled.reason)


@dataclass(frozen=True)
class _Scale:
    """A scale of grades, and how its grades are found in a text."""

    low: int
    high: int

    def find(self, text: str) -> list[Statement[float]]:
        plain = [
            self._graded(text, found[name], found.end(name))
            for found in _PLAIN.finditer(text)
            for name in ("number", "boxed", "share")
            if found[name] is not None
        ]
        unreadable = [
            Statement[float](None, f"the grade is '{found[1]}', not a number") for found in _UNREADABLE.finditer(text)
        ]
        passing = [
            self._graded(text, found["number"], found.end("number"), plain=False)
            for found in _PASSING.finditer(text)
            if is_asserted(text, found.start(), found.end())
        ]
        # In passing a number may be anything ("a grade 2 injury").
        return [*plain, *unreadable, *(statement for statement in passing if statement.problem != _MORE)]

    def lead(self, text: str) -> tuple[Statement[float], bool] | None:
        found = _PLAIN.match(text, len(text) - len(text.lstrip(DECORATION)))
        if found is not None and found["number"] is not None:
            return self._graded(text, found["number"], found.end("number")), False  # without the mark it may be a copy
        found = _LEAD.match(text)
        if found is None:
            return None
        end = _END.match(text, found.end())
        statement = self._graded(text, found["number"], found.end())
        # "3 errors were found", "1. It misses … 2. It invents …": a number, but no grade.
        if statement.problem == _MORE or (float_of(found["number"]) == 1 and _LISTED.search(text, found.end())):
            return None
        return statement, end is not None and end.end() == len(text)

    def alone(self, text: str) -> list[Statement[float]]:
        """Lines that are only a number."""
        return [self._graded(text, found["number"], found.end("number")) for found in _ALONE.finditer(text)]

    def _graded(self, text: str, number: str, end: int, plain: bool = True) -> Statement[float]:
        value = float_of(number)
        scale = _SCALE.match(text, end)
        if scale and float(scale[1]) != self.high:
            return Statement(None, f"the grade is out of {scale[1]}, not of {self.high}", plain, value)
        end = scale.end() if scale else end
        if scale is None and _RANGE.match(text, end):
            return Statement(None, "the grade is a range", plain, value)
        if not (ENDS.match(text, end) or (not plain and _FOLLOWED.match(text, end))):
            return Statement(None, _MORE, plain, value)
        if not self.low <= value <= self.high:
            return Statement(None, f"the grade {number} is not from {self.low} to {self.high}", plain, value)
        return Statement(value, plain=plain)


_MORE = "more than a grade where the grade should stand"


def float_of(number: str) -> float:
    """The value of digits or of a word for a number."""
    return float(NUMBER_WORDS[number.lower()]) if number[-1].isalpha() else float(number)


FIRST, SECOND, EQUAL = "first", "second", "equal"
_NAMES = {
    **dict.fromkeys(("first", "a", "1"), FIRST),
    **dict.fromkeys(("second", "b", "2"), SECOND),
    **dict.fromkeys(("equal", "tie", "c", "both", "neither", "same", "draw", "tied"), EQUAL),
}
_OTHER = {FIRST: SECOND, SECOND: FIRST, EQUAL: EQUAL}
_GOOD = frozenset({"better", "superior", "preferable", "more accurate"})
_THING = r"(?:(?:the\s)?(?:report|candidate|response|answer|assistant|option|text)\s)?"
_WORD = r"(?P<word>first|second|equal|tied?|draw|both|neither|same|[abc12])(?!\w|['.]\w)"
_PLAIN_CHOICES = re.compile(
    r"\b(?:better|best|winner|verdict|choice|preferred|preference|decision|answer|correction|result|conclusion)"
    rf"(?:\s(?:report|one|candidate))?[\"'*_`\])]{{0,4}}\s?(?:[:=]|\bis:)[*_]{{0,3}}\s?{_QUOTES}\s?{_THING}{_QUOTES}{_WORD}",
    re.I,
)
_BOXED = re.compile(r"\[\[\s?(?P<word>[abc]|first|second|equal|tie)\s?\]\]", re.I)
_PREFERS = re.compile(
    r"\b(?:(?:report|candidate|response|option|text)\s[\"'*_`(]{0,4}(?P<letter>[ab12])[\"'*_`)]{0,4}|(?:the\s)?(?P<word>first|second)"
    r"(?:\s(?:report|candidate|one|text))?)\s(?:is|was)\s(?:(?:clearly|slightly|much|far|the|a little|somewhat)\s)?"
    r"(?P<how>better|superior|preferable|more accurate|worse|inferior|less accurate)\b",
    re.I,
)
# "Equally long" and "the same length" are no choice.
_EVEN = re.compile(
    r"\b(?:both|they|the two|the reports)\s(?:reports\s|candidates\s)?are\s"
    r"(?:tied|(?:equal|identical|the same)(?=\s?[.,;!\n]|\s?$)"
    r"|equally\s(?:good|bad|accurate|correct|right|wrong|poor|well))"
    r"|\bneither\s(?:report\s|one\s|candidate\s)?is\sbetter(?!\sthan the other in)\b|\bit\sis\sa\s(?:tie|draw)\b",
    re.I,
)
_LEAD_CHOICES = re.compile(rf"[\s:=*_`\"'\[({{.]{{0,8}}{_THING}{_QUOTES}{_WORD}", re.I)
_NOTHING = re.compile(r"[\"'*_`\])}.!\s]{0,12}")
_ALONE_CHOICES = re.compile(rf"^[^\w\n]{{0,8}}{_WORD}[\"'*_`\])}}.!]{{0,6}}\s?$", re.I | re.M)
_WORDS = (
    "first",
    "second",
    "equal",
    "tie",
    "tied",
    "draw",
    "neither",
)  # neither an article nor the number of a list item


def parse_choice(answer: Answer) -> ParsedChoice:
    """Which of the two reports an answer prefers."""
    settled = settle(answer, Reader("choice", _find_choices, _leading_choice, _choices_alone))
    return ParsedChoice(Reading.PARSED if settled.reason is None else Reading.FAILED, settled.value, settled.reason)


def _find_choices(text: str) -> list[Statement[str]]:
    labelled = [_labelled(text, found) for found in _PLAIN_CHOICES.finditer(text)]
    boxed = [_named(found["word"]) for found in _BOXED.finditer(text)]
    passing = [
        Statement(choice if found["how"].lower() in _GOOD else _OTHER[choice], plain=False)
        for found in _PREFERS.finditer(text)
        for choice in (_NAMES[(found["letter"] or found["word"]).lower()],)
        if is_asserted(text, found.start(), found.end())
    ]
    even = [
        Statement(EQUAL, plain=False) for found in _EVEN.finditer(text) if is_asserted(text, found.start(), found.end())
    ]
    return [*labelled, *boxed, *_choices_alone(text, _WORDS), *passing, *even]


def _named(word: str) -> Statement[str]:
    return Statement(_NAMES[word.lower()])


def _labelled(text: str, found: re.Match[str]) -> Statement[str]:
    """What a label names; "Answer: A nodule is missed" and "Better: FIRST or SECOND" are no choice."""
    if ENDS.match(text, found.end("word")):
        return _named(found["word"])
    named = _NAMES[found["word"].lower()]
    return Statement(None, "more than a choice where the choice should stand", named=named)


def _choices_alone(text: str, words: Sequence[str] = tuple(_NAMES)) -> list[Statement[str]]:
    """Lines that are only a choice."""
    return [_named(found["word"]) for found in _ALONE_CHOICES.finditer(text) if found["word"].lower() in words]


def _leading_choice(text: str) -> tuple[Statement[str], bool] | None:
    found = _PLAIN_CHOICES.match(text, len(text) - len(text.lstrip(DECORATION)))
    if found is not None:
        return _labelled(text, found), False  # without the mark it may be a copy
    found = _LEAD_CHOICES.match(text)
    if found is None:
        return None
    end = _NOTHING.match(text, found.end())
    alone = end is not None and end.end() == len(text)
    rest = text[found.end() :]
    # "A pneumothorax is missed", "1. The first report …": a letter begins a sentence, a number a list.
    short = found["word"].lower() not in _WORDS and not _ALONE_CHOICES.match(text.lstrip(" \n").split("\n")[0])
    if not alone and (short or not ENDS.match(rest)):
        return None
    return _named(found["word"]), alone


Value = TypeVar("Value")
MOST_STATEMENTS = 200
FEW_WORDS = 4
# What may follow an answer: the end, a full stop, a reason. "4 errors", "4 or 5" and "FIRST is worse" are no answers; a
# value in double brackets always is.
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
# Words that deny or condition a statement: before it, or after it in the same sentence.
_NOT_SAID = re.compile(
    r"\b(?:if|whether|unless|not|never|no|hardly|unclear|cannot|could|might|may|some|says?|claims?)\b|n't\b", re.I
)
_TAKEN_BACK = re.compile(r"\b(?:if|unless|would|requires?|needs?|only|except)\b", re.I)


def is_asserted(text: str, start: int, end: int) -> bool:
    """Whether a statement in passing is the judge's: not denied, not a condition, and not taken back in its sentence."""
    early = max(0, start - _NEAR)
    begins = max((found.end() for found in _SENTENCE.finditer(text, early, start)), default=early)
    stop = _SENTENCE.search(text, end, end + _NEAR)
    ends = stop.start() if stop else end + _NEAR
    return not _NOT_SAID.search(text, begins, start) and not _TAKEN_BACK.search(text, end, ends)


@dataclass(frozen=True)
class Statement(Generic[Value]):
    """A value that a text states."""

    value: Value | None  # None where the statement is no usable answer
    problem: str = ""  # why there is no value
    plain: bool = True  # whether it has the form of an answer ("Score: 3"), or stands in passing ("a score of 3")
    named: Value | None = None  # the value that its words name, even where it is not usable

    @property
    def words(self) -> tuple[Value | str, bool]:
        """What a copy has in common with it: the value that it names, or else its problem, and its form."""
        named = self.value if self.named is None else self.named
        return (self.problem if named is None else named), self.plain


@dataclass(frozen=True)
class Reader(Generic[Value]):
    """How one kind of answer is found."""

    what: str  # its name in reasons ("grade")
    find: Callable[[str], Sequence[Statement[Value]]]  # every statement in a folded text
    # The value that a text begins with, and whether nothing else follows; None where there is none.
    lead: Callable[[str], tuple[Statement[Value], bool] | None]
    # Further lines that are only a value; they must agree with the leading one.
    rivals: Callable[[str], Sequence[Statement[Value]]]


@dataclass(frozen=True)
class Settled(Generic[Value]):
    """The judge's answer, or the reason why there is none."""

    value: Value | None
    reason: str | None = None


def settle(answer: Answer, reader: Reader[Value]) -> Settled[Value]:
    """The judge's answer, or the reason why there is none.

    The answer stands first after the mark; all other statements must agree with it. A statement that a report makes
    too is a copy, unless it directly follows the mark.
    """
    words = answer_regions(answer)
    if words.problem is not None:
        return Settled(None, words.problem)
    of_reports = {statement.words for report in answer.folded_reports for statement in reader.find(report)}
    copied = False
    for region in words.regions:
        if stated := _own_statements(region, reader, of_reports):
            values = {statement.value for statement in stated if statement.value is not None}
            problems = [statement.problem for statement in stated if statement.value is None]
            if len(values) > 1:
                return Settled(None, f"two different {reader.what}s compete")
            return Settled(None, problems[0]) if problems else Settled(values.pop())
        copied = copied or bool(reader.find(region.text))
    if copied:
        return Settled(None, f"the only {reader.what} in the answer is a copy of what a report says")
    nothing = "the judge refuses to answer" if words.refusal else f"no {reader.what} was found in the answer"
    return Settled(None, nothing)


def _own_statements(
    region: Region, reader: Reader[Value], of_reports: set[tuple[Value | str, bool]]
) -> list[Statement[Value]]:
    found = reader.find(region.text)
    if len(found) > MOST_STATEMENTS:
        return [Statement(None, f"the answer states more than {MOST_STATEMENTS} {reader.what}s")]
    own = [statement for statement in found if statement.words not in of_reports]
    plain: list[Statement[Value]] = [statement for statement in own if statement.plain]
    lead = reader.lead(region.text)
    if lead is not None and (region.marked or lead[1]):
        rivals = [statement for statement in reader.rivals(region.text) if statement.words not in of_reports]
        return [lead[0], *own, *rivals]
    # A few words after the mark are the answer, even where a report says the same.
    marked = region.marked and len(region.text.split()) <= FEW_WORDS
    if plain or not own:
        return plain or (list(found) if marked else [])
    # In passing: a statement in the form of an answer may be the judge's or a copy, and must agree.
    return [*own, *(statement for statement in found if statement.plain)]
