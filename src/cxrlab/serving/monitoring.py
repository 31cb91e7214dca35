"""Counters in the text format that Prometheus reads, version 0.0.4; of clients they hold names of accounts alone."""

from __future__ import annotations

import datetime
import json
import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from cxrlab.core.files import make_folder, os_error, private_opener
from cxrlab.core.terminal import NoticeStream

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


@dataclass
class _Histogram:
    """Counts by upper bound; the last is for everything above."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[sum(value > bound for bound in self.bounds)] += 1
        self.total += value


class Metrics:
    """All counters of a server; calls may come from any thread.

    Args:
        gauges: Name → (what it tells, function that gives its value now).
    """

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]] | None = None) -> None:
        self._lock = threading.Lock()
        self._gauges = dict(gauges or {})
        self._by_account: dict[str, tuple[str, Callable[[], Mapping[str, int]]]] = {}
        self._requests: dict[tuple[str, int], int] = {}
        self._refusals: dict[str, int] = {}
        self._sums = {"answers": 0, "answer_tokens": 0, "prompt_tokens": 0, "failures": 0}
        self._histograms = {"seconds": _Histogram(SECONDS), "batch": _Histogram(SIZES), "batch_s": _Histogram(SECONDS)}

    def gauge(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Add a value that is read when somebody looks."""
        self._gauges[name] = (what, value)

    def by_account(self, name: str, what: str, values: Callable[[], Mapping[str, int]]) -> None:
        """Add a value for each account, by its name."""
        self._by_account[name] = (what, values)

    def request(self, route: str, status: int, seconds: float, code: str | None) -> None:
        """Count a request that has ended.

        Args:
            route: One of the routes, or `other`; never the path that was sent.
            status: Its HTTP status.
            seconds: How long it took.
            code: Why it was refused; None where it was not.
        """
        with self._lock:
            self._requests[route, status] = self._requests.get((route, status), 0) + 1
            if code is not None:
                self._refusals[code] = self._refusals.get(code, 0) + 1
            if route == "/v1/chat/completions":
                self._histograms["seconds"].add(seconds)

    def batch(self, size: int, seconds: float) -> None:
        """Count a batch that was asked."""
        with self._lock:
            self._histograms["batch"].add(size)
            self._histograms["batch_s"].add(seconds)

    def answered(self, answers: int, answer_tokens: int, prompt_tokens: int) -> None:
        """Count what was written for a request."""
        with self._lock:
            self._sums["answers"] += answers
            self._sums["answer_tokens"] += answer_tokens
            self._sums["prompt_tokens"] += prompt_tokens

    def failed(self) -> None:
        """Count a defect of the program or the model."""
        with self._lock:
            self._sums["failures"] += 1

    def text(self) -> str:
        """Everything, as Prometheus reads it."""
        with self._lock:
            lines = _counter(
                "requests_total",
                "Requests that have ended.",
                {f'{{route="{route}",status="{status}"}}': n for (route, status), n in sorted(self._requests.items())},
            )
            refusals = {f'{{code="{code}"}}': count for code, count in sorted(self._refusals.items())}
            lines += _counter("refusals_total", "Requests that were refused, by reason.", refusals)
            for name, what in (
                ("answers", "Answers that were handed out."),
                ("answer_tokens", "Tokens (words where the model does not tell) of answers."),
                ("prompt_tokens", "Tokens (words where the model does not tell) of what was asked."),
                ("failures", "Defects of the program or the model."),
            ):
                lines += _counter(f"{name}_total", what, {"": self._sums[name]})
            for key, name, what in (
                ("seconds", "request_seconds", "Duration of chat requests."),
                ("batch", "batch_size", "Questions, and drawn answers to one question, that were answered together."),
                ("batch_s", "batch_seconds", "Duration of batches."),
            ):
                lines += _histogram(name, what, self._histograms[key])
        for name, (what, value) in self._gauges.items():
            lines += [
                f"# HELP cxrlab_{name} {what}",
                f"# TYPE cxrlab_{name} gauge",
                f"cxrlab_{name} {_number(value())}",
            ]
        for name, (what, values) in self._by_account.items():
            lines += [f"# HELP cxrlab_{name} {what}", f"# TYPE cxrlab_{name} gauge"]
            lines += [f'cxrlab_{name}{{account="{account}"}} {count}' for account, count in values().items()]
        return "\n".join(lines) + "\n"


