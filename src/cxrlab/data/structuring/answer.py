"""The JSON object in an answer: found in prose or a code fence, and checked key by key."""

from __future__ import annotations

import re

from cxrlab.core.json_form import BadJson, loads
from cxrlab.core.records import Report

KEYS = ("examination", "indication", "findings", "impression")
NO_OBJECT = "the answer holds no JSON object"
BROKEN = "the JSON object is broken or cut off"
OTHER_KEYS = "the JSON object has other keys than the four sections"
NOT_TEXT = "a section is neither text nor null"
EMPTY = "every section is empty"

# What models write for "nothing".
_NOTHING = frozenset({"", "null", "none", "n/a", "na", "not applicable", "not provided", "not available", "-"})
_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.DOTALL | re.IGNORECASE)


class BadAnswer(ValueError):
    """An answer that cannot be used; the message is one of the fixed sentences above."""


def parse(text: str) -> Report:
    """The four sections of an answer; a key left out counts as null, any other fault is a `BadAnswer`."""
    values = _object(text)
    if set(values) - set(KEYS):
        raise BadAnswer(OTHER_KEYS)
    if not all(value is None or isinstance(value, str) for value in values.values()):
        raise BadAnswer(NOT_TEXT)
    sections = {name: _cleaned(values.get(name)) for name in KEYS}
    if not any(sections.values()):
        raise BadAnswer(EMPTY)
    return Report(**sections)


def _object(text: str) -> dict[str, str | None]:
    """The outermost object of the text; in a fence if there is one."""
    if fenced := _FENCE.search(text):
        text = fenced[1]
    start, end = text.find("{"), text.rfind("}")
    if start < 0:
        raise BadAnswer(NO_OBJECT)
    try:
        value = loads(text[start : end + 1])
    except BadJson:
        # Lines broken inside a text are no JSON, and common; nothing else is guessed.
        try:
            value = loads(" ".join(text[start : end + 1].split()))
        except BadJson:
            raise BadAnswer(BROKEN) from None
    found: dict[str, str | None] = value  # it begins with a brace, so it is an object
    return found


def _cleaned(text: str | None) -> str | None:
    if text is None or text.strip().rstrip(".").lower() in _NOTHING:
        return None
    return " ".join(text.split())
