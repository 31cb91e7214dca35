"""Several answers per request, log-probabilities and many requests at a time, as vLLM, SGLang and others serve them.

The servers are small ones that follow the protocol; no vLLM or SGLang runs here.
"""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_server import Answer, ChatServer, completion, refusal

from cxrlab.cli.main import main
from cxrlab.core.egress import Connection
from cxrlab.core.errors import ConfigError
from cxrlab.core.model_interfaces import REFUSED
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.models.decoding import TRUNCATED, Decoding
from cxrlab.models.http_client import ChatClient
from cxrlab.models.http_models import HttpReportModel

IMAGES = [np.full((6, 5), value / 255, np.float32) for value in (7, 8)]
SAMPLED = Decoding(strategy="sample", answers=3, temperature=0.8, top_p=0.9, max_new_tokens=20, seed=5)


def choice(index: int, text: str, logs: list[Any] | None = None, reason: str = "stop") -> dict[str, Any]:
    """One of several answers, with the log-probability of each token."""
    found = completion(text, reason)["choices"][0] | {"index": index}
    return (
        found if logs is None else found | {"logprobs": {"content": [{"token": "x", "logprob": log} for log in logs]}}
    )


def like_vllm(body: dict[str, Any]) -> Answer:
    """All answers at once; the first is cut, the second has two tokens, the third a token without probability."""
    logs: list[list[Any]] = [[-1.0], [-0.5, -1.5], [-1.0, -9999.0]]
    choices = [
        choice(number, f"{body['seed']} {number}", logs[number] if body.get("logprobs") else None, reason)
        for number, reason in zip(range(body.get("n", 1)), ("length", "stop", "stop"), strict=False)
    ]
    return {"choices": choices, "usage": {"prompt_tokens": 50, "completion_tokens": 5}}


def ignores_n(body: dict[str, Any]) -> Answer:
    return completion(f"{body['seed']}")


def objects(*names: str) -> Callable[[dict[str, Any]], Answer]:
    """A server that objects to settings, one at a time."""

    def answer(body: dict[str, Any]) -> Answer:
        known = [name for name in names if name in body]
        return (400, refusal(f"Unsupported parameter: '{known[0]}'")) if known else completion(f"{body.get('seed')}")

    return answer


def model(server: ChatServer, **settings: Any) -> HttpReportModel:
    return HttpReportModel(ChatClient(server.address(), Connection(**settings), sleep=lambda _: None))


def test_samples_come_in_one_request_with_their_log_probabilities() -> None:
    with ChatServer(like_vllm) as server:
        found = model(server).answers(IMAGES, None, SAMPLED)
        again = model(server).answers(IMAGES[1:], None, SAMPLED)
        (other,) = model(server).answers(IMAGES[1:], None, replace(SAMPLED, seed=6))
    assert len(server.requests) == 4
    body = server.requests[-1].body
    settings = {name: value for name, value in body.items() if name not in ("messages", "model", "seed")}
    assert settings == {"temperature": 0.8, "top_p": 0.9, "max_tokens": 20, "n": 3, "logprobs": True}
    first, second, third = found[1]
    assert (first.mean_logprob, first.tokens, first.extra.get(TRUNCATED)) == (-1.0, 1, True)
    assert (second.mean_logprob, second.tokens, second.extra.get(TRUNCATED)) == (-1.0, 2, None)
    assert third.mean_logprob is None and third.tokens is None, "a token without probability is no number"
    assert again == found[1:], "an image gets the same seed in any company"
    assert len({row[0].text for row in (*found, other)}) == 3, "another for another image or seed"


@pytest.mark.parametrize(
    ("server", "requests", "unused"),
    [
        (ignores_n, 3, None),
        (objects("n"), 4, None),
        (objects("logprobs"), 4, None),
        (objects("n", "logprobs", "top_p"), 6, ["top_p"]),
    ],
    ids=["ignores n", "refuses n", "refuses logprobs", "knows little"],
)
def test_a_server_that_gives_less(server: Any, requests: int, unused: Any) -> None:
    """Missing answers are requested one by one with other seeds, and what it refuses is left out from then on."""
    with ChatServer(server) as running:
        reporter = model(running)
        (found,) = reporter.answers(IMAGES[:1], None, SAMPLED)
        assert len({one.text for one in found}) == 3 and len(running.requests) == requests
        assert [one.mean_logprob for one in found] == [None] * 3
        assert [one.extra.get("unused_settings") for one in found] == [unused] * 3
        reporter.answers(IMAGES[1:], None, SAMPLED)
        assert len(running.requests) == requests + 3


def test_greedy_answers_have_log_probabilities_and_refusals_are_single() -> None:
    def answer(body: dict[str, Any]) -> Answer:
        if len(server.requests) > 1:
            return (400, refusal("Not this image.", "content_filter"))
        return {"choices": [choice(0, "Clear.", [-0.25, -0.75])], "usage": {"completion_tokens": 2}}

    with ChatServer(answer) as server:
        ((greedy,),) = model(server).answers(IMAGES[:1], None, Decoding())
        ((refused,),) = model(server).answers(IMAGES[:1], None, SAMPLED)
        assert greedy.mean_logprob == -0.5 and greedy.tokens == 2
        assert server.requests[0].body["temperature"] == 0 and "n" not in server.requests[0].body
        assert refused.extra[REFUSED] is True and len(server.requests) == 2
        with pytest.raises(ConfigError, match="--decoding.strategy greedy or sample"):
            model(server).answers(IMAGES[:1], None, Decoding(strategy="beam"))


def test_candidates_are_requested_concurrently_and_written_in_order(tmp_path: Path) -> None:
    """Whatever the batch size, six requests are under way, one per study; a failed run requests the rest alone."""
    corpus = make_phantom(PhantomConfig(n=40, size=32, masks=False, workers=1), tmp_path / "corpus").path
    ids = list(load_corpus(corpus).ids("train"))
    six, asked, broken = threading.Barrier(6), Counter[str](), threading.Event()

    def answer(body: dict[str, Any]) -> Answer:
        place = len(server.requests)
        if place <= 6:
            six.wait(30)
        if place == 12:
            broken.set()
        if broken.is_set() and not healed.is_set():
            return (500, refusal("down"))
        asked[json.dumps(body["messages"])] += 1
        return {"choices": [choice(number, f"{body['seed']} {number}", [-1.0]) for number in range(body["n"])]}

    healed = threading.Event()
    words = ["prefer", "sample", "--data", str(corpus), "--split", "train", "--answers", "4", "--batch-size", "2"]
    words += ["--loading.connection.concurrency", "6", "--loading.connection.tries", "1", "--quiet"]
    with ChatServer(answer) as server:
        words += ["--model", server.address()]
        assert main([*words, "--out", str(tmp_path / "run")]) == 1
        healed.set()
        assert main([*words, "--out", str(tmp_path / "run")]) == 0
        assert server.most_in_flight == 6
        assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "candidates.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ids and all(len(row["answers"]) == 4 for row in rows)
    assert (tmp_path / "run" / "candidates.jsonl").read_bytes() == (tmp_path / "whole/candidates.jsonl").read_bytes()
    twice = sum(count > 2 for count in asked.values())  # once here, once for the whole run
    assert twice <= 2 * 6, "a failed run repeats no more than what it had under way"
    assert math.isclose(json.loads((tmp_path / "run/summary.json").read_text())["mean_logprob"], -1.0)
