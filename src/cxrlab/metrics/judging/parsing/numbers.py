"""A count as judges write it: digits or a word, and nothing that leaves the number open."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cxrlab.metrics.judging.parsing.folding import NUMBER_WORDS

LARGEST = 100  # nobody makes more errors of one kind in one report

_WORDS = {**NUMBER_WORDS, "none": 0, "nil": 0}
_SPELLED = "|".join(sorted(_WORDS, key=len, reverse=True))
_LEAD = re.compile(r"[\s\"'*_`\[(]{0,8}")
_VALUE = re.compile(rf"(?P<minus>-\s?)?(?:(?P<digits>\d+(?:\.\d+)?)|(?P<word>(?:{_SPELLED})(?![a-z])))", re.I)
_NO_ERRORS = re.compile(r"no\s(?:(?:clinically\s)?(?:in)?significant\s|such\s)?(?:errors?|findings?|mistakes?)\b", re.I)
_VAGUE = re.compile(
    r"[~<>≈≥≤±]|(?:about|approx\w*|around|roughly|nearly|almost|at\s(?:least|most)|up\sto|more\sthan|less\sthan|over|under"
    r"|possibly|perhaps|maybe|probably|several|few|a\sfew|many|multiple|some|a\scouple|between|numerous)\b",
    re.I,
)
_RANGE = re.compile(rf"\s?(?:-|to\b|or\b|and/or\b|\.\.)\s?(?:\d|(?:{_SPELLED})\b)", re.I)
_OPEN = re.compile(
    r"\s?(?:\+|\?|or\s(?:more|so|fewer|less)\b|plus\b|ish\b|\(?(?:possibly|perhaps|maybe|approx|at least))", re.I
)
_RATIO = re.compile(r"\s?(?:/|of\s\d|out\sof\b|per\b)")
_MEASURE = re.compile(r"\s?(?:mm|cm|ml|cc|%|percent|°|degrees?)(?![a-z])|(?:st|nd|rd|th)\b", re.I)
_GLUED = re.compile(r"[A-Za-z\d^]|[,:]\d")
_SECOND_ITEM = re.compile(r"(?:^|[\s;,])2[.)]\s")


@dataclass(frozen=True)
class Count:
    """A number that was read, or why there is none.

    Args:
        value: The number; None where it could not be read.
        problem: A few words; empty where there is a value.
        end: Where it ends in the text that it was read from.
    """

    value: float | None
    problem: str = ""
    end: int = 0


def read_count(text: str, *, fractions: bool = True) -> Count:
    """The count at the beginning of a folded text.

    Args:
        text: From the place on where the count should stand.
        fractions: Whether 0.5 is a count, as a mean over readers is.
    """
    start = _LEAD.match(text)
    at = start.end() if start else 0
    if _VAGUE.match(text, at):
        return Count(None, "an approximate number")
    if found := _NO_ERRORS.match(text, at):
        return Count(0.0, end=found.end())
    found = _VALUE.match(text, at)
    if found is None:
        return Count(None, "no number")
    problem = _problem(found, text)
    value = _WORDS[found["word"].lower()] if found["word"] else float(found["digits"][:12])
    if problem is None and value != int(value) and not fractions:
        problem = "a fraction"
    if problem is None and value > LARGEST:
        problem = f"a count above {LARGEST}"
    return Count(None, problem) if problem else Count(float(value), end=found.end())


def _problem(found: re.Match[str], text: str) -> str | None:
    end = found.end()
    if found["minus"]:
        return "a negative number"
    if found["digits"] and len(found["digits"]) > 12:
        return f"a count above {LARGEST}"
    checks = (
        (_RANGE, "a range"),
        (_OPEN, "an approximate number"),
        (_RATIO, "a ratio"),
        (_MEASURE, "a measurement"),
        (_GLUED, "no plain number"),
    )
    for pattern, problem in checks:
        if pattern.match(text, end):
            return problem
    return None


def numbered_list(value: float, rest: str) -> bool:
    """Whether a 1 begins a numbered list (`1. effusion 2. edema`), so that it counts nothing.

    Args:
        value: The number that was read.
        rest: What follows it.
    """
    return value == 1 and rest.lstrip()[:1] in (".", ")") and bool(_SECOND_ITEM.search(rest))
