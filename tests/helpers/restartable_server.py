"""`cxrlab serve` as a process that tests kill and restart; the model behind it records every prompt."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import httpx
from chat_server import ChatServer, last_message_text

_START_S = 30.0


class RestartableServer:
    """A server process at a port that stays the same over restarts; use it in a `with` block.

    The model behind it runs in the test's process, so that it outlives the server and records the prompts in order. The
    server sends it one prompt at a time.

    Args:
        folder: Folder of the server's data and its log.
    """

    def __init__(self, folder: Path) -> None:
        self.say: Callable[[str], str] = str  # the model's answer to a prompt
        self._log, self._out = folder / "log.jsonl", folder / "books"
        self._model = ChatServer(lambda body: self._answer(last_message_text(body)))
        self._left, self._done = 0, threading.Event()
        self._then: Callable[[], None] = lambda: None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._process: subprocess.Popen[str] | None = None

    @property
    def name(self) -> str:
        """The model's name for a client."""
        return f"http://127.0.0.1:{self._port}/v1#words"

    @property
    def prompts(self) -> list[str]:
        """The prompts to the model, over all starts of the server, in order."""
        return self._model.prompts

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The chat requests in the server's log, over all starts; a request interrupted by a kill has no line."""
        # The last line may be incomplete.
        whole = self._log.read_text().split("\n")[:-1] if self._log.exists() else []
        return [line for line in map(json.loads, whole) if line.get("route") == "/v1/chat/completions"]

    @property
    def answered(self) -> int:
        """Number of answers in the server's log."""
        return sum(line.get("answers", 0) for line in self.lines)

    @property
    def alone(self) -> bool:
        """Whether this request for its metrics is the only connection, and no request is in progress."""
        metrics = httpx.get(f"http://127.0.0.1:{self._port}/metrics", timeout=_START_S).text
        return "\ncxrlab_connections 1.0\n" in metrics and "\ncxrlab_in_flight 0.0\n" in metrics

    def interrupt(self, after: int, then: Callable[[], None]) -> threading.Event:
        """Call `then` once while the model generates, at the prompt after the next `after` ones.

        Returns:
            An event that is set after the call; the model answers after it.
        """
        self._left, self._then, self._done = after + 1, then, threading.Event()
        return self._done

    def start(self) -> None:
        """Start the process where it does not run, and wait until it listens."""
        if self._process is not None:
            return
        words = ["--model", "stub:normal", "--name", "words", "--text", self._model.address()]
        words += ["--port", str(self._port), "--max-batch", "1", "--log-file", str(self._log), "--out", str(self._out)]
        with (self._out.parent / "errors.txt").open("a") as errors:
            self._process = started("serve", *words, stdout=subprocess.PIPE, stderr=errors)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.endswith(f":{self._port}/v1\n"), f"the server did not start: {line}"

    def kill(self) -> None:
        """End the process by SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def __enter__(self) -> RestartableServer:
        self._model.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._model.stop()

    def _answer(self, prompt: str) -> str:
        """One prompt at a time: the server has one thread for its model."""
        self._left -= 1
        if self._left == 0:
            self._then()
            self._done.set()
        return self.say(prompt)


def started(*words: str, stdout: int = subprocess.DEVNULL, stderr: TextIO | int | None = None) -> Any:
    """`cxrlab WORDS` as a process of its own."""
    environment = {**os.environ, "CXRLAB_QUIET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cxrlab", *words]
    return subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True, env=environment)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; fail the test after 30 seconds."""
    end = time.monotonic() + _START_S
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
