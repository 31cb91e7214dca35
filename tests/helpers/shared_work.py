"""Runs whose work is shared: workers that die, commands that are killed, and folders to compare byte by byte."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.runs import ENVIRONMENT, STATUS
from cxrlab.core.workers import Engine, Process, Workers, open_workers


def launcher(processes: int = 2) -> list[str]:
    """Accelerate's launcher, on whatever device there is; a Python file or `-m MODULE` follows."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return [
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes),
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", port,
    ]  # fmt: skip


def files(run: Path) -> dict[str, bytes]:
    """Every file of a run but those that tell when and where it ran."""
    own = {ENVIRONMENT, STATUS, "batch.json", ".lock"}
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in own and path.suffix != ".tmp"
    }


class PickledWorkers(Workers):
    """Workers in this process; tasks and results are pickled, as between processes."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.processes = [Process(make), Process(make)]
        self.tasks = 0

    def start(self, data: Any, permission: str | None) -> None:
        """They need no start."""

    def map(self, method: str, tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """In turn."""
        for task in tasks:
            self.tasks += 1
            done, value = pickle.loads(
                pickle.dumps(self.processes[self.tasks % 2].attempt(method, pickle.loads(pickle.dumps(task))))
            )
            if not done:
                raise value
            yield value

    def close(self) -> None:
        """They need no end."""


@contextmanager
def pickled_workers(make: Callable[[], Any], engine: Any) -> Iterator[PickledWorkers]:
    """In the place of `open_workers`."""
    yield PickledWorkers(make)


def helpers_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the workers of Ray import these helpers."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))


class Squares:
    """A worker."""

    def square(self, number: int) -> int:
        """The square of a number that is not below 0."""
        sys.stdout.write("not shown")
        if number < 0:
            raise DataError(f"{number} is below 0")
        return number * number


class Pids:
    """A worker that tells its process."""

    def pid(self, number: int) -> tuple[int, int]:
        """The number of the task, and the process."""
        return number, os.getpid()


class Dying:
    """A worker that kills its process at every call."""

    def square(self, number: int) -> None:
        """Never returns."""
        os.kill(os.getpid(), signal.SIGKILL)


class DyingWorker:
    """A worker that kills its process at a call, unless a file says that one has done so; importable by workers."""

    def __init__(self, make: Callable[[], Any], file: Path, call: int) -> None:
        self._worker, self._file, self._left = make(), file, call

    def __getattr__(self, method: str) -> Any:
        self._left -= 1
        if self._left <= 0 and not self._file.exists():
            self._file.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self._worker, method)


def open_dying(make: Callable[..., Any], killed: Path, call: int, *given: Any) -> DyingWorker:
    """The worker of a command, which dies once at this call."""
    return DyingWorker(partial(make, *given), killed, call)


def killed_after(lines: int, file: str, words: Sequence[str], before: Sequence[str] = ()) -> int:
    """Run a command that is killed when it has appended so many lines to a file of its run; returns how it ended."""
    script = [str(Path(__file__)), file, str(lines), *words]
    return subprocess.run([*(before or [sys.executable]), *script], capture_output=True, timeout=400).returncode


def main() -> None:
    """The process of `killed_after`."""
    from cxrlab.cli.main import main as cxrlab
    from cxrlab.core.jsonl import JsonlAppender

    file, left = sys.argv[1], int(sys.argv[2])
    append = JsonlAppender.append

    def counted(self: JsonlAppender, record: Any) -> None:
        nonlocal left
        append(self, record)
        left -= self.path.name == file
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    JsonlAppender.append = counted  # type: ignore[method-assign]
    sys.exit(cxrlab(sys.argv[3:]))


def pids() -> None:
    """Print which process does each of five tasks."""
    with open_workers(Pids, Engine()) as workers:
        assert workers is not None
        workers.start([], None)
        sys.stdout.write(json.dumps(list(workers.map("pid", ((number,) for number in range(5))))))


if __name__ == "__main__":
    pids() if sys.argv[1:] == ["pids"] else main()
