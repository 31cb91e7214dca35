"""Characters of tokens."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from tiny_models import tiny_llava, tiny_tokenizer

from cxrlab.models.hf.prompting import report_ids, token_text, written_text


@pytest.mark.parametrize("text", ["Small left pleural effusion.", "Größe 3 µm – no cœur", "a  b\n\nc", "¿心臓?"])
def test_spans_tile_the_text_and_the_end_token_is_empty(text: str) -> None:
    """Every character belongs to exactly one token, also where one character takes several tokens."""
    processor = tiny_llava()[1]
    written = token_text(processor.tokenizer, report_ids(processor, text))
    assert written.text == text == written_text(processor, f" {text}\n")
    assert written.spans[0][0] == 0 and written.spans[-1] == (len(text), len(text))
    assert all(one[1] == other[0] for one, other in zip(written.spans, written.spans[1:], strict=False))


def test_a_word_of_several_tokens_is_found_whole() -> None:
    """The decoded tokens of a span hold it, and no token more."""
    tokenizer = tiny_tokenizer()
    text = "Right hydropneumothorax seen"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    written = token_text(tokenizer, ids)
    chosen = written.tokens_of([(6, 23)])
    assert len(chosen) > 1 and tokenizer.decode([ids[k] for k in chosen]).strip() == "hydropneumothorax"
    others = written.tokens_of([(0, 5), (24, 28)])
    assert not set(others) & set(chosen) and tokenizer.decode([ids[k] for k in others]).replace(" ", "") == "Rightseen"


def test_a_span_without_any_token_is_a_mistake_of_the_programmer() -> None:
    with pytest.raises(ValueError, match="no token"):
        token_text(tiny_tokenizer(), []).tokens_of([(0, 3)])