def _counter(name: str, what: str, values: Mapping[str, float]) -> list[str]:
    head = [f"# HELP cxrlab_{name} {what}", f"# TYPE cxrlab_{name} counter"]
    return head + [f"cxrlab_{name}{labels} {_number(value)}" for labels, value in values.items()]


def _histogram(name: str, what: str, histogram: _Histogram) -> list[str]:
    lines, below = [f"# HELP cxrlab_{name} {what}", f"# TYPE cxrlab_{name} histogram"], 0
    for bound, count in zip([*map(_number, histogram.bounds), "+Inf"], histogram.counts, strict=True):
        below += count
        lines.append(f'cxrlab_{name}_bucket{{le="{bound}"}} {below}')
    return [*lines, f"cxrlab_{name}_sum {_number(histogram.total)}", f"cxrlab_{name}_count {below}"]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


class Journal:
    """The log of one server; lines may come from any thread.

    Args:
        stream: Where lines go; None for nowhere.
        file: A file that they are added to as well.
    """

    def __init__(self, stream: TextIO | None = None, file: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._targets = [NoticeStream(stream)] if stream is not None else []
        self._file: TextIO | None = None
        if file is not None:
            make_folder(file.parent)
            try:
                self._file = open(file, "a", encoding="utf-8", opener=private_opener)
            except OSError as error:
                raise os_error(error, file) from error
            self._targets.append(NoticeStream(self._file))

    def write(self, event: str, **fields: Any) -> None:
        """Add a line; fields without a value are left out."""
        told = {name: value for name, value in fields.items() if value is not None}
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, **told}) + "\n"
        with self._lock:
            for target in self._targets:
                target.write(line)

    def failure(self, error: BaseException, **fields: Any) -> None:
        """Add a line for an exception: its class and its place."""
        self.write("failure", kind=type(error).__qualname__, place=place_of(error), **fields)

    def close(self) -> None:
        """Close the file; later lines go to the stream alone."""
        with self._lock:
            if self._file is not None:
                self._targets.pop()
                self._file.close()
                self._file = None


def place_of(error: BaseException) -> str | None:
    """File, line and function where an exception arose: the last place in this package, else the last of all."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "cxrlab" in frame.filename]
    if not frames:
        return None
    frame = (own or frames)[-1]
    return f"{frame.filename.replace(chr(92), '/').rpartition('/cxrlab/')[2]}:{frame.lineno} in {frame.name}"


class _Placed(logging.Handler):
    """Takes what libraries log: who and where, without the text, which may quote what they read."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        kind = type(record.exc_info[1]).__qualname__ if record.exc_info and record.exc_info[1] else None
        self._journal.write(
            "library", logger=record.name, level=record.levelname, place=f"{record.module}:{record.lineno}", kind=kind
        )


def silence_libraries(journal: Journal) -> None:
    """Let no library speak for itself in this process: warnings are dropped, its log keeps who and where.

    For the process of `cxrlab serve` alone; it changes the whole interpreter.
    """
    warnings.simplefilter("ignore")
    root = logging.getLogger()
    root.handlers[:] = [_Placed(journal)]
    for name in list(logging.root.manager.loggerDict):
        found = logging.getLogger(name)
        # A null handler keeps its logger quiet: without it, one that has no parent writes to the error stream.
        found.handlers[:] = [handler for handler in found.handlers if isinstance(handler, logging.NullHandler)]
        found.propagate = True
    threading.excepthook = lambda hooked: _hooked(journal, hooked.exc_value, "thread")
    sys.unraisablehook = lambda hooked: _hooked(journal, hooked.exc_value, "unraisable")


def _hooked(journal: Journal, error: BaseException | None, where: str) -> None:
    if error is not None:
        journal.failure(error, where=where)
