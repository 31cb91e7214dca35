from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from chat_server import Answer, ChatServer, asked_text, completion, refusal

from cxrlab.core.connection import Connection
from cxrlab.core.protocols import TextModel
from cxrlab.models.asked_once import AnswersAsTheyCome, KnowsItsWeights
from cxrlab.models.http.client import ChatClient
from cxrlab.models.http.errors import EndpointError
from cxrlab.models.http.text import HttpText
from cxrlab.models.names import load_text_model


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.delenv("CXRLAB_API_KEY", raising=False)
    with ChatServer() as running:
        yield running


def model_of(server: ChatServer, **settings: Any) -> HttpText:
    return HttpText(ChatClient(server.address(), Connection(**settings), sleep=lambda _: None))


def test_it_is_a_text_model_by_its_name(server: ChatServer) -> None:
    model = load_text_model(server.address("a/b:c#d"), Connection(tries=2))
    assert isinstance(model, HttpText) and isinstance(model, TextModel) and isinstance(model, AnswersAsTheyCome)
    assert not isinstance(model, KnowsItsWeights)
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
        return asked_text(body).upper()

    server.answer = answer
    prompts = [f"prompt {number}" for number in range(24)]
    found = model_of(server, concurrency=4).complete(prompts)
    assert [one.text for one in found] == [prompt.upper() for prompt in prompts]
    assert server.most_in_flight == 4 and len(server.requests) == 24
    assert model_of(server).complete([]) == []


def test_after_a_failure_no_new_prompt_is_sent_and_what_came_is_handed_out(server: ChatServer) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        return (400, refusal("no")) if asked_text(body) == "p5" else asked_text(body)

    server.answer = answer
    came = []
    with pytest.raises(EndpointError, match="it answered 400"):
        for place, _ in model_of(server, concurrency=1).completions([f"p{number}" for number in range(50)]):
            came.append(place)
    assert came == [0, 1, 2, 3, 4] and len(server.requests) == 6


@pytest.mark.parametrize(
    ("reply", "text", "extra"),
    [
        (completion("cut", "length"), "cut", {"truncated": True}),
        (completion(None, "content_filter"), "", {"finish_reason": "content_filter"}),
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


def test_a_server_that_does_not_count_leaves_tokens_unknown(server: ChatServer) -> None:
    for usage in (None, {}, {"prompt_tokens": -1, "completion_tokens": True}, "much"):
        server.answer = lambda body, usage=usage: {**completion("x"), "usage": usage}  # type: ignore[misc]
        (answer,) = model_of(server).complete(["?"])
        assert answer.tokens is None and dict(answer.extra) == {}


def test_what_a_filter_refuses_does_not_stop_the_run(server: ChatServer) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        return (400, refusal("filtered", "content_filter")) if asked_text(body) == "p1" else asked_text(body)

    server.answer = answer
    found = model_of(server).complete(["p0", "p1", "p2"])
    assert [one.text for one in found] == ["p0", "", "p2"]
    assert found[1].extra["finish_reason"] == "content_filter"


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
                told = refusal(OPENAI[name], "unsupported_parameter")
                told["error"]["param"] = name
                return 400, told
        return asked_text(body)

    return answer


def test_a_server_that_knows_other_settings_is_met_once_for_all(server: ChatServer) -> None:
    server.answer = choosy("max_tokens", "temperature", "seed")
    model = model_of(server, concurrency=1)
    found = model.complete(["a", "b", "c"], max_tokens=9)
    assert [one.text for one in found] == ["a", "b", "c"]
    assert len(server.requests) == 3 + 3  # three things to learn, then three answers
    assert set(server.requests[-1].body) == {"model", "messages", "max_completion_tokens"}
    assert server.requests[-1].body["max_completion_tokens"] == 9
    assert found[0].extra["unheeded"] == ["temperature", "seed"]  # nobody promises the same answer again


def test_a_validator_that_forbids_a_setting_is_met_too(server: ChatServer) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        wrong = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}
        return (422, {"detail": [wrong]}) if "seed" in body else asked_text(body)

    server.answer = answer
    assert model_of(server).complete(["a"])[0].extra["unheeded"] == ["seed"]
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
    with pytest.raises(EndpointError, match="cannot be asked"):
        model_of(server).complete(["a"])
    assert len(server.requests) == 1


def test_a_server_that_never_has_enough_is_asked_a_bounded_number_of_times(server: ChatServer) -> None:
    server.answer = lambda body: (400, refusal("unknown: temperature, seed, max_tokens, max_completion_tokens", "x"))
    with pytest.raises(EndpointError):
        model_of(server).complete(["a"])
    assert len(server.requests) == 4  # as it is, and after each of three changes


def test_half_a_character_in_a_prompt_stops_nothing(server: ChatServer) -> None:
    assert model_of(server).complete(["half \ud83d"])[0].text == "half ?"
