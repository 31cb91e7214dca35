"""`cxrlab serve` as a process: what it says, how it ends, what outlives it, and what it refuses to begin."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from chat_server import Answer, ChatServer
from chest_images import frontal_images
from serve_process import PATIENCE_S, Serving, command, serve
from serving_models import answer_text, chat_request, image_of, url_of

from cxrlab.core.image_codec import encode_png, to_uint8
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.card import Card
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.data.images import luminance
from cxrlab.data.synthetic_scenes import draw_scene
from cxrlab.serving.accounts import add_account

pytestmark = pytest.mark.slow

NAME = "stub:normal"
PLANTED = "quokka"


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


class Slow:
    """A model behind an address, which answers when the test lets it; so a request is under way for as long as we want."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        self.server = ChatServer(self._answer)

    def _answer(self, body: dict[str, Any]) -> Answer:
        self.asked.set()
        self.go.wait(PATIENCE_S)
        return f"No {PLANTED} is seen."

    def __enter__(self) -> Slow:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go.set()
        self.server.stop()

    @contextlib.contextmanager
    def under_way(self, out: Path, *words: str) -> Iterator[tuple[Serving, Future[httpx.Response]]]:
        """A server with a request that waits for this model."""
        with (
            serve(out, "--name", "slow", *words, model=self.server.address()) as serving,
            ThreadPoolExecutor(1) as pool,
        ):
            answer = pool.submit(serving.post, chat_request(image_of(1), model="slow"))
            assert self.asked.wait(PATIENCE_S)
            try:
                yield serving, answer
            finally:
                self.go.set()


def test_it_is_there_when_it_says_where(tmp_path: Path) -> None:
    """The very next thing after the line is a request, and then the signal: neither may come too early."""
    with serve(tmp_path / "out") as serving:
        assert answer_text(serving.post(chat_request(image_of(1), model=NAME)))
        assert httpx.get(f"{serving.address}/healthz").json() == {"status": "ok"}
    with serve(tmp_path / "out") as serving:
        serving.tell(signal.SIGTERM)
        assert serving.wait() == 0


def test_sent_to_stop_it_lets_the_request_under_way_end(tmp_path: Path) -> None:
    with Slow() as slow, slow.under_way(tmp_path / "out") as (serving, answer):
        serving.tell(signal.SIGTERM)
        wait_for(lambda: httpx.get(f"{serving.address}/healthz").json() == {"status": "stopping"})
        late = serving.post(chat_request(image_of(2), model="slow"))
        assert late.status_code == 503 and late.json()["error"]["code"] == "overloaded" and late.headers["retry-after"]
        slow.go.set()
        assert answer_text(answer.result()) == f"No {PLANTED} is seen."
        assert serving.wait() == 0
        assert [json.loads(line)["event"] for line in serving.log.splitlines()][-1] == "stopped"


def test_ctrl_c_is_reported_by_the_exit_code(tmp_path: Path) -> None:
    with serve(tmp_path / "out") as serving:
        serving.tell(signal.SIGINT)
        assert serving.wait() == 130
        assert serving.log.splitlines()[-1].startswith("cxrlab: interrupted")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(tmp_path: Path, number: signal.Signals) -> None:
    """The model never answers; who starts the server again finds its folder free."""
    with Slow() as slow, slow.under_way(tmp_path / "out") as (serving, answer):
        serving.tell(number)
        wait_for(lambda: '"stopping"' in serving.log)
        begun = time.monotonic()
        serving.tell(number)
        assert serving.wait() == -number and time.monotonic() - begun < 2
        assert isinstance(answer.exception(), httpx.TransportError)
        with serve(tmp_path / "out") as again:
            assert answer_text(again.post(chat_request(image_of(1), model=NAME)))


@pytest.mark.slow
def test_it_does_not_wait_for_ever_for_a_model_that_never_answers(tmp_path: Path) -> None:
    with Slow() as slow, slow.under_way(tmp_path / "out", "--limits.drain_s", "0.2") as (serving, answer):
        serving.tell(signal.SIGTERM)
        late = answer.result(10)
        assert late.status_code == 503 and late.json()["error"]["message"].startswith("the server is stopping")
        assert serving.wait(15) == 0


