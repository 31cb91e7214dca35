from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from chat_server import Answer, ChatServer, completion, last_message_text, refusal

from cxrlab.core.egress import Connection
from cxrlab.core.model_interfaces import StreamsAnswers, TextModel, TextRequest
from cxrlab.models.http_client import ChatClient, EndpointError
from cxrlab.models.http_models import HttpTextModel
from cxrlab.models.llm_cache import HasFingerprint
from cxrlab.models.model_registry import load_text_model


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.delenv("CXRLAB_API_KEY", raising=False)
    with ChatServer() as running:
        yield running


def model_of(server: ChatServer, **settings: Any) -> HttpTextModel:
    return HttpTextModel(ChatClient(server.address(), Connection(**settings), sleep=lambda _: None))


def test_it_is_a_text_model_by_its_name(server: ChatServer) -> None:
    model = load_text_model(server.address("a/b:c#d"), Connection(tries=2))
    assert isinstance(model, HttpTextModel) and isinstance(model, TextModel) and isinstance(model, StreamsAnswers)
    assert not isinstance(model, HasFingerprint)
    assert model.name == server.address("a/b:c#d")
    assert model.complete(["hello"])[0].text == "hello"
    assert server.requests[0].body["model"] == "a/b:c#d"


def test_settings_are_those_that_give_the_same_answer_again(server: ChatServer) -> None:
    (answer,) = model_of(server).complete(["hello"], max_tokens=17, seed=5)
    message = {"role": "user", "content": "hello"}
    wanted = {"model": "m", "messages": [message], "temperature": 0, "seed": 5, "max_tokens": 17}
    assert server.requests[0].body == wanted
    assert (answer.text, answer.tokens, dict(answer.extra)) == ("hello", 3, {"prompt_tokens": 5})


def test_answers_are_in_order_and_no_more_under_way_than_allowed(server: ChatServer) -> None:
    """Later prompts are answered first; four at a time."""
    four = threading.Barrier(4)

    def answer(body: dict[str, Any]) -> str:
        place = four.wait(10)
        threading.Event().wait(0.002 * place)
        return last_message_text(body).upper()

    server.answer = answer
    prompts = [f"prompt {number}" for number in range(24)]
    found = model_of(server, concurrency=4).complete(prompts)
    assert [one.text for one in found] == [prompt.upper() for prompt in prompts]
    assert server.most_in_flight == 4 and len(server.requests) == 24
    assert model_of(server).complete([]) == []


def test_after_a_failure_no_new_prompt_is_sent_and_what_came_is_handed_out(server: ChatServer) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        return (400, refusal("no")) if last_message_text(body) == "p5" else last_message_text(body)

    server.answer = answer
    came = []
    with pytest.raises(EndpointError, match="it answered 400"):
        prompts = iter([TextRequest(f"p{number}") for number in range(50)])
        for request, _ in model_of(server, concurrency=1).answers(lambda: next(prompts, None)):
            came.append(request.prompt)
    assert came == ["p0", "p1", "p2", "p3", "p4"] and len(server.requests) == 6


@pytest.mark.parametrize(
    ("reply", "text", "extra"),
    [
        (completion("cut", "length"), "cut", {"truncated": True}),
        (completion(None, "content_filter"), "", {"finish_reason": "content_filter"}),
        (completion("There is no", "content_filter"), "There is no", {"truncated": True}),
        (completion("", "length"), "", {"truncated": True, "finish_reason": "length"}),
        (completion(None, "tool_calls", tool_calls=[{"id": "x"}]), "", {"finish_reason": "tool_calls"}),
        (completion(None, "stop", refusal="I will not."), "", {"finish_reason": "stop", "refusal": "I will not."}),
        (completion(" yes\n", reasoning_content="Let me think: no."), "yes", {}),
        (completion([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]), "ab", {}),  # type: ignore[arg-type]
        (completion("half \ud83d"), "half ?", {}),
    ],
)
def test_an_answer_is_what_the_server_said_and_nothing_else(
    server: ChatServer, reply: dict[str, Any], text: str, extra: dict[str, Any]
) -> None:
    server.answer = lambda body: reply
    (answer,) = model_of(server).complete(["?"])
    assert answer.text == text and dict(answer.extra) == {"prompt_tokens": 5, **extra}


