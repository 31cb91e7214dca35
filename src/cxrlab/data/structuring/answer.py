"""The JSON object in an answer: found in prose or a code fence, and checked key by key."""

from __future__ import annotations

from cxrlab.core.json_form import BadJson, loads
from cxrlab.core.records import Report

KEYS = ("examination", "indication", "findings", "impression")
NO_OBJECT = "the answer holds no JSON object"
BROKEN = "the JSON object is broken or cut off"
OTHER_KEYS = "the JSON object has other keys than the four sections"
NOT_TEXT = "a section is neither text nor null"
EMPTY = "every section is empty"
TOO_LONG = "the answer is too long for a report"

# What models write for "nothing".
_NOTHING = frozenset({"", "null", "none", "n/a", "na", "not applicable", "not provided", "not available", "-"})
_FENCE = "```"
# Characters of the longest answer that is looked at: ten times the longest report.
LONGEST = 100_000


class BadAnswer(ValueError):
    """An answer that cannot be used; the message is one of the fixed sentences above."""


def parse(text: str) -> Report:
    """The four sections of an answer; a key left out counts as null, any other fault is a `BadAnswer`."""
    if len(text) > LONGEST:
        raise BadAnswer(TOO_LONG)
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
    """The outermost object of the text after any thinking aloud; in a fence if there is one."""
    text = text.rpartition("</think>")[2]
    if text.count(_FENCE) > 1 and "{" in (fenced := text.split(_FENCE)[1]):
        text = fenced
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
    # Signs that steer a terminal or turn the direction of a line are no words.
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