def test_a_killed_server_leaves_its_quotas_behind(tmp_path: Path) -> None:
    """Three answers: one was given, one was being written when the server was killed; one is left."""
    with Slow() as slow:
        quota = ("--allowance.answers_total", "3")
        with slow.under_way(tmp_path / "out", *quota) as (serving, first):
            slow.go.set()
            answer_text(first.result())
            slow.go.clear()
            slow.asked.clear()
            with ThreadPoolExecutor(1) as pool:
                second = pool.submit(serving.post, chat_request(image_of(2), model="slow"))
                assert slow.asked.wait(PATIENCE_S)
                serving.tell(signal.SIGKILL)
                assert serving.wait() == -signal.SIGKILL and isinstance(second.exception(), httpx.TransportError)
        with serve(tmp_path / "out", *quota) as again:
            assert again.post(chat_request(image_of(3), model=NAME)).status_code == 200
            refused = again.post(chat_request(image_of(4), model=NAME))
            assert refused.status_code == 429 and refused.json()["error"]["code"] == "quota_exhausted"


@pytest.fixture(scope="module")
def benign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus that a guard can be set on."""
    folder = tmp_path_factory.mktemp("benign") / "corpus"
    with CorpusWriter(folder, Card("images", source="a test", licence="none", synthetic=True)) as writer:
        for number, radiograph in enumerate(frontal_images(97, 64)):
            image = ImageFile(f"images/{number}.png", View.PA)
            words = Report(findings="The lungs are clear.")
            study = Study(f"s{number}", f"p{number}", (image,), sections=words, split="train" if number else "test")
            writer.add(study, {image.path: encode_png(to_uint8(radiograph))})
    writer.finish()
    return folder


def test_a_killed_server_leaves_its_stopped_accounts_behind(tmp_path: Path, benign: Path) -> None:
    key, other = (add_account(tmp_path / "keys.yaml", name) for name in ("thief", "clinic"))
    bounds = {"image_bound": "0.05", "account_bound": "0.05", "account_queries": "20", "benign": str(benign)}
    words = ("--guard", *(word for name, value in bounds.items() for word in (f"--guarding.{name}", value)))
    words = (*words, "--keys", str(tmp_path / "keys.yaml"))
    scenes = [to_uint8(luminance(draw_scene(3, k, 64).image.astype(np.float32) / 255)) for k in range(3)]
    chest = to_uint8(frontal_images(97, 64)[0])

    def codes(serving: Serving, images: Any, key: str) -> list[str | None]:
        headers = {"Authorization": f"Bearer {key}"}
        found = [serving.post(chat_request(image, model=NAME), headers=headers).json() for image in images]
        return [one["error"]["code"] if "error" in one else None for one in found]

    with serve(tmp_path / "out", *words) as serving:
        assert codes(serving, scenes, key) == ["refused_by_guard", "refused_by_guard", "account_blocked"]
        serving.tell(signal.SIGKILL)
        serving.wait()
    with serve(tmp_path / "out", *words) as serving:
        assert codes(serving, [chest], key) == ["account_blocked"] and codes(serving, [chest], other) == [None]
        unblock = [*command()[:4], "unblock", "thief", "--out", str(tmp_path / "out")]
        subprocess.run(unblock, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)
        assert codes(serving, [chest], key) == [None], "a running server heeds it"


def refused(*words: str) -> str:
    """The sentence with which a server refuses to begin."""
    ended = subprocess.run(command(*words), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 1 and ended.stdout == "", ended
    (line,) = ended.stderr.splitlines()
    assert line.startswith("cxrlab: ") and line[-1] in ".?"
    return line.removeprefix("cxrlab: ")


def test_two_servers_do_not_write_the_same_books(tmp_path: Path) -> None:
    with serve(tmp_path / "out") as serving:
        said_why = refused("--model", NAME, "--out", str(tmp_path / "out"))
        assert "is being written by another process" in said_why and str(tmp_path / "out") in said_why
        assert answer_text(serving.post(chat_request(image_of(1), model=NAME))), "the first is not disturbed"


def test_a_port_in_use_is_said_in_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert "give another --port" in refused("--model", NAME, "--out", str(tmp_path / "out"), "--port", port)


def test_what_cannot_be_served_is_refused_before_anything_listens(tmp_path: Path) -> None:
    """All at once: each is a process of its own."""
    keys = tmp_path / "keys.yaml"
    secret = add_account(keys, "clinic")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(f"accounts:\n  clinic:\n    key: {secret}\n", "utf-8")
    (tmp_path / "broken.yaml").write_text("accounts: [", "utf-8")
    out = ("--out", str(tmp_path / "out"))
    cases = {
        ("--model", NAME, "--host", "0.0.0.0"): "--expose and --keys",
        ("--model", NAME, "--host", "0.0.0.0", "--expose"): "--expose and --keys",
        ("--model", NAME, "--host", "0.0.0.0", "--keys", str(keys)): "--expose and --keys",
        ("--model", "stub:norml"): "stub:normal",
        ("--model", NAME, "--keys", str(tmp_path / "none.yaml")): "none.yaml",
        ("--model", NAME, "--keys", str(tmp_path / "broken.yaml")): "broken.yaml",
        ("--model", NAME, "--keys", str(wrong)): "unknown key 'key'",
    }
    with ThreadPoolExecutor(3) as pool:
        sentences = list(pool.map(lambda words: refused(*words, *out), cases))
    for sentence, words in zip(sentences, cases.values(), strict=True):
        assert words in sentence and secret not in sentence, sentence
    assert not (tmp_path / "out" / "quotas.sqlite").exists()


def test_the_log_is_json_line_by_line_and_tells_nothing(tmp_path: Path) -> None:
    key = add_account(tmp_path / "keys.yaml", "clinic")
    log_file, image = tmp_path / "log.jsonl", image_of(1)
    with serve(tmp_path / "out", "--keys", str(tmp_path / "keys.yaml"), "--log-file", str(log_file)) as serving:
        headers = {"Authorization": f"Bearer {key}", "X-Patient": PLANTED}
        report = answer_text(serving.post(chat_request(image, f"{PLANTED} bite", model=NAME), headers=headers))
        assert (
            serving.post(chat_request(image, model=NAME), headers={"Authorization": f"Bearer {PLANTED}"}).status_code
            == 401
        )
        assert httpx.get(f"{serving.address}/{PLANTED}?{PLANTED}", headers=headers).status_code == 404
        serving.tell(signal.SIGTERM)
        assert serving.wait() == 0
    assert log_file.read_text("utf-8") == serving.log
    lines = [json.loads(line) for line in serving.log.splitlines()]
    assert [line["event"] for line in lines] == ["started", "request", "request", "request", "stopping", "stopped"]
    assert [line["status"] for line in lines[1:4]] == [200, 401, 404]
    assert (lines[1]["account"], lines[1]["pixels"], lines[1]["answers"]) == ("clinic", 256, 1)
    for secret in (key, PLANTED, *report.rstrip(".").split(". "), url_of(image).partition(",")[2][40:64]):
        assert secret not in serving.log, secret


def test_it_serves_where_nobody_reads_what_it_says(tmp_path: Path) -> None:
    """A pipe whose reader has gone, no output at all, and a file; where it serves is in the log as well."""
    reader, writer = os.pipe()
    os.close(reader)
    closed = ["sh", "-c", 'exec "$@" >&-', "sh"]
    with (tmp_path / "said").open("w", encoding="utf-8") as file, contextlib.ExitStack() as left:
        left.callback(os.close, writer)
        processes = {}
        for name, before, stdout in (("gone", [], writer), ("closed", closed, subprocess.DEVNULL), ("file", [], file)):
            words = command("--model", NAME, "--out", str(tmp_path / name), "--log-file", str(tmp_path / f"{name}.log"))
            process = subprocess.Popen([*before, *words], stdout=stdout, stderr=subprocess.PIPE, text=True)
            left.callback(process.kill)
            processes[name] = process
        for name, process in processes.items():
            address = logged_address(tmp_path / f"{name}.log")
            assert httpx.get(f"{address}/healthz").json() == {"status": "ok"}
            process.terminate()
            _, error_text = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0 and "Traceback" not in error_text and "Error" not in error_text, name
    assert (tmp_path / "said").read_text("utf-8") == f"serving {NAME} at {address}/v1\n"


def logged_address(log: Path) -> str:
    wait_for(lambda: log.exists() and log.read_text("utf-8").endswith("\n"))
    address: str = json.loads(log.read_text("utf-8").splitlines()[0])["address"]
    return address


def test_a_full_disk_for_what_it_says_is_reported(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with Path("/dev/full").open("w") as full:
        words = command("--model", NAME, "--out", str(tmp_path / "out"))
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 1 and ended.stderr.splitlines()[-1].startswith("cxrlab: cannot write the output")


def test_openais_own_client_gets_a_report_for_a_phantom(tmp_path: Path) -> None:
    """The model that comes with the package, unchanged; whole and streamed, the words are the same."""
    image = to_uint8(frontal_images(1, 256)[0])
    with serve(tmp_path / "out", model="builtin:reporter") as serving:
        client = openai.OpenAI(base_url=serving.url, api_key="none", max_retries=0)
        request = chat_request(image, "Cough.", model="builtin:reporter")
        report = client.chat.completions.create(**request).choices[0].message.content
        chunks = client.chat.completions.create(**request, stream=True)
        streamed = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        client.close()
    assert report and len(report.split()) > 5 and streamed == report
