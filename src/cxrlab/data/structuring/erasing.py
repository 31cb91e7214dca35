"""Words of change taken out of a sentence one phrase at a time, found with the findings reader's own tables.

What no row of `rewriting` catches is caught here, since the reader knows every phrase by which it reads a
change. Each way of taking a phrase out is tried; the first that leaves the findings as they are, with fewer
changes told, is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from cxrlab.data.structuring.patterns import BROKEN
from cxrlab.data.structuring.rewriting import tidy
from cxrlab.data.structuring.validate import differences
from cxrlab.findings.reader import Reading, read
from cxrlab.findings.reading.phrase_tables import Kind
from cxrlab.findings.reading.phrases import load_matcher
from cxrlab.findings.reading.tokens import tokenize

_WANTED = (Kind.CHANGE, Kind.RESOLUTION, Kind.RESOLUTION_BACKWARD)
_BEFORE = re.compile(
    r"(?:[,(]\s*|\b(?:but|and|with|which is|which are|that is|is|are|has|have|been|an?|the|in|of|at|to)\s+)+$",
    re.IGNORECASE,
)
# "no pneumothorax after removal of the tube": two denials.
_AFTER = re.compile(r",? (?:following|after|post|status post|s/p)(?: interval)? ?$", re.IGNORECASE)
_CLAUSE = re.compile(r"[^,;]*")
_IN_SIZE = re.compile(
    r"\s*\b(?:in|of) (?:size|extent|volume|appearance|position|degree|severity|number)\b", re.IGNORECASE
)
# What follows a word of change and belongs to it: "since last time", "than before", or nothing.
_BELONGS = re.compile(
    r"\s*(?:$|[,;]|(?:since|from|than|as|to|against|after|time|on|when|compared|place|position|site|film|study)\b)",
    re.IGNORECASE,
)
# Said of what has gone: where it was seen before.
_THEN = re.compile(
    r"\b(?:prior|previous|earlier|former|formerly visible|previously \w+)\s+(?=\w)"
    r"|\s+(?:seen )?on the (?:prior|previous|earlier|last) \w+\b",
    re.IGNORECASE,
)


def without_change(text: str, reading: Reading) -> str:
    """The sentence with as few words of change as the reader allows; the text itself when there are none.

    Args:
        text: A sentence without its end mark.
        reading: What its source says; nothing of it may be lost.
    """
    left = _changes(read(text))
    while left:
        for candidate in _candidates(text):
            after = read(candidate)
            if (
                candidate
                and _changes(after) < left
                and not BROKEN.search(candidate)
                and not differences(reading, after)
            ):
                text, left = candidate, _changes(after)
                break
        else:
            return text
    return text


def _changes(reading: Reading) -> int:
    return sum(finding.change is not None for finding in reading)


def _candidates(text: str) -> Iterator[str]:
    """Ways to take one phrase of change out, the best first."""
    for kind, start, end in _phrases(text):
        before, after = text[:start], text[end:]
        rest = _CLAUSE.sub("", after, count=1)
        if kind is Kind.RESOLUTION:
            gone = _THEN.sub("", re.sub(r"^ *(?:of )?", "", after))
            yield tidy(f"{_AFTER.sub(',', before)} no {gone}")
        elif kind is Kind.RESOLUTION_BACKWARD:
            yield tidy(f"no {_lowered(_THEN.sub('', before))}{rest}")
        else:
            joint = _BEFORE.search(before)
            bare = before[: joint.start()] if joint else before
            sized = _IN_SIZE.sub("", after, count=1)
            if _BELONGS.match(sized):
                yield tidy(bare + rest)
                yield tidy(before + rest)
            yield tidy(before + sized)
            yield tidy(f"{bare} {sized}")
            yield tidy(f"{before}present{rest}")
            yield tidy(bare + rest)


def _phrases(text: str) -> list[tuple[Kind, int, int]]:
    """Kind and characters [start, end) of every phrase of change; the last first, since it is most often an aside."""
    matcher = load_matcher()
    tokens = tokenize(text, matcher.spelling)
    phrases = [phrase for phrase in matcher.find(tokens) if phrase.kind in _WANTED]
    return [(phrase.kind, tokens[phrase.first].start, tokens[phrase.last - 1].end) for phrase in reversed(phrases)]


def _lowered(text: str) -> str:
    """The first letter in lower case, unless it begins an abbreviation."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
