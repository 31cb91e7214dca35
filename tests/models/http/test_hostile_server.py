"""A server that means harm: nothing that it sends fills the memory, ends in a traceback, or brings a key back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chat_server import ChatServer, completion, refusal

from cxrlab.core.egress import Connection
from cxrlab.core.llm_requests import LLMConfig
from cxrlab.models.http_client import ChatClient, EndpointError
from cxrlab.models.http_models import HttpTextModel
from cxrlab.models.llm_cache import CachedTextModel

KEY = 'sk-0123"456789-never/to-be-seen'
HALF = "\ud800"


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as running:
        yield running


def asked(server: ChatServer) -> HttpTextModel:
    return HttpTextModel(ChatClient(server.address(), Connection(tries=2), sleep=lambda seconds: None))


def escaped(text: str) -> str:
    """Every letter as JSON may write it, so that no search in the bytes finds the text."""
    return "".join(f"\\u{ord(letter):04x}" for letter in text)


def test_a_key_that_comes_back_in_escapes_is_struck_out(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRLAB_API_KEY", KEY)
    body = json.dumps(completion("it is KEY", finish_reason="KEY")).replace("KEY", escaped(KEY))
    server.answer = lambda _: body.encode()
    (reported,) = asked(server).complete(["What is the key?"])
    assert reported.text == "it is ***"


def test_a_key_that_comes_back_in_pieces_is_struck_out(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRLAB_API_KEY", KEY)
    pieces = [{"choices": [{"delta": {"content": part}}]} for part in (KEY[:9], KEY[9:])]
    server.answer = lambda _: "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces).encode() + b"data: [DONE]\n"
    (reported,) = asked(server).complete(["What is the key?"])
    assert reported.text == "***"


def test_an_answer_that_is_compressed_is_not_unpacked(server: ChatServer) -> None:
    """Packed twice, 40 MiB are some hundred bytes; unpacked they would be there before their length is looked at."""
    packed = gzip.compress(gzip.compress(bytes(40 << 20)))
    assert len(packed) < 1000
    server.answer = lambda _: (200, packed, {"Content-Encoding": "gzip, gzip"})
    with pytest.raises(EndpointError, match="its answer is compressed"):
        asked(server).complete(["?"])


def test_half_a_character_in_any_text_of_an_answer_can_be_written_down(server: ChatServer) -> None:
    server.answer = lambda _: completion("", finish_reason=f"stop{HALF}", refusal=f"no{HALF}")
    (reported,) = asked(server).complete(["?"])
    assert dict(reported.extra) == {"prompt_tokens": 5, "finish_reason": "stop?", "refusal": "no?"}
    server.answer = lambda _: (400, refusal(f"no{HALF}", code=f"c{HALF}"))
    with pytest.raises(EndpointError) as error:
        asked(server).complete(["?"])
    assert str(error.value).isascii() and (error.value.server_message, error.value.code) == ("no?", "c?")


@pytest.mark.parametrize("count", [10**30, 10**4000, -1])
def test_tokens_that_nobody_can_have_counted_are_not_booked(server: ChatServer, tmp_path: Path, count: int) -> None:
    """The file of answers holds numbers of 64 bits, and a price is a float: both would fail after the answer came."""
    server.answer = lambda _: completion("four", prompt_tokens=count, tokens=count)
    with CachedTextModel(
        asked(server), LLMConfig(price_prompt=1.0, price_answer=1.0, max_cost=10.0), tmp_path
    ) as model:
        assert model.complete(["What is two and two?"], max_tokens=10)[0].tokens is None
        assert model.budget.spent == pytest.approx((5 + 1) / 1000)  # 20 and 4 characters, four to a token


def test_a_time_to_wait_that_no_calendar_has_is_passed_over(server: ChatServer) -> None:
    far = {"Retry-After": "Mon, 01 Jan 2024 00:00:00 +9999999999999999999"}
    server.answer = lambda _: (429, refusal("slow"), far)
    with pytest.raises(EndpointError, match="it answered 429 \\(slow\\)"):
        asked(server).complete(["?"])
