"""Progress of a long loop: a bar on a terminal, a plain line every few seconds elsewhere.

Everything goes to the error stream, so that the result of a command can be piped. Nobody has to
listen: a loop goes on when that stream is closed, cut off or full.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO, TextIO, TypeVar, cast

from cxrlab.core.streams import Remarks

T = TypeVar("T")
QUIET = "CXRLAB_QUIET"
_silenced: ContextVar[bool] = ContextVar("silenced", default=False)


@contextmanager
def silenced() -> Iterator[None]:
    """Inside, loops show no progress unless they ask for it."""
    token = _silenced.set(True)
    try:
        yield
    finally:
        _silenced.reset(token)


def track(
    items: Iterable[T],
    label: str,
    total: int | None = None,
    *,
    quiet: bool | None = None,
    every_s: float = 5.0,
    stream: TextIO | None = None,
) -> Iterator[T]:
    """Yield `items` and show how far the loop has come.

    Args:
        items: What to loop over.
        label: A few words on what happens to each item ("drawing phantoms").
        total: Number of items; taken from `len(items)` when it has one, otherwise only a count is shown.
        quiet: Show nothing. None follows `silenced()` and the environment variable CXRLAB_QUIET.
        every_s: Seconds between plain lines when the stream is not a terminal.
        stream: Where to show it; the error stream by default.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    if quiet is None:
        quiet = _silenced.get() or os.environ.get(QUIET, "") not in ("", "0")
    if quiet:
        return iter(items)
    out = Remarks(stream if stream is not None else sys.stderr)
    return _bar(items, label, total, out) if out.isatty() else _lines(items, label, total, out, every_s)


def _bar(items: Iterable[T], label: str, total: int | None, out: Remarks) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=cast(IO[str], out))) as bar:
        task = bar.add_task(label, total=total)
        for item in items:
            yield item
            bar.advance(task)


def _lines(items: Iterable[T], label: str, total: int | None, out: Remarks, every_s: float) -> Iterator[T]:
    start = told = time.monotonic()
    done = 0
    try:
        for item in items:
            yield item
            done += 1
            now = time.monotonic()
            if now - told >= every_s:
                told = now
                _tell(out, label, done, total, now - start)
    finally:
        # A short loop needs no line at all; a long one always says where it ended, also on an error.
        if told > start:
            _tell(out, label, done, total, time.monotonic() - start)


def _tell(out: Remarks, label: str, done: int, total: int | None, seconds: float) -> None:
    share = f"{done:,} of {total:,} ({100 * done / total:.0f} %)" if total else f"{done:,}"
    rate = f", {done / seconds:.1f} a second" if done and seconds > 0 else ""
    out.write(f"{label}: {share}, {seconds:.0f} s{rate}\n")
