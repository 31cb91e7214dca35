"""One client never makes another wait for more than what the model is writing: counted in answers, not in seconds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving_models import NAME, Echo, answer_text, chat_request, code_of, image_of, post, served

from cxrlab.core.image_codec import to_uint8
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.models.decoding import Decoding
from cxrlab.serving.accounts import add_account, read_accounts
from cxrlab.serving.batching import Batcher, Outcome
from cxrlab.serving.config import Allowance, Limits, ServeConfig
from cxrlab.serving.http_server import Server
from cxrlab.serving.resource_limits import FairSemaphore, Tally

pytestmark = pytest.mark.slow


class ReportGenerator:
    """A slow model that is asked letters: it notes each batch, and writes the next one when it is let."""

    def __init__(self) -> None:
        self.batches: list[str] = []
        self.next = threading.Semaphore(0)

    def ask(self, questions: Sequence[str]) -> Sequence[Outcome]:
        self.batches.append("".join(questions))
        assert self.next.acquire(timeout=10)
        return [[Generated(question)] for question in questions]


@contextlib.contextmanager
def busy(max_batch: int = 64) -> Iterator[tuple[ReportGenerator, Batcher[str]]]:
    """A batcher whose model is at work, so that what is submitted in the block gathers."""
    model = ReportGenerator()
    batcher: Batcher[str] = Batcher(model.ask, max_batch=max_batch, max_wait_s=0.0)
    batcher.start()
    batcher.submit("busy", ".", client="nobody")
    wait_for(lambda: model.batches)
    try:
        yield model, batcher
    finally:
        model.next.release(1000)
        batcher.stop()


def wait_for(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


def test_a_single_question_waits_for_no_more_than_one_request_of_another_client() -> None:
    """Twelve requests of eight drawn answers each, and then one of another client."""
    with busy() as (model, batcher):
        many = [batcher.submit(f"draw {request}", "a", client="A") for request in range(12) for _ in range(8)]
        model.next.release()
        wait_for(lambda: len(model.batches) == 2)
        alone = batcher.submit("likeliest", "b", client="B")
        assert batcher.waiting_by_client() == {"A": 11 * 8, "B": 1}
        model.next.release(100)
        alone.result(10)
        before = "".join(model.batches).partition("b")[0]
        assert before.count("a") == 8
        assert [future.result(10).answers[0].text for future in many] == ["a"] * 96
        assert model.batches == [".", "a" * 8, "b", *["a" * 8] * 11]


def test_drawn_answers_are_parted_where_another_client_asks_in_another_way() -> None:
    with busy(max_batch=8) as (model, batcher):
        for _ in range(8):
            batcher.submit("draw", "a", client="A")
        for number in range(3):
            batcher.submit(f"draw {number}", "b", client="B")
        model.next.release(100)
        wait_for(lambda: batcher.waiting == 0)
        assert model.batches[1:] == ["aaaa", "b", "b", "b", "aaaa"], "B had fewer answers until then"


def test_nobody_is_held_up_by_clients_that_ask_for_little() -> None:
    """Answers are what is counted: A has had four when B had four."""
    with busy(max_batch=2) as (model, batcher):
        for number in range(6):
            batcher.submit(f"a {number}", "a", client="A")
            batcher.submit(f"b {number}", "b", client="B")
        model.next.release(100)
        wait_for(lambda: batcher.waiting == 0)
        order = "".join(model.batches[1:])
        assert max(abs(order[:end].count("a") - order[:end].count("b")) for end in range(len(order))) == 1


def test_who_was_idle_saves_up_no_turns() -> None:
    with busy(max_batch=1) as (model, batcher):
        for _ in range(20):
            batcher.submit("x", "a", client="A")
        model.next.release(11)
        wait_for(lambda: len(model.batches) == 12)
        for _ in range(5):
            batcher.submit("x", "b", client="B")
        model.next.release(100)
        wait_for(lambda: batcher.waiting == 0)
        assert "".join(model.batches[12:])[:10].count("a") >= 4


def test_a_batch_is_as_large_as_before_and_has_all_who_ask_alike() -> None:
    with busy() as (model, batcher):
        for letter, count in (("a", 100), ("b", 3), ("c", 1)):
            for _ in range(count):
                batcher.submit("likeliest", letter, client=letter)
        model.next.release(100)
        wait_for(lambda: batcher.waiting == 0)
        assert Counter(model.batches[1]) == {"a": 60, "b": 3, "c": 1} and model.batches[2] == "a" * 40


def test_room_is_given_to_clients_in_turns() -> None:
    async def run() -> str:
        room, order = FairSemaphore(1), list[str]()

        async def hold(client: str) -> None:
            async with room.held(1, client):
                order.append(client)
                await asyncio.sleep(0)

        async with room.held(1, "a"):
            tasks = [asyncio.ensure_future(hold(client)) for client in "aaaabbc"]
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        assert room.taken == 0 and not room._waiting
        return "".join(order)

    assert asyncio.run(run()) == "abcabaa"


def test_one_client_leaves_half_of_the_bytes_to_others() -> None:
    held = Tally(100, 50)
    assert held.take(40, "a") and not held.is_beyond_share(10, "a") and held.is_beyond_share(11, "a")
    assert not held.is_beyond_share(50, "b") and held.take(50, "b")
    held.give_back(40, "a")
    assert not held.is_beyond_share(50, "a") and held.taken == 50


class Drawing(Echo):
    """Draws: each answer names its image, its seed and its number. It notes how many answers each call wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = Capabilities(batch=True)
        self.calls: list[tuple[int, ...]] = []  # the image of each answer

    def answers(self, images: Any, indications: Any = None, decoding: Decoding | None = None) -> list[list[Generated]]:
        """All answers at once."""
        return self.answers_from(images, indications, decoding or Decoding(), 0)

    def answers_from(self, images: Any, indications: Any, decoding: Decoding, first: int) -> list[list[Generated]]:
        """Some of them."""
        radiographs = [code_of(to_uint8(image)) for image in images]
        self.calls.append(tuple(radiograph for radiograph in radiographs for _ in range(decoding.answers)))
        assert self.held.wait(20)
        numbers = range(first, first + decoding.answers)
        return [
            [Generated(f"{radiograph} {decoding.seed} {number}") for number in numbers] for radiograph in radiographs
        ]


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, dict[str, str]]:
    made = {name: add_account(tmp_path / "keys.yaml", name) for name in ("greedy", "modest")}
    return {name: {"Authorization": f"Bearer {key}"} for name, key in made.items()}


