"""From a judge's answer to a grade on the scale that was asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cxrlab.metrics.judging.parsing.folding import NUMBER_WORDS
from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.parsing.parsed import ParsedGrade, Reading
from cxrlab.metrics.judging.parsing.statements import DECORATION, ENDS, Reader, Statement, meant, settle

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


def parse_grade(answer: Answer, low: int = 1, high: int = 5) -> ParsedGrade:
    """The grade of an answer.

    Args:
        answer: What the judge said, its mark and the reports that it was shown.
        low: Lowest grade of the scale.
        high: Highest grade.
    """
    scale = _Scale(low, high)
    settled = settle(answer, Reader("grade", scale.find, scale.lead, scale.alone))
    return ParsedGrade(Reading.PARSED if settled.reason is None else Reading.FAILED, settled.value, settled.reason)


@dataclass(frozen=True)
class _Scale:
    """The grades that were asked for, and how they are found.

    Args:
        low: Lowest.
        high: Highest.
    """

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
            if meant(text, found.start(), found.end())
        ]
        # In passing a number may be anything ("a grade 2 injury"); one that is no grade is not the judge's.
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
        """Lines that are a number and nothing else."""
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
