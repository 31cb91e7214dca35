"""Prometheus metrics and the log of a server; they identify clients by account names only."""

from __future__ import annotations

import datetime
import json
import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from cxrlab.core.files import make_folder, os_error, private_opener
from cxrlab.core.terminal import NoticeStream

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class Metrics:
    """All metrics of a server, for any thread."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self._registry = CollectorRegistry()
        self._requests = Counter("cxrlab_requests", "Requests that have ended.", ["route", "status"], registry=registry)
        self._refusals = Counter("cxrlab_refusals", "Refused requests, by reason.", ["code"], registry=registry)
        self._answers = Counter("cxrlab_answers", "Answers sent.", registry=registry)
        self._answer_tokens = Counter(
            "cxrlab_answer_tokens", "Tokens (words if the model counts none) of answers.", registry=registry
        )
        self._prompt_tokens = Counter(
            "cxrlab_prompt_tokens", "Tokens (words if the model counts none) of prompts.", registry=registry
        )
        self._failures = Counter("cxrlab_failures", "Failures of the server or the model.", registry=registry)
        self._seconds = Histogram(
            "cxrlab_request_seconds", "Duration of chat requests.", buckets=SECONDS, registry=registry
        )
        self._batch_size = Histogram(
            "cxrlab_batch_size", "Questions, or sampled answers to one, per batch.", buckets=SIZES, registry=registry
        )
        self._batch_seconds = Histogram(
            "cxrlab_batch_seconds", "Duration of batches.", buckets=SECONDS, registry=registry
        )

    def gauge(self, name: str, what: str, value: Callable[[], float]) -> None:
        """Add a value that is read when the metrics are."""
        from prometheus_client import Gauge

        Gauge(f"cxrlab_{name}", what, registry=self._registry).set_function(value)

    def by_account(self, name: str, what: str, values: Callable[[], Mapping[str, int]]) -> None:
        """Add a value per account that is read when the metrics are."""
        from prometheus_client.core import GaugeMetricFamily
        from prometheus_client.registry import Collector

        class PerAccount(Collector):
            def collect(self) -> Iterator[GaugeMetricFamily]:
                family = GaugeMetricFamily(f"cxrlab_{name}", what, labels=["account"])
                for account, count in values().items():
                    family.add_metric([account], count)
                yield family

        self._registry.register(PerAccount())

    def request(self, route: str, status: int, seconds: float, code: str | None) -> None:
        """Count a request that has ended.

        Args:
            route: One of the routes, or `other`; never the path that was sent.
            code: Reason of a refusal.
        """
        self._requests.labels(route, str(status)).inc()
        if code is not None:
            self._refusals.labels(code).inc()
        if route == "/v1/chat/completions":
            self._seconds.observe(seconds)

    def batch(self, size: int, seconds: float) -> None:
        """Count a batch."""
        self._batch_size.observe(size)
        self._batch_seconds.observe(seconds)

    def answered(self, answers: int, answer_tokens: int, prompt_tokens: int) -> None:
        """Count the answers to a request."""
        self._answers.inc(answers)
        self._answer_tokens.inc(answer_tokens)
        self._prompt_tokens.inc(prompt_tokens)

    def failed(self) -> None:
        """Count a failure of the server or the model."""
        self._failures.inc()

    def text(self) -> str:
        """Everything in Prometheus's text format."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry).decode()


class Journal:
    """The log of one server, one JSON object per line, to a stream and a file; for any thread."""

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
        """Add a line; fields that are None are omitted."""
        given = {name: value for name, value in fields.items() if value is not None}
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": now, "event": event, **given}) + "\n"
        with self._lock:
            for target in self._targets:
                target.write(line)

    def failure(self, error: BaseException, **fields: Any) -> None:
        """Add a line for an exception: its class and place, not its message."""
        self.write("failure", kind=type(error).__qualname__, place=place_of(error), **fields)

    def close(self) -> None:
        """Close the file; later lines go to the stream only."""
        with self._lock:
            if self._file is not None:
                self._targets.pop()
                self._file.close()
                self._file = None


def place_of(error: BaseException) -> str | None:
    """File, line and function of an exception's last frame in this package, else of its last frame."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "cxrlab" in frame.filename]
    if not frames:
        return None
    frame = (own or frames)[-1]
    return f"{frame.filename.replace(chr(92), '/').rpartition('/cxrlab/')[2]}:{frame.lineno} in {frame.name}"


class LibraryLogHandler(logging.Handler):
    """Logs messages of libraries by name and place, without the text, which may quote requests."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        kind = type(record.exc_info[1]).__qualname__ if record.exc_info and record.exc_info[1] else None
        self._journal.write(
            "library", logger=record.name, level=record.levelname, place=f"{record.module}:{record.lineno}", kind=kind
        )


def silence_libraries(journal: Journal) -> None:
    """Send the logs of all libraries to the journal, without their texts, and drop warnings.

    For the process of `cxrlab serve` only: it changes the whole interpreter.
    """
    warnings.simplefilter("ignore")
    root = logging.getLogger()
    root.handlers[:] = [LibraryLogHandler(journal)]
    for name in list(logging.root.manager.loggerDict):
        found = logging.getLogger(name)
        # A null handler stays: without it, a logger without a parent writes to the error stream.
        found.handlers[:] = [handler for handler in found.handlers if isinstance(handler, logging.NullHandler)]
        found.propagate = True

    def log(error: BaseException | None, where: str) -> None:
        if error is not None:
            journal.failure(error, where=where)

    threading.excepthook = lambda hooked: log(hooked.exc_value, "thread")
    sys.unraisablehook = lambda hooked: log(hooked.exc_value, "unraisable")