def keyed(tmp_path: Path, **settings: Any) -> ServeConfig:
    return ServeConfig(NAME, port=0, keys=tmp_path / "keys.yaml", max_wait_ms=0, **settings)


def texts(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [choice["message"]["content"] for choice in answer.json()["choices"]]


def test_one_account_does_not_starve_another(tmp_path: Path, keys: dict[str, dict[str, str]]) -> None:
    """Twelve requests of eight answers are under way; the other account's one answer comes after eight of them."""
    model = Drawing()
    with served(tmp_path / "out", keyed(tmp_path), model=model) as server, ThreadPoolExecutor(13) as pool:
        model.held.clear()
        drawn = {"n": 8, "temperature": 1.0}
        many = [
            pool.submit(post, server, chat_request(image_of(number), seed=number, **drawn), headers=keys["greedy"])
            for number in range(12)
        ]
        wait_for(lambda: server.service.batcher.waiting == 11 * 8)
        alone = pool.submit(post, server, chat_request(image_of(99)), headers=keys["modest"])
        wait_for(lambda: server.service.batcher.waiting == 11 * 8 + 1)
        lines = httpx.get(f"{server.address}/metrics", headers=keys["modest"]).text.splitlines()
        assert 'cxrlab_account_queue_length{account="greedy"} 88.0' in lines
        assert 'cxrlab_account_queue_length{account="modest"} 1.0' in lines
        assert 'cxrlab_account_in_flight{account="greedy"} 12.0' in lines
        for header in keys.values():
            assert not [line for line in lines if header["Authorization"].removeprefix("Bearer ") in line]
        model.held.set()
        answer_text(alone.result())
        order = [image for call in model.calls for image in call]
        assert order.index(code_of(image_of(99))) == 8
        for number, future in enumerate(many):
            image = code_of(image_of(number))
            assert texts(future.result()) == [f"{image} {number} {answer}" for answer in range(8)]


def test_answers_drawn_in_parts_are_those_drawn_at_once(tmp_path: Path, keys: dict[str, dict[str, str]]) -> None:
    model = Drawing()
    config = keyed(tmp_path, max_batch=4)
    with served(tmp_path / "out", config, model=model) as server, ThreadPoolExecutor(3) as pool:
        model.held.clear()
        first = pool.submit(post, server, chat_request(image_of(0)), headers=keys["modest"])
        wait_for(lambda: model.calls)
        request = chat_request(image_of(1), n=6, temperature=1.0, seed=3)
        many = pool.submit(post, server, request, headers=keys["greedy"])
        wait_for(lambda: server.service.batcher.waiting == 6)
        other = pool.submit(
            post, server, chat_request(image_of(2), n=2, temperature=1.0, seed=4), headers=keys["modest"]
        )
        wait_for(lambda: server.service.batcher.waiting == 8)
        model.held.set()
        assert answer_text(first.result()) and len(texts(other.result())) == 2
        image, between = code_of(image_of(1)), code_of(image_of(2))
        assert texts(many.result()) == [f"{image} 3 {number}" for number in range(6)]
        assert model.calls[1:] == [(image,) * 2, (between,) * 2, (image,) * 4]


def test_an_account_has_so_many_requests_under_way(tmp_path: Path, keys: dict[str, dict[str, str]]) -> None:
    model = Echo()
    config = keyed(tmp_path, allowance=Allowance(requests_in_flight=2))
    with served(tmp_path / "out", config, model=model) as server, ThreadPoolExecutor(4) as pool:
        model.held.clear()
        many = [pool.submit(post, server, chat_request(image_of(k)), headers=keys["greedy"]) for k in range(2)]
        wait_for(lambda: server.service.under_way == 2)
        third = post(server, chat_request(image_of(3)), headers=keys["greedy"])
        assert third.status_code == 429 and third.json()["error"]["code"] == "too_many_in_flight"
        assert int(third.headers["retry-after"]) >= 1
        other = pool.submit(post, server, chat_request(image_of(4)), headers=keys["modest"])
        wait_for(lambda: server.service.under_way == 3)
        model.held.set()
        assert [future.result().status_code for future in (*many, other)] == [200] * 3
        assert post(server, chat_request(image_of(3)), headers=keys["greedy"]).status_code == 200
        assert not server.service.in_flight


def test_an_entry_of_the_key_file_has_its_own_cap(tmp_path: Path, keys: dict[str, dict[str, str]]) -> None:
    file = tmp_path / "keys.yaml"
    file.write_text(file.read_text() + "    requests_in_flight: 5\n")  # of the last entry
    assert {account.name: account.requests_in_flight for account in read_accounts(file, Allowance())} == {
        "greedy": Allowance().requests_in_flight,
        "modest": 5,
    }


def test_without_keys_addresses_are_the_clients(tmp_path: Path) -> None:
    model = Echo()
    config = ServeConfig(NAME, port=0, max_wait_ms=0, allowance=Allowance(requests_in_flight=1))
    with (
        served(tmp_path / "out", config, model=model) as server,
        ThreadPoolExecutor(2) as pool,
        httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2"), timeout=30) as elsewhere,
    ):
        model.held.clear()
        first = pool.submit(post, server, chat_request(image_of(1)))
        wait_for(lambda: server.service.under_way == 1)
        assert post(server, chat_request(image_of(2))).status_code == 429
        other = pool.submit(elsewhere.post, f"{server.url}/chat/completions", json=chat_request(image_of(2)))
        wait_for(lambda: server.service.under_way == 2)
        text = httpx.get(f"{server.address}/metrics").text
        assert 'cxrlab_account_in_flight{account="anonymous"} 2.0' in text and "127.0.0" not in text
        model.held.set()
        assert [future.result().status_code for future in (first, other)] == [200, 200]


def slow_body(server: Server, headers: dict[str, str]) -> socket.socket:
    """A connection that has sent a head and the first byte of a body."""
    wire = socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2])), timeout=10)
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    wire.sendall(f"{head}Content-Length: 100000\r\n{''.join(lines)}\r\n{{".encode())
    return wire


