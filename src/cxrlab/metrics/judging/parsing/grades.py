"""From a judge's answer to a grade on the scale that was asked for."""

from __future__ import annotations

import re
from functools import partial

from cxrlab.metrics.judging.parsing.folding import NUMBER_WORDS
from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.parsing.parsed import ParsedGrade, Reading
from cxrlab.metrics.judging.parsing.statements import Reader, Statement, settle

_NUMBER = r"(?P<number>-?\d{1,6}(?:\.\d{1,6})?|" + "|".join(sorted(NUMBER_WORDS, key=len, reverse=True)) + r")(?![\w^])"
_QUOTES = r"[\"'*_`\[({]{0,6}"
_PLAIN = re.compile(
    rf"\b(?:score|rating|grade|mark|verdict)[\"'*_`\])]{{0,4}}\s?(?:[:=]|\bis:)[*_]{{0,3}}\s?{_QUOTES}\s?{_NUMBER}"
    rf"|\[\[\s?{_NUMBER.replace('number', 'boxed')}",
    re.I,
)
_PASSING = re.compile(
    rf"\b(?:score|rating|grade|mark)\s(?:is\s|of\s|it\s)?(?:an?\s)?{_QUOTES}{_NUMBER}"
    rf"|(?<![\w./-]){_NUMBER.replace('number', 'share')}{_QUOTES}\s?(?=/\s?\d|out of\s\d)",
    re.I,
)
_LEAD = re.compile(rf"[\s:=*_`\"'\[({{.]{{0,8}}{_NUMBER}", re.I)
_UNREADABLE = re.compile(
    r"\b(?:score|rating|grade)[\"'*_`\])]{0,4}\s?[:=]\s?[\"'*_`\[(]{0,4}([a-f][+-]?|n/a|excellent|good|fair|poor|bad)(?!\w)",
    re.I,
)
_SCALE = re.compile(r"[\"'*_`\])}]{0,6}\s?(?:/|out of)\s?(\d{1,4})", re.I)
_RANGE = re.compile(r"\s?(?:-|to\b|or\b)\s?(?:\d|one|two|three|four|five)", re.I)
_END = re.compile(r"[\"'*_`\])}.!\s]{0,12}(?:(?:/|out of)\s?\d{1,4}[\"'*_`\])}.!\s]{0,12})?")


def parse_grade(answer: Answer, low: int = 1, high: int = 5) -> ParsedGrade:
    """The grade of an answer.

    Args:
        answer: What the judge said, its mark and the reports that it was shown.
        low: Lowest grade of the scale.
        high: Highest grade.
    """
    reader = Reader("grade", partial(_find, low=low, high=high), partial(_lead, low=low, high=high))
    settled = settle(answer, reader)
    return ParsedGrade(Reading.PARSED if settled.reason is None else Reading.FAILED, settled.value, settled.reason)


def _find(text: str, low: int, high: int) -> list[Statement[float]]:
    plain = [_statement(text, found, "number", "boxed", low, high, True) for found in _PLAIN.finditer(text)]
    unreadable = [
        Statement[float](None, f"the grade is '{found[1]}', not a number") for found in _UNREADABLE.finditer(text)
    ]
    passing = [_statement(text, found, "number", "share", low, high, False) for found in _PASSING.finditer(text)]
    return [*plain, *unreadable, *passing]


def _lead(text: str, low: int, high: int) -> tuple[Statement[float], bool] | None:
    found = _LEAD.match(text)
    if found is None:
        return None
    end = _END.match(text, found.end())
    return _graded(text, found["number"], found.end(), low, high, True), end is not None and end.end() == len(text)


def _statement(
    text: str, found: re.Match[str], first: str, second: str, low: int, high: int, plain: bool
) -> Statement[float]:
    name = first if found[first] is not None else second
    return _graded(text, found[name], found.end(name), low, high, plain)


def _graded(text: str, number: str, end: int, low: int, high: int, plain: bool) -> Statement[float]:
    value = float(NUMBER_WORDS.get(number.lower(), -1)) if number[-1].isalpha() else float(number)
    scale = _SCALE.match(text, end)
    if scale and int(scale[1]) != high:
        return Statement(None, f"the grade is out of {scale[1]}, not of {high}", plain)
    if scale is None and _RANGE.match(text, end):
        return Statement(None, "the grade is a range", plain)
    if not low <= value <= high:
        return Statement(None, f"the grade {number} is not from {low} to {high}", plain)
    return Statement(value, plain=plain)
