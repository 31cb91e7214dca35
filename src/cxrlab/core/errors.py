"""The errors that users can cause; each message states what was given, what is wrong and what to do.

The command line prints the message of a `CxrlabError` as one sentence and exits 1; any other exception is a defect of
the program and keeps its traceback.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Any


class CxrlabError(Exception):
    """Base of all errors that a user can cause and correct."""


class ConfigError(CxrlabError):
    """A setting that does not exist, has the wrong type or contradicts another."""


class DataError(CxrlabError):
    """A file that is missing, truncated, malformed or inconsistent."""


class VocabularyError(DataError):
    """A word that is not in the vocabulary."""


class UnknownName(ConfigError):
    """A name that a table does not list."""


class MissingExtra(CxrlabError):
    """An optional part of the program that is not installed."""


class RunError(CxrlabError):
    """A run folder that cannot be opened, resumed or written."""


class OutOfMemory(CxrlabError):
    """Not enough memory even for a batch of one; the command line adds the flags that may help."""


def did_you_mean(word: str, names: Iterable[str], most: int = 3) -> str:
    """A 'did you mean' clause, or an empty string when nothing is close.

    >>> did_you_mean("sise", ["size", "seed"])
    " Did you mean 'size'?"
    """
    lowered = {name.lower(): name for name in names}
    close = [lowered[match] for match in difflib.get_close_matches(word.lower(), lowered, n=most, cutoff=0.6)]
    if not close:
        return ""
    return " Did you mean " + " or ".join(f"'{name}'" for name in close) + "?"


def short_repr(value: Any) -> str:
    """A value for a message: its repr, null for None, long ones cut in the middle; of a report only how long it is."""
    if value is None:
        return "null"
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to write out a whole number of thousands of digits
        return "a number of thousands of digits"


class _ShortRepr(reprlib.Repr):
    def repr_str(self, text: str, level: int) -> str:
        words = len(text.split())
        return super().repr_str(text, level) if words <= MAX_QUOTED_WORDS else f"text of {words} words"


MAX_QUOTED_WORDS = 4  # a longer text may be a report, which no message quotes
_SHORT = _ShortRepr()
_SHORT.maxstring = _SHORT.maxother = 80