def chunk(content: str | None = None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": content} if content is not None else {}, "finish_reason": reason}
    return {"object": "chat.completion.chunk", "choices": [choice], **more}


def events(*chunks: dict[str, Any] | str) -> bytes:
    """Chunks as server-sent events; a text goes as it is."""
    return "".join(f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n" for one in chunks).encode()


COUNTED = {"prompt_tokens": 5, "completion_tokens": 2}


@pytest.mark.parametrize(
    ("stream", "text", "extra"),
    [
        ((chunk("Small"), chunk(" effusion."), chunk(None, "stop", usage=COUNTED)), "Small effusion.", {}),
        (
            (chunk("Small"), chunk(" eff", "length"), {"choices": [], "usage": COUNTED}),
            "Small eff",
            {"truncated": True},
        ),
        ((chunk("Sm\u2028ör"), "[DONE]"), "Sm\u2028ör", {}),
    ],
)
def test_an_answer_that_comes_in_pieces_unasked_is_put_together(
    server: ChatServer, stream: tuple[Any, ...], text: str, extra: dict[str, Any]
) -> None:
    """`transformers serve` up to 4.57 streams whatever it is asked; it sends no word for the end, others do."""
    server.answer = lambda body: events(*stream)
    (answer,) = model_of(server).complete(["?"])
    assert answer.text == text and {**answer.extra, "prompt_tokens": 5} == {"prompt_tokens": 5, **extra}
    assert answer.tokens in (2, None) and "stream" not in server.requests[0].body


@pytest.mark.parametrize(
    "stream",
    [
        (chunk("There is no"),),
        (chunk("There is no"), {"error": "out of memory"}, chunk(None, "stop")),
        (chunk("There is no"), '{"choices": [{"del'),
        (chunk("There is no"), "[1]", chunk(None, "stop")),
        ({"choices": [{"index": 0, "delta": {"content": ["a"]}}]}, "[DONE]"),
    ],
)
def test_a_stream_that_breaks_off_is_no_answer(server: ChatServer, stream: tuple[Any, ...]) -> None:
    """Half a report says something else than the whole; it is asked for again."""
    replies = [events(*stream), events(chunk("Whole.", "stop"))]
    server.answer = lambda body: replies.pop(0)
    assert model_of(server).complete(["?"])[0].text == "Whole." and not replies


def test_a_key_in_pieces_is_struck_out_too(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRLAB_API_KEY", "sk-0123456789-never-to-be-seen")
    server.answer = lambda body: events(chunk("it is sk-0123456789"), chunk("-never-to-be-seen", "stop"))
    assert model_of(server).complete(["?"])[0].text == "it is ***"


def test_a_server_that_does_not_count_leaves_tokens_unknown(server: ChatServer) -> None:
    for usage in (None, {}, {"prompt_tokens": -1, "completion_tokens": True}, "much"):
        server.answer = lambda body, usage=usage: {**completion("x"), "usage": usage}  # type: ignore[misc]
        (answer,) = model_of(server).complete(["?"])
        assert answer.tokens is None and dict(answer.extra) == {}


@pytest.mark.parametrize("code", ["content_filter", "invalid_prompt"])
def test_what_a_filter_refuses_does_not_stop_the_run(server: ChatServer, code: str) -> None:
    """The codes of Azure and of OpenAI's thinking models."""

    def answer(body: dict[str, Any]) -> Answer:
        return (400, refusal("filtered", code)) if last_message_text(body) == "p1" else last_message_text(body)

    server.answer = answer
    found = model_of(server).complete(["p0", "p1", "p2"])
    assert [one.text for one in found] == ["p0", "", "p2"]
    assert found[1].extra["finish_reason"] == "content_filter"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("This model's maximum context length is 4096 tokens. However, you requested 5120 tokens.", "BadRequestError"),
        ("Your input is too long.", "context_length_exceeded"),
        ("the request exceeds the available context size", "exceed_context_size_error"),
    ],
)
def test_a_prompt_that_is_too_long_does_not_stop_the_run(server: ChatServer, said: str, code: str) -> None:
    """As vLLM, OpenAI and llama.cpp say it: one report of a corpus may be longer than a model has room for."""

    def answer(body: dict[str, Any]) -> Answer:
        return (400, refusal(said, code)) if last_message_text(body) == "p1" else last_message_text(body)

    server.answer = answer
    found = model_of(server).complete(["p0", "p1", "p2"])
    assert [one.text for one in found] == ["p0", "", "p2"]
    assert found[1].extra["finish_reason"] == "context_length_exceeded"


OPENAI = {
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
    "instead.",
    "temperature": "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is "
    "supported.",
    "seed": "Unknown parameter: 'seed'.",
}


def choosy(*unknown: str) -> Any:
    """A server that knows not all settings and says so, one at a time."""

    def answer(body: dict[str, Any]) -> Answer:
        for name in unknown:
            if name in body:
                reported = refusal(OPENAI[name], "unsupported_parameter")
                reported["error"]["param"] = name
                return 400, reported
        return last_message_text(body)

    return answer


def test_a_server_that_knows_other_settings_is_met_once_for_all(server: ChatServer) -> None:
    server.answer = choosy("max_tokens", "temperature", "seed")
    model = model_of(server, concurrency=1)
    found = model.complete(["a", "b", "c"], max_tokens=9)
    assert [one.text for one in found] == ["a", "b", "c"]
    assert len(server.requests) == 3 + 3  # three things to learn, then three answers
    assert set(server.requests[-1].body) == {"model", "messages", "max_completion_tokens"}
    assert server.requests[-1].body["max_completion_tokens"] == 9
    assert found[0].extra["unused_settings"] == ["temperature", "seed"]  # nobody promises the same answer again


def test_a_validator_that_forbids_a_setting_is_met_too(server: ChatServer) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        wrong = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}
        return (422, {"detail": [wrong]}) if "seed" in body else last_message_text(body)

    server.answer = answer
    assert model_of(server).complete(["a"])[0].extra["unused_settings"] == ["seed"]
    assert server.requests[-1].body["temperature"] == 0


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: 9000. This model supports at most 4096 tokens.",
        "seed must be at least 0",
        "unsupported",
    ],
)
def test_an_objection_to_a_value_is_not_taken_for_an_unknown_setting(server: ChatServer, message: str) -> None:
    server.answer = lambda body: (400, refusal(message, "invalid_value"))
    with pytest.raises(EndpointError, match="answered 400"):
        model_of(server).complete(["a"])
    assert len(server.requests) == 1


def test_a_server_that_never_has_enough_is_asked_a_bounded_number_of_times(server: ChatServer) -> None:
    server.answer = lambda body: (400, refusal("unknown: temperature, seed, max_tokens, max_completion_tokens", "x"))
    with pytest.raises(EndpointError):
        model_of(server).complete(["a"])
    assert len(server.requests) == 4  # as it is, and after each of three changes


def test_half_a_character_in_a_prompt_stops_nothing(server: ChatServer) -> None:
    assert model_of(server).complete(["half \ud83d"])[0].text == "half ?"
