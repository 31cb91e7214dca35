"""From the bytes of a request to what it asks for, or to a sentence that says what is wrong with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from serving_models import chat_request, image_of, url_of
from tables import every_row

from cxrlab.models.decoding import Decoding
from cxrlab.models.prompts import load_prompts, prompt_names
from cxrlab.serving.config import Limits
from cxrlab.serving.errors import ApiError
from cxrlab.serving.schemas import ParsedRequest, parse_chat_request

IMAGE = image_of(1)


def understood(request: Any, **limits: int) -> ParsedRequest:
    return parse_chat_request(json.dumps(request).encode(), Limits(**limits))  # type: ignore[arg-type]


def texts(*contents: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": role, "content": content} for role, content in contents], **more}


def test_a_image_with_its_indication() -> None:
    found = understood(chat_request(IMAGE, "Cough  for a week."))
    assert found.picture == url_of(IMAGE) and found.text == "Cough for a week."
    assert found.decoding is None and (found.choices, found.streamed) == (1, False)


@pytest.mark.parametrize("row", prompt_names())
def test_the_indication_is_found_in_the_words_of_every_prompt(row: str) -> None:
    """Our own client asks in the words of a row; the model here puts the indication into its own."""
    prompts = load_prompts(row)
    assert understood(chat_request(IMAGE, prompts.ask(None) or None)).text is None
    if "{indication}" in prompts.findings:
        assert understood(chat_request(IMAGE, prompts.ask("Fever."))).text == "Fever."


def test_a_image_without_a_word_has_no_indication() -> None:
    assert understood(chat_request(IMAGE)).text is None and understood(chat_request(IMAGE, "  ")).text is None


def test_beside_a_image_only_the_last_user_message_counts() -> None:
    request = chat_request(IMAGE, "Now.")
    earlier = [
        {"role": "system", "content": "You are a pirate."},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url_of(image_of(2))}}]},
        {"role": "assistant", "content": "Normal."},
    ]
    request["messages"] = earlier + request["messages"]
    found = understood(request)
    assert found.picture == url_of(IMAGE) and found.text == "Now."


def test_a_picture_may_stand_as_text_in_its_part() -> None:
    request = chat_request(IMAGE)
    request["messages"][0]["content"][0]["image_url"] = url_of(IMAGE)
    assert understood(request).picture == url_of(IMAGE)


def test_text_alone_is_one_prompt() -> None:
    found = understood(
        texts(("system", "Be brief."), ("user", [{"type": "text", "text": "Why?"}]), seed=3, max_tokens=9)
    )
    assert found.picture is None and found.text == "Be brief.\n\nWhy?" and (found.seed, found.max_tokens) == (3, 9)


@every_row(
    ("settings", "decoding"),
    [
        ({}, None),
        ({"temperature": 0, "top_p": 0.5, "seed": 1}, None),
        ({"max_tokens": 9}, Decoding(max_new_tokens=9)),
        ({"max_tokens": 9, "max_completion_tokens": 8, "temperature": 0.0}, Decoding(max_new_tokens=8)),
        (
            {"temperature": 0.5, "seed": 3, "n": 2, "top_p": 0.9},
            Decoding(strategy="sample", temperature=0.5, seed=3, answers=2, top_p=0.9),
        ),
        ({"temperature": 1, "seed": -1}, Decoding(strategy="sample", seed=(1 << 62) - 1)),
        ({"temperature": None, "n": None, "stream": None, "stream_options": None}, None),
        ({"tools": [{"x": 1}], "stop": ["a"], "user": "somebody", "response_format": {"type": "text"}}, None),
    ],
)
def test_how_words_are_chosen(settings: dict[str, Any], decoding: Decoding | None) -> None:
    assert understood(chat_request(IMAGE, **settings)).decoding == decoding


def test_without_a_seed_each_request_draws_its_own() -> None:
    drawn = [understood(chat_request(IMAGE, temperature=1.0)).decoding for _ in range(2)]
    assert drawn[0] is not None and drawn[0] != drawn[1]


def test_streaming_and_its_usage() -> None:
    found = understood(chat_request(IMAGE, stream=True, stream_options={"include_usage": True}))
    assert found.streamed and found.usage_streamed


WRONG: list[tuple[Any, int, str]] = [
    ([], 400, "the request is a list"),
    ("text", 400, "the request is text"),
    ({}, 400, "'model' is missing"),
    ({"model": "m"}, 400, "'messages' is missing"),
    ({"model": 5, "messages": [{"role": "user"}]}, 400, "'model' is 5"),
    ({"model": "", "messages": [{"role": "user"}]}, 400, "'model' is text"),
    ({"model": "m", "messages": []}, 400, "'messages' is a list"),
    ({"model": "m", "messages": {"role": "user"}}, 400, "'messages' is an object"),
    ({"model": "m", "messages": ["hello"]}, 400, "'messages.0' is text"),
    (texts(("wizard", "x")), 400, "'messages.0.role' is text"),
    (texts(("user", 5)), 400, "'messages.0.content' is 5"),
    (texts(("user", [{"type": "input_audio"}])), 400, "neither 'text' nor 'image_url'"),
    (texts(("user", [{"text": "x"}])), 400, "neither 'text' nor 'image_url'"),
    (texts(("user", [{"type": "text", "text": 5}])), 400, "'messages.0.content.0.text' is 5"),
    (texts(("user", [{"type": "image_url"}])), 400, "'messages.0.content.0.image_url' is missing"),
    (texts(("user", [{"type": "image_url", "image_url": {}}])), 400, "'messages.0.content.0.image_url.url' is missing"),
    (texts(("user", [{"type": "image_url", "image_url": {"url": None}}])), 400, "image_url.url' is null"),
    (texts(("system", "x")), 400, "role 'user'"),
    (texts(("user", None)), 400, "neither a picture nor a word"),
    (texts(("user", " ")), 400, "neither a picture nor a word"),
    (chat_request(IMAGE, temperature="hot"), 400, "'temperature' is text"),
    (chat_request(IMAGE, temperature=2.5), 400, "'temperature' is 2.5"),
    (chat_request(IMAGE, temperature=-0.1), 400, "'temperature' is -0.1"),
    (chat_request(IMAGE, temperature=True), 400, "'temperature' is True"),
    (chat_request(IMAGE, top_p=0), 400, "'top_p' is 0"),
    (chat_request(IMAGE, n=0), 400, "'n' is 0"),
    (chat_request(IMAGE, n=1.5), 400, "'n' is 1.5"),
    (chat_request(IMAGE, n="2"), 400, "'n' is text"),
    (chat_request(IMAGE, n=9), 400, "n=9 is more than the 8"),
    (chat_request(IMAGE, max_tokens=0), 400, "'max_tokens' is 0"),
    (chat_request(IMAGE, max_tokens=10**9), 400, "1,000,000,000 tokens"),
    (chat_request(IMAGE, seed=2**63), 400, "'seed' is 9223372036854775808"),
    (chat_request(IMAGE, stream="yes"), 400, "'stream' is text"),
    (chat_request(IMAGE, stream_options=[]), 400, "'stream_options' is a list"),
    (chat_request(IMAGE, "half \ud800"), 400, "lone surrogate"),
    (texts(("user", "x" * 200_001)), 413, "200,001 characters"),
    (texts(*[("user", "x")] * 65), 413, "65 messages"),
]


@every_row(("request_", "status", "words"), WRONG, ids=[words for _, _, words in WRONG])
def test_what_is_wrong_is_said_in_a_sentence(request_: Any, status: int, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        understood(request_)
    assert caught.value.status == status and words in caught.value.message and caught.value.message.endswith(".")
    assert len(caught.value.message) < 300


def test_two_images_in_one_question() -> None:
    request = chat_request(IMAGE)
    request["messages"][0]["content"] *= 2
    with pytest.raises(ApiError, match="invalid") as caught:
        understood(request)
    assert "2 pictures" in caught.value.message
    request["messages"] *= 3
    with pytest.raises(ApiError) as caught:
        understood(request)
    assert caught.value.status == 413 and "6 pictures" in caught.value.message


@every_row(
    ("body", "status", "words"),
    [
        (b"", 400, "not valid JSON"),
        (b"{", 400, "not valid JSON (at character 1)"),
        (b"\xff\xfe{}", 400, "not UTF-8"),
        (b'{"model": NaN}', 400, "not valid JSON"),
        (b"[" * 50_000, 400, "nested too deeply"),
        (b'{"a":' * 20_000, 400, "nested too deeply"),
        (b"[[],[],[]]" + b"," * 100_000, 413, "100,000 commas"),
        (b'{"n": ' + b"9" * 5000 + b"}", 400, "not valid JSON"),
        (json.dumps(chat_request(IMAGE)).encode()[:-1] + b', "n": 1e999}', 400, "'n' is inf"),
    ],
)
def test_bytes_that_are_no_request(body: bytes, status: int, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_chat_request(body, Limits())
    assert caught.value.status == status and words in caught.value.message
