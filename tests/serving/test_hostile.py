"""Whoever sends nonsense, bombs or traps gets one sentence; the server, its memory and its log stay as they were."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from hostile_images import IMAGE, PLANTED, odd_images
from hostile_requests import KEY_HERE, MODEL, Hostile, hostile_requests, unusual_requests
from serve_process import Serving, serve
from serving_models import answer_text, chat_request, image_of, url_of
from tables import every_row

from cxrlab.core.image_codec import decode
from cxrlab.data.images import as_uint8
from cxrlab.serving.accounts import add_account
from cxrlab.serving.config import Limits
from cxrlab.serving.images import check_picture, decode_picture

pytestmark = pytest.mark.slow

CASES, ODD, ODD_PICTURES = hostile_requests(), unusual_requests(), odd_images()
LEAST = 200
# Enough for allocators that keep what was freed: it ends 3 to 6 MB higher, and stays there for as long as one sends.
# One image of the largest size would be 25 MB, one body of the largest size 32 MB.
MOST_GROWTH_MB = 12.0
SECONDS = 1.5  # for a head or a body to come
ROUNDS = 3
MOST_ECHO = 22  # letters: a number of 64 bits is said again, so that its sender finds it
# What the server says by itself, though it may stand in a request as well.
OWN_WORDS = ("data:image/png;base64,", "application/json", MODEL, "Content-Length", "Transfer-Encoding")


class Answer(NamedTuple):
    """What came back: a status, None where the server has left without a word, and the body."""

    status: int | None
    text: str


class Target(NamedTuple):
    """A server as a process, a key that it knows, its log file, and a client."""

    serving: Serving
    key: str
    log_file: Path
    client: httpx.Client

    @property
    def headers(self) -> dict[str, str]:
        """For who may ask."""
        return {"Authorization": f"Bearer {self.key}"}

    def report(self) -> str:
        """The report for a good image."""
        request = chat_request(IMAGE, f"{PLANTED} and cough", model=MODEL)
        return answer_text(self.client.post("/v1/chat/completions", json=request, headers=self.headers))

    def send(self, case: Hostile) -> Answer:
        """Send a hostile request and hear the answer."""
        if case.raw is not None:
            raw = case.raw.replace(KEY_HERE.encode(), self.key.encode())
            return exchange(self.serving.port, raw, closes=case.closes)
        url, headers = self.serving.address + case.path, case.headers_with(self.key)
        answer = self.client.request(case.method, url, content=case.body, headers=headers)
        return Answer(answer.status_code, answer.text)

    def send_all(self) -> dict[str, Answer]:
        """Send every hostile request once, a few at a time, since some wait for a time-out."""
        slow_first = sorted(CASES, key=lambda case: case.status != 408)
        with ThreadPoolExecutor(6) as pool:
            answers = pool.map(self.send, slow_first)
        return {case.name: answer for case, answer in zip(slow_first, answers, strict=True)}

    def size_mb(self) -> float:
        """Memory that the process holds."""
        pages = int(Path(f"/proc/{self.serving.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def count(self, what: str) -> int:
        """Files (`fd`) or threads (`task`) of the process."""
        return len(os.listdir(f"/proc/{self.serving.pid}/{what}"))


def exchange(port: int, raw: bytes, *, closes: bool = False) -> Answer:
    """Send bytes as they are and read one answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as wire:
        with contextlib.suppress(ConnectionError):  # the server may have refused before everything was sent
            wire.sendall(raw)
        if closes:
            wire.shutdown(socket.SHUT_WR)
        answer = HTTPResponse(wire)
        try:
            answer.begin()
            return Answer(answer.status, answer.read().decode())
        except (HTTPException, ConnectionError):
            return Answer(None, "")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("hostile")
    key = add_account(folder / "keys.yaml", "clinic")
    log_file = folder / "log.jsonl"
    words = ("--keys", str(folder / "keys.yaml"), "--log-file", str(log_file))
    limits = ("--limits.headers_s", f"{SECONDS}", "--limits.body_s", f"{SECONDS}")
    with (
        serve(folder / "out", *words, *limits) as serving,
        httpx.Client(base_url=serving.address, timeout=30) as client,
    ):
        yield Target(serving, key, log_file, client)


@pytest.fixture(scope="module")
def answers(target: Target) -> dict[str, Answer]:
    """What each hostile request was answered with."""
    return target.send_all()


def test_there_are_enough_of_them_and_each_has_its_name() -> None:
    assert len(CASES) >= LEAST
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(400 <= case.status < 500 for case in CASES)
    assert sum(case.closes for case in CASES) == 2, "all others must be answered"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_is_refused_in_one_sentence(target: Target, answers: dict[str, Answer], case: Hostile) -> None:
    answer = answers[case.name]
    if case.closes and answer.status is None:
        return
    assert answer.status == case.status, answer
    error = json.loads(answer.text)["error"]
    message = error["message"]
    assert message.endswith(".") and ". " not in message and "\n" not in message and 10 < len(message) < 250, message
    assert error["code"] and set(error) == {"message", "type", "code", "param"}
    assert PLANTED not in answer.text.lower() and target.key not in answer.text
    assert len(error["param"] or "") < 60
    assert longest_echo(message.replace(f"'{error['param']}'", "|"), case) <= MOST_ECHO, message
    for trace in ("Traceback", "File ", ".py", "site-packages", "0x", "/home/", "/tmp/", "cxrlab/", "Error:"):
        assert trace not in answer.text, trace


