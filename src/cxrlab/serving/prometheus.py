"""Counters in the text format that Prometheus reads, version 0.0.4; of clients they hold names of accounts alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

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
