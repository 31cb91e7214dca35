from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import Answer, ChatServer, completion, last_message_text, refusal

from cxrlab.cli.main import main
from cxrlab.core.egress import Connection
from cxrlab.core.errors import DataError, RunError
from cxrlab.core.image_codec import decode
from cxrlab.core.model_interfaces import REFUSED, ImageToText
from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.evaluation.load_model import load_model
from cxrlab.extraction.victim_client import SupportsAccounts, query_function
from cxrlab.models.decoding import Decoding, SupportsDecoding, decodes_here
from cxrlab.models.http_client import ChatClient, EndpointError
from cxrlab.models.http_models import HttpReportModel
from cxrlab.models.load_settings import LoadSettings


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.delenv("CXRLAB_API_KEY", raising=False)
    with ChatServer(lambda body: f"Report {image_of(body)[0, 0]}.") as running:
        yield running


def reporter(server: ChatServer, **settings: Any) -> HttpReportModel:
    return HttpReportModel(ChatClient(server.address(), Connection(**settings), sleep=lambda _: None))


def image(value: int, shape: tuple[int, ...] = (6, 5)) -> Any:
    return np.full(shape, value / 255, np.float32)


def image_of(body: dict[str, Any]) -> Any:
    """The picture in a request."""
    (part,) = [part for part in body["messages"][-1]["content"] if part["type"] == "image_url"]
    head, _, data = part["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    return decode(base64.b64decode(data, validate=True), "image")


def test_it_is_a_report_model_by_its_name(server: ChatServer) -> None:
    loading = LoadSettings(prompts="plain/1", connection=Connection(tries=1))
    model = load_model(server.address("chest"), loading)
    assert isinstance(model, ImageToText) and isinstance(model, SupportsAccounts)
    assert isinstance(model, SupportsDecoding) and not decodes_here(model), "an audit leaves decoding to the server"
    assert model.name == server.address("chest")
    assert model.capabilities.black_box and model.capabilities.batch and not model.capabilities.gradients
    assert model.generate([image(7)], ["cough"])[0].text == "Report 7."
    assert last_message_text(server.requests[0].body) == "Indication: cough Findings:"


def test_a_image_is_sent_as_grey_bytes_at_its_own_size(server: ChatServer) -> None:
    """Each pixel is rounded to the nearest of 256 steps; an image of bytes arrives as it was."""
    pixels = np.arange(256, dtype=np.uint8).reshape(8, 32)
    reporter(server).generate([(pixels / np.float32(255)).astype(np.float32)])
    body = server.requests[0].body
    sent = image_of(body)
    assert sent.dtype == np.uint8 and np.array_equal(sent, pixels)
    assert last_message_text(body) == "Provide a description of the findings in the radiology image."
    settings = {name: value for name, value in body.items() if name not in ("messages", "model")}
    assert settings == {"temperature": 0, "seed": Decoding().seed, "max_tokens": Decoding().max_new_tokens}


def test_a_picture_in_colour_keeps_its_colours_and_a_row_without_words_sends_the_image_alone(
    server: ChatServer,
) -> None:
    server.answer = lambda body: "x"
    loading = LoadSettings(prompts="image-alone/1")
    HttpReportModel.load(server.address(), None, loading).generate([image(9, (4, 3, 3))])
    assert image_of(server.requests[0].body).shape == (4, 3, 3)
    assert [part["type"] for part in server.requests[0].body["messages"][0]["content"]] == ["image_url"]


def test_images_of_one_call_are_under_way_together_and_answers_are_in_order(server: ChatServer) -> None:
    five = threading.Barrier(5)
    server.answer = lambda body: (five.wait(10), f"Report {image_of(body)[0, 0]}.")[1]
    found = reporter(server, concurrency=5).generate([image(value) for value in range(40, 60)])
    assert [one.text for one in found] == [f"Report {value}." for value in range(40, 60)]
    assert server.most_in_flight == 5
    assert found[0].tokens == 3 and found[0].extra["prompt_tokens"] == 5
    assert reporter(server).generate([]) == []


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "refused_by_guard"),
        (403, "account_blocked"),
        (429, "quota_exhausted"),
        (429, "insufficient_quota"),
        (400, "content_filter"),
        (400, "invalid_prompt"),
    ],
)
def test_a_refusal_is_an_answer_and_is_not_asked_again(server: ChatServer, status: int, code: str) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        return (status, refusal("Not this image.", code)) if image_of(body)[0, 0] == 1 else "A report."

    server.answer = answer
    found = reporter(server).generate([image(0), image(1), image(2)])
    assert [one.text for one in found] == ["A report.", "Not this image.", "A report."]
    assert [one.extra.get(REFUSED) for one in found] == [None, True, None]
    assert len(server.requests) == 3
    # And so the client of an audit sees it.
    assert [one.refused for one in query_function(reporter(server))([image(0), image(1)], ["a", "a"])] == [False, True]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (completion(None, refusal="I read no images."), "I read no images."),
        (completion(None, "content_filter"), ""),
    ],
)
def test_a_refusal_in_place_of_words_is_marked(server: ChatServer, reply: dict[str, Any], text: str) -> None:
    server.answer = lambda body: reply
    (answer,) = reporter(server).generate([image(3)])
    assert answer.text == text and answer.extra[REFUSED] is True