def longest_echo(message: str, case: Hostile) -> int:
    """How many letters of a message stand in the request in a row, as far as it is not the server's own words."""
    for own in OWN_WORDS:
        message = message.replace(own, "|")
    sent = (case.body or case.raw or b"")[:100_000].decode("latin-1") + case.path
    most = 0
    for start in range(len(message)):
        while start + most < len(message) and message[start : start + most + 1] in sent:
            most += 1
    return most


@pytest.mark.parametrize("name", ODD)
def test_what_only_looks_like_an_attack_is_answered(target: Target, name: str) -> None:
    """Else a test above might pass for another reason than the one in its name."""
    answer = target.client.post("/v1/chat/completions", json=ODD[name], headers=target.headers)
    assert answer_text(answer) == target.report() and PLANTED not in answer.text


@every_row("name", ODD_PICTURES)
def test_what_a_picture_carries_beside_the_image_changes_no_pixel(name: str) -> None:
    data = ODD_PICTURES[name]
    shown = decode_picture(check_picture(data, Limits()))
    if not name.startswith("dicom"):
        assert (shown == as_uint8(decode(data, name))).all()
    assert shown.shape in ((24, 24), (64, 64))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc to read the memory from")
def test_memory_files_and_threads_are_flat_and_the_server_is_well(target: Target, answers: dict[str, Answer]) -> None:
    """They were sent once already, to warm up: what is imported and kept for ever is there by now."""
    report = target.report()
    statuses = {name: answer.status for name, answer in answers.items()}
    before = target.size_mb(), target.count("task")
    for _ in range(ROUNDS):
        assert {name: answer.status for name, answer in target.send_all().items()} == statuses
    settled(lambda: target.count("fd") <= 20 and gauges(target)["connections"] <= 8)
    after = target.size_mb(), target.count("task")
    assert after[0] - before[0] < MOST_GROWTH_MB, (before, after)
    assert after[1] <= before[1]
    values = gauges(target)
    assert values["in_flight"] == values["queue_length"] == values["held_pixels"] == values["failures_total"] == 0
    assert target.client.get("/healthz").json() == {"status": "ok"} and target.report() == report


def test_the_log_holds_nothing_of_what_was_sent_or_answered(target: Target, answers: dict[str, Answer]) -> None:
    report = target.report()
    image = url_of(IMAGE).partition(",")[2]
    for text in (target.serving.log, target.log_file.read_text("utf-8")):
        lines = [json.loads(line) for line in text.splitlines()]
        assert len(lines) > len(CASES) // 2
        assert all("time" in line and "event" in line for line in lines)
        assert not [line for line in lines if line["event"] == "failure" or line.get("status", 0) >= 500]
        for secret in (target.key, PLANTED, "passwd", "169.254", "example.org", "Ignore all", "base64", "cough"):
            assert secret not in text.replace(PLANTED.upper(), PLANTED), secret
        pieces = [image[start : start + 24] for start in range(0, len(image) - 24, 24)]
        assert not [piece for piece in pieces if piece in text]
        assert not [words for words in report.split(". ") if words.strip(".") in text]


def settled(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def gauges(target: Target) -> dict[str, float]:
    """What the server counts, without its labels."""
    lines = target.client.get("/metrics", headers=target.headers).text.splitlines()
    pairs = [line.removeprefix("cxrlab_").split(" ") for line in lines if line[0] != "#" and "{" not in line]
    return {name: float(value) for name, value in pairs}


def test_clients_that_read_nothing_make_way_and_are_dropped(tmp_path: Path) -> None:
    """Each asks for very many pages and takes none; there is room for eight connections, and there are twelve."""
    limits = ("--limits.connections", "8", "--limits.sent_s", "0.5")
    with serve(tmp_path / "out", *limits) as serving, contextlib.ExitStack() as wires:
        asked = b"GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 3000
        deaf = [wires.enter_context(socket.socket()) for _ in range(12)]
        for wire in deaf:
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.connect(("127.0.0.1", serving.port))
            wire.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                wire.send(asked)

        def answers() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{serving.address}/healthz").status_code == 200
            return False

        settled(answers)
        assert answer_text(serving.post(chat_request(image_of(1), model=MODEL)))
        settled(lambda: connections(serving) <= 2)


def connections(serving: Serving) -> float:
    """Open connections; the one that asks is one of them."""
    text = httpx.get(f"{serving.address}/metrics").text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("cxrlab_connections "))


def test_requests_in_one_packet_are_answered_in_their_order(target: Target) -> None:
    """Good, bad, good: the bad one is refused, and no answer goes to another's question."""

    def posted(request: Any, last: bool = False) -> bytes:
        body = json.dumps(request).encode()
        close = "Connection: close\r\n" if last else ""
        head = (
            f"Authorization: Bearer {target.key}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        )
        return f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}{close}\r\n".encode() + body

    broken = "data:;base64," + base64.b64encode(b"no image").decode()
    requests = [
        chat_request(IMAGE, model=MODEL),
        chat_request(url=broken, model=MODEL),
        chat_request(IMAGE, model=MODEL, n=2),
    ]
    with socket.create_connection(("127.0.0.1", target.serving.port), timeout=20) as wire:
        wire.sendall(b"".join(posted(one, one is requests[-1]) for one in requests))
        got = b""
        while piece := wire.recv(65536):
            got += piece
    answers = got.decode().split("HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == ["200", "400", "200"]
    assert [answer.count('"finish_reason"') for answer in answers] == [1, 0, 2]
