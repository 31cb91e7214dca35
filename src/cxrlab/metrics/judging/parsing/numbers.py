"""A count as judges write it: digits or a word, and nothing that leaves the number open."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cxrlab.metrics.judging.parsing.folding import NUMBER_WORDS

LARGEST = 100  # nobody makes more errors of one kind in one report
_TAKEN_BACK = "a zero that is taken back"

_WORDS = {**NUMBER_WORDS, "none": 0, "nil": 0}
_SPELLED = "|".join(sorted(_WORDS, key=len, reverse=True))
_LEAD = re.compile(r"[\s\"'*_`\[(]{0,8}")
_VALUE = re.compile(rf"(?P<minus>-\s?)?(?:(?P<digits>\d+(?:\.\d+)?)|(?P<word>(?:{_SPELLED})(?![a-z])))", re.I)
_NO_ERRORS = re.compile(
    r"no\s(?:(?:clinically\s)?(?:in)?significant\s|such\s)?(?:errors?|findings?|mistakes?)\b"
    r"(?=\s{0,2}(?:$|[.,;)\]}\n\"'*]|(?:were|was|are|is|have|has|been|here|in|found|identified|noted|but|except)\b))",
    re.I,
)
_VAGUE = re.compile(
    r"[~<>≈≥≤±]|(?:about|approx\w*|around|roughly|nearly|almost|at\s(?:least|most)|up\sto|more\sthan|less\sthan|over|under"
    r"|possibly|perhaps|maybe|probably|several|few|a\sfew|many|multiple|some|a\scouple|between|numerous)\b",
    re.I,
)
# A second number right behind the first ("1-2", "1~2", "1 (or 2)", "1, maybe 2", "1 → 2", "2 1"): which one is meant?
_RANGE = re.compile(
    rf"\s?[,(]?\s?(?:-|~|to\b|or\b|and\b|and/or\b|&|\.{{2,3}}|->|[→±×|]|vs\b\.?|x\b|maybe\b|possibly\b|perhaps\b"
    rf"|probably\b|(?:corrected|revised|actually|rather|now)\b:?)\s?\(?(?:\d|(?:{_SPELLED})\b)|(?:[ _]|, ?)\d",
    re.I,
)
_OPEN = re.compile(
    r"\s?(?:\+|\?|or\s(?:more|so|fewer|less)\b|plus\b|ish\b|(?:if|unless)\b"
    r"|[,(]?\s?(?:possibly|perhaps|maybe|approx|at least))",
    re.I,
)
_RATIO = re.compile(r"\s?(?:/|of\s\d|out\sof\b|per\b)")
_MEASURE = re.compile(
    r"[\s-]?(?:mm|cm|ml|cc|%|percent|°|degrees?|inch(?:es)?|french|fr|days?|weeks?|months?|years?)(?![a-z])|(?:st|nd|rd|th)\b",
    re.I,
)
_GLUED = re.compile(r"[A-Za-z\d^]|[,:]\d|-[A-Za-z]|\s(?:hundred|thousand|dozen)\b", re.I)
# Nothing, and then something after all: "none, except one nodule", "none of the three nodules is mentioned".
_YET = re.compile(
    r"(?:\s{0,2},?\s?[^.,;:\n\d]{0,60}?\b(?:except|but|however|other\sthan|apart\sfrom|besides|although|only|save)\b)|\sof\b",
    re.I,
)
_FIRST_ITEM = re.compile(r"\s?(?:[.)]|[:-](?=\s))")
_SECOND_ITEM = re.compile(r"(?:^|[\s;,(])2(?:[.)](?!\d)|\s?[:-]\s)")


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


def read_count(text: str, *, fractions: bool = True, sentences: bool = True) -> Count:
    """The count at the beginning of a folded text.

    Args:
        text: From the place on where the count should stand.
        fractions: Whether 0.5 is a count, as a mean over readers is.
        sentences: Whether "no errors" is a count of them; of matched findings "no findings were missed" is none.
    """
    start = _LEAD.match(text)
    at = start.end() if start else 0
    if _VAGUE.match(text, at):
        return Count(None, "an approximate number")
    if sentences and (found := _NO_ERRORS.match(text, at)):
        return Count(None, _TAKEN_BACK) if _YET.match(text, found.end()) else Count(0.0, end=found.end())
    found = _VALUE.match(text, at)
    if found is None:
        return Count(None, "no number")
    problem = _problem(found, text)
    value = _WORDS[found["word"].lower()] if found["word"] else float(found["digits"][:12])
    if problem is None and value != int(value) and not fractions:
        problem = "a fraction"
    if problem is None and value > LARGEST:
        problem = f"a count above {LARGEST}"
    if problem is None and value == 0 and _YET.match(text, found.end()):
        problem = _TAKEN_BACK
    return Count(None, problem) if problem else Count(float(value), end=found.end())


def _problem(found: re.Match[str], text: str) -> str | None:
    end = found.end()
    if found["minus"]:
        return "a negative number"
    if found["digits"] and len(found["digits"]) > 12:
        return f"a count above {LARGEST}"
    checks = (
        (_MEASURE, "a measurement"),
        (_GLUED, "no plain number"),
        (_RANGE, "a range"),
        (_OPEN, "an approximate number"),
        (_RATIO, "a ratio"),
    )
    for pattern, problem in checks:
        if pattern.match(text, end):
            return problem
    return None


def numbered_list(value: float, rest: str) -> bool:
    """Whether a 1 begins a numbered list (`1. effusion 2. edema`, `(1) … (2) …`), so that it counts nothing.

    Args:
        value: The number that was read.
        rest: What follows it.
    """
    return value == 1 and bool(_FIRST_ITEM.match(rest)) and bool(_SECOND_ITEM.search(rest))