@pytest.mark.parametrize(("status", "code"), [(403, "forbidden"), (401, "invalid_api_key"), (400, "invalid_request")])
def test_what_is_no_refusal_of_a_image_stops_the_run(server: ChatServer, status: int, code: str) -> None:
    server.answer = lambda body: (status, refusal("no", code))
    with pytest.raises(EndpointError, match=f"it answered {status}"):
        reporter(server).generate([image(3)])


def test_each_account_asks_by_its_own_key(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which accounts appear; the third of three has the first of two keys again."""
    monkeypatch.setenv("CXRLAB_API_KEY", "first,second")
    model = reporter(server)
    model.for_accounts(["x", "y", "x"]).generate([image(1), image(2), image(3)])
    model.for_accounts(["z", "y"]).generate([image(4), image(5)])
    model.generate([image(6)])
    keys = {int(image_of(asked.body)[0, 0]): asked.headers["authorization"][7:] for asked in server.requests}
    assert keys == {1: "first", 2: "second", 3: "first", 4: "first", 5: "second", 6: "first"}
    with pytest.raises(DataError, match="2 images, 2 indications and 1 accounts do not match"):
        model.for_accounts(["x"]).generate([image(1), image(2)])


def test_one_key_serves_every_account(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRLAB_API_KEY", "only")
    reporter(server).for_accounts(["x", "y"]).generate([image(1), image(2)])
    assert {asked.headers["authorization"] for asked in server.requests} == {"Bearer only"}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (np.zeros((4, 4), np.uint8), "holds uint8"),
        (np.zeros((0, 4), np.float32), "has the shape"),
        (np.zeros((1, 3, 4, 4), np.float32), "has the shape"),
        (np.full((4, 4), 255.0, np.float32), "values from 255 to 255"),
        (np.full((4, 4), np.nan, np.float32), "values from nan"),
    ],
)
def test_a_image_that_is_none_is_told_before_any_is_sent(server: ChatServer, bad: Any, says: str) -> None:
    with pytest.raises(DataError, match=f"image 1 .*{says}"):
        reporter(server).generate([image(1), bad])
    assert not server.requests


def test_nobody_there_says_that_nothing_was_asked(server: ChatServer) -> None:
    server.stop()
    with pytest.raises(ConnectionRefusedError, match="gave no answer in 2 tries"):
        reporter(server, tries=2).generate([image(1), image(2)])


def test_a_batch_of_which_some_got_through_does_not_say_that_nothing_was_asked(server: ChatServer) -> None:
    """The first image is answered, then the server is gone: the second cannot be released as if it had cost nothing."""

    def once(body: dict[str, Any]) -> Answer:
        threading.Thread(target=server.stop).start()
        return "A report."

    server.answer = once
    with pytest.raises(RunError) as error:
        reporter(server, tries=3, concurrency=1).generate([image(value) for value in range(30)])
    assert not isinstance(error.value, ConnectionRefusedError)


def test_generate_writes_the_predictions_of_a_model_behind_an_address(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the command; a second run with the same settings asks nothing."""
    corpus = make_phantom(PhantomConfig(n=20, size=32, masks=False, workers=1), tmp_path / "corpus").path
    words = ["generate", "--model", server.address(), "--data", str(corpus), "--split", "train", "--n", "5"]
    words += ["--control-studies", "0", "--quiet", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert len(lines) == len(server.requests) == 5
    by_image = {int(image_of(asked.body)[0, 0]) for asked in server.requests}
    assert {line["report"] for line in lines} == {f"Report {value}." for value in by_image}
    assert lines[0]["confidence"] == {"tokens": 3} and lines[0]["prompt_tokens"] == 5
    assert main(words) == 0 and len(server.requests) == 5
    beams = ["--decoding.strategy", "beam"]
    assert main([*words[:-1], str(tmp_path / "b"), *beams]) == 1  # not part of the protocol
    assert "--decoding.strategy greedy or sample" in capsys.readouterr().err and len(server.requests) == 5


def test_general_models_are_asked_for_the_findings_alone(server: ChatServer) -> None:
    load_model(server.address("gpt"), LoadSettings(prompts="endpoint/1")).generate([image(7)], ["cough"])
    prompt = last_message_text(server.requests[0].body)
    assert "Indication: cough Answer with the text of the findings alone" in prompt
    content = server.requests[0].body["messages"][-1]["content"]
    assert [part["type"] for part in content] == ["text", "image_url"]
