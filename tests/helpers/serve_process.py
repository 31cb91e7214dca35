"""`cxrlab serve` as a process of its own, on a free port of this machine."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

PATIENCE_S = 60.0


class Serving:
    """A process that serves.

    Args:
        process: The process, just started.
        out: Folder of the server.
    """

    def __init__(self, process: subprocess.Popen[str], out: Path) -> None:
        self.process, self.out = process, out
        self.address = ""

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def url(self) -> str:
        """The base address for clients of the protocol."""
        return f"{self.address}/v1"

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self.address.rpartition(":")[2])

    @property
    def log(self) -> str:
        """Its error output so far."""
        return (self.out.parent / f"{self.out.name}.stderr").read_text("utf-8")

    def post(self, request: Any, **more: Any) -> httpx.Response:
        """Ask for a report."""
        return httpx.post(f"{self.url}/chat/completions", json=request, timeout=PATIENCE_S, **more)

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """Wait for its end and return its code; below 0 is the signal that has ended it."""
        return self.process.wait(seconds)


def command(*words: str) -> list[str]:
    """The command `cxrlab serve` on a free port."""
    return [sys.executable, "-m", "cxrlab", "serve", "--port", "0", *words]


def started(out: Path, *words: str, model: str = "stub:normal", **options: Any) -> Serving:
    """Start a server and read its address; the caller ends the process."""
    with (out.parent / f"{out.name}.stderr").open("a", encoding="utf-8") as errors:
        options = {"stdout": subprocess.PIPE, "stderr": errors, "text": True, **options}
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command("--model", model, "--out", str(out), *words), env=environment, **options)
    serving = Serving(process, out)
    if process.stdout is not None:
        address = re.fullmatch(r"serving (.+) at (http://127\.0\.0\.1:\d+)/v1\n", _line(process))
        assert address, serving.log
        serving.address = address[2]
    return serving


@contextmanager
def serve(out: Path, *words: str, **options: Any) -> Iterator[Serving]:
    """A server that is killed at the end of the block if it still runs."""
    serving = started(out, *words, **options)
    try:
        yield serving
    finally:
        with contextlib.suppress(ProcessLookupError):
            serving.process.kill()
        serving.process.wait()
        if serving.process.stdout is not None:
            serving.process.stdout.close()


def _line(process: subprocess.Popen[str]) -> str:
    """The first line of its output; empty after a timeout."""
    assert process.stdout is not None
    found: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: found.put(process.stdout.readline()), daemon=True).start()  # type: ignore[union-attr]
    try:
        return found.get(timeout=PATIENCE_S)
    except queue.Empty:
        return ""
