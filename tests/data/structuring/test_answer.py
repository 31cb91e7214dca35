"""Answers as models give them."""

from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.core.records import Report
from cxrlab.data.structuring.by_model import (
    BROKEN,
    EMPTY,
    LONGEST,
    NO_OBJECT,
    NOT_TEXT,
    OTHER_KEYS,
    TOO_LONG,
    BadAnswer,
    parse,
)

GOOD = '{"examination": null, "indication": "Cough.", "findings": "Clear lungs.", "impression": null}'


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}```",
        f"Here is the report:\n{GOOD}\nI hope it helps.",
        f"<think>Perhaps {{this}} or {{that}}.</think>\n{GOOD}",
        '{"indication": "Cough.", "findings": "Clear\nlungs."}',
        '{"EXAMINATION": null, "INDICATION": "Cough.", "FINDINGS": "Clear lungs."}',
        '{"examination": "N/A", "indication": " Cough. ", "findings": "Clear lungs.", "impression": "none."}',
    ],
)
def test_the_object_is_found(text: str) -> None:
    """In a fence, in prose, with keys left out, with words for nothing, in capitals, with a line broken."""
    assert parse(text) == Report(indication="Cough.", findings="Clear lungs.")


@every_row(
    ("text", "why"),
    [
        ("", NO_OBJECT),
        ("I cannot help with that.", NO_OBJECT),
        ('{"findings": "Clear', BROKEN),
        (GOOD + GOOD, BROKEN),
        ('{"findings": "a", "findings": "b"}', BROKEN),
        ('{"findings": "Clear.", "Findings": "Clear."}', OTHER_KEYS),
        ('{"findings": "Clear.", "comparison": "None."}', OTHER_KEYS),
        ('{"findings": ["Clear."]}', NOT_TEXT),
        ('{"findings": null}', EMPTY),
        ('{"findings": "  "}', EMPTY),
        ("{}", EMPTY),
    ],
)
def test_a_bad_answer_says_why(text: str, why: str) -> None:
    with pytest.raises(BadAnswer, match=why):
        parse(text)


@pytest.mark.parametrize(
    "text", ["```json" + " " * 10_000_000, '{"findings": "' + "x" * LONGEST + '"}', "{" * 10_000_000]
)
def test_ten_megabytes_are_refused_at_once(text: str) -> None:
    """Time that grows with the square of an answer would hold up a whole corpus."""
    with pytest.raises(BadAnswer, match=TOO_LONG):
        parse(text)


def test_signs_that_steer_a_terminal_are_taken_out() -> None:
    assert parse(r'{"findings": "Left\u001b[31m effu\u202esion."}').findings == "Left [31m effu sion."
