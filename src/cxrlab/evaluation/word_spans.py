"""Words of a report and where they stand."""

from __future__ import annotations

import re

from cxrlab.core.errors import DataError, nearest
from cxrlab.core.records import Span

_WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
# Neither letters nor a hyphen or apostrophe with letters behind it may go on beyond either end of a phrase.
_BEFORE, _AFTER = r"(?<!\w)(?<!\w['’\-])", r"(?!\w)(?!['’\-]\w)"


def every_word(text: str) -> list[Span]:
    """Characters [start, end) of each word, in order; `right-sided` is one word, punctuation none."""
    return [found.span() for found in _WORD.finditer(text)]


def occurrences(text: str, word: str) -> list[Span]:
    """Where a word or phrase stands in a text, in order, whatever its case; never inside another word.

    `right` is not found in `right-sided`. A word that is not there is a `DataError` with the nearest that is.
    """
    parts = word.split()
    if not parts:
        raise DataError("the word to explain is empty; give one that the report holds.")
    phrase = re.compile(_BEFORE + r"\s+".join(map(re.escape, parts)) + _AFTER, re.IGNORECASE)
    found = [match.span() for match in phrase.finditer(text)]
    if not found:
        words = sorted({text[start:end].lower() for start, end in every_word(text)})
        raise DataError(
            f"the report ({len(words)} different words) does not hold '{word}'.{nearest(word, words)} "
            "Give a word that it holds, or none for every word."
        )
    return found
