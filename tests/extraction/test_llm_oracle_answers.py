"""What a language model lists is read in every usual form, and nothing is made of what lists nothing."""

from __future__ import annotations

import pytest
from tables import every_row

from cxrlab.extraction.llm_oracle import PROSE, parse_descriptions

EDEMA, HEART = "There is edema.", "The heart is large."

WHOLE = {
    "numbered": "1. There is edema.\n2. The heart is large.",
    "numbered with brackets": "1) There is edema\n2) The heart is large",
    "bulleted": "- There is edema.\n* The heart is large.",
    "lettered": "a) There is edema.\nb) The heart is large.",
    "one a line": "There is edema.\nThe heart is large.\n",
    "with a greeting and a farewell": "Sure! Here:\n\n1. There is edema.\n2. The heart is large.\n\nAsk me more!",
    "with labels in bold": "1. **Edema**: There is edema.\n2. **Heart size:** The heart is large.",
    "with labels in plain words": "- Lungs: There is edema.\n- Heart: The heart is large.",
    "wrapped lines": "1. There is\n   edema.\n2. The heart\nis large.",
    "a JSON array": '["There is edema.", "The heart is large."]',
    "a fenced JSON array": 'Here you go:\n```json\n["There is edema.",\n "The heart is large."]\n```\nBye.',
    "a JSON object": '{"descriptions": ["There is edema.", "The heart is large."]}',
    "JSON objects in an array": '[{"id": 1, "text": "There is edema."}, {"id": 2, "text": "The heart is large."}]',
    "after thinking aloud": "<think>1. Should I say edema?</think>\n1. There is edema.\n2. The heart is large.",
    "after thinking without an opening mark": "I might say edema.</think>1. There is edema.\n2. The heart is large.",
    "in quotes": '1. "There is edema."\n2. “The heart is large.”',
    "without capitals": "1. there is edema\n2. the heart is large",
}


@every_row("answer", WHOLE.values(), ids=WHOLE)
def test_usual_forms_of_a_list_are_read(answer: str) -> None:
    parsed = parse_descriptions(answer)
    assert (parsed.state, parsed.lines, parsed.why) == ("parsed", (EDEMA, HEART), "")


GENERAL = "about images or patients in general"
PARTS = {
    "cut off in a list": ("1. There is edema.\n2. The heart is la", "1 cut off"),
    "cut off in JSON": ('["There is edema.", "The heart is la', "1 cut off"),
    "a place to fill in": ("1. There is edema.\n2. There is a [side] effusion.", "1 with a place to fill in"),
    "a question": ("1. There is edema.\n2. Shall I go on?", "1 a question"),
    "a paragraph among them": (f"1. There is edema.\n2. {'The lungs are clear. ' * 3}", "1 too long"),
    "sentences in a row": ("There is edema. Films show this. Is it so?", f"{PROSE}, 1 {GENERAL}, 1 a question"),
    "a definition": ("1. There is edema.\n2. A tube is seen on radiographs of ill patients.", f"1 {GENERAL}"),
    "a refusal among them": ("1. There is edema.\n2. I cannot describe more.", "1 refused"),
}


@pytest.mark.parametrize(("answer", "why"), PARTS.values(), ids=PARTS)
def test_what_is_no_description_is_left_out_and_reported(answer: str, why: str) -> None:
    parsed = parse_descriptions(answer)
    assert (parsed.state, parsed.lines, parsed.why) == ("partial", (EDEMA,), why)


NOTHING = {
    "empty": ("  \n", "empty"),
    "thoughts alone": ("<think>Let me list what an image", "cut off within its reasoning"),
    "thoughts and nothing after them": ("<think>Edema.</think>", "empty"),
    "a refusal": ("I'm sorry, but I can't help with medical text.", "refused"),
    "a heading": ("Abnormal findings:", "nothing but a heading"),
    "an empty array": ("[]", "JSON without a list of texts"),
    "numbers in an object": ('{"found": [1, 2]}', "JSON without a list of texts"),
    "broken JSON": ('["There is ede', "broken JSON"),
    "marks": ("1. ---\n2. ...", "2 without a word"),
}


@every_row(("answer", "why"), NOTHING.values(), ids=NOTHING)
def test_an_answer_without_a_description_has_failed(answer: str, why: str) -> None:
    parsed = parse_descriptions(answer)
    assert (parsed.state, parsed.lines, parsed.why) == ("failed", (), why)


def test_no_answer_takes_long_or_breaks_the_reader() -> None:
    hostile = ("[" * 5000, "1. " * 5000, "<think>" * 3000, '{"a":' * 4000, "\ud800", "-" * 20000, '["' + '\\"' * 9000)
    for answer in hostile:
        assert parse_descriptions(answer).state in ("parsed", "partial", "failed")