def status(wire: socket.socket) -> int:
    return int(wire.recv(4096).split(b" ")[1])


def test_slow_bodies_take_no_place_of_other_accounts(tmp_path: Path, keys: dict[str, dict[str, str]]) -> None:
    """As many as there are places for requests, and more than there are for connections with those of strangers."""
    limits = Limits(queue=3, connections=8)
    config = keyed(tmp_path, allowance=Allowance(requests_in_flight=3), limits=limits)
    with served(tmp_path / "out", config) as server, contextlib.ExitStack() as wires:
        slow = [wires.enter_context(slow_body(server, keys["greedy"])) for _ in range(3)]
        wait_for(lambda: server.service.receiving == 3)
        assert status(wires.enter_context(slow_body(server, keys["greedy"]))) == 429
        for _ in range(12):
            assert status(wires.enter_context(slow_body(server, {"Authorization": "Bearer no"}))) == 401
        assert server.service.receiving == 3, "no byte of a stranger's body is read"
        for number in range(3):
            assert answer_text(post(server, chat_request(image_of(number)), headers=keys["modest"]))
        assert server.service.receiving == 3 and all(wire.fileno() >= 0 for wire in slow)


def test_a_body_has_its_time(tmp_path: Path, keys: dict[str, dict[str, str]]) -> None:
    assert Limits().body_s <= 20
    config = keyed(tmp_path, limits=Limits(body_s=0.1))
    with served(tmp_path / "out", config) as server, slow_body(server, keys["greedy"]) as wire:
        assert status(wire) == 408
        wait_for(lambda: server.service.receiving == server.service.under_way == server.service.bodies.taken == 0)
