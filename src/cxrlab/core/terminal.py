"""Terminal output: progress of long loops and notices on the error stream, results on the output stream.

A closed, cut off or full error stream never stops a loop.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, islice
from typing import IO, Any, TextIO, TypeVar, cast
from weakref import WeakKeyDictionary

T = TypeVar("T")
QUIET = "CXRLAB_QUIET"
_silenced: ContextVar[bool] = ContextVar("silenced", default=False)
_last_line: WeakKeyDictionary[TextIO, float] = WeakKeyDictionary()  # when any loop last wrote to a stream


@contextmanager
def silenced() -> Iterator[None]:
    """Inside, loops show no progress unless `quiet=False`."""
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
    size: Callable[[T], int] | None = None,
    quiet: bool | None = None,
    every_s: float = 10.0,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """Yield `items` and show progress: a bar on a terminal, elsewhere at most one line every ten seconds.

    Args:
        label: A few words on what happens to each item ("drawing phantoms").
        total: Sum of `size` over the items; their number when both are left out. Unknown: only a count is shown.
        size: How many studies, images, … an item stands for; 1 when None.
        quiet: Show nothing. None follows `silenced()` and the environment variable CXRLAB_QUIET.
        every_s: Minimum seconds between lines when the stream is not a terminal, also between lines of several loops.
        stream: The error stream when None.
    """
    if total is None and size is None and isinstance(items, Sized):
        total = len(items)
    if quiet is None:
        quiet = _silenced.get() or os.environ.get(QUIET, "") not in ("", "0")
    if quiet or total == 0:
        return iter(items)
    target = stream if stream is not None else sys.stderr
    out = NoticeStream(target)
    count = size or (lambda _: 1)
    if out.isatty():
        return _bar(items, label, total, count, out)
    return _lines(items, label, total, count, target, every_s, clock)


def _bar(items: Iterable[T], label: str, total: int | None, size: Callable[[T], int], out: NoticeStream) -> Iterator[T]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    if total is None:  # no bar for no items
        rest = iter(items)
        first = list(islice(rest, 1))
        if not first:
            return
        items = chain(first, rest)
    with Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(file=cast(IO[str], out))
    ) as bar:
        task = bar.add_task(label, total=total)
        for item in items:
            yield item
            bar.advance(task, size(item))


def _lines(
    items: Iterable[T], label: str, total: int | None, size: Callable[[T], int], stream: TextIO | None, every_s: float,
    clock: Callable[[], float],
) -> Iterator[T]:  # fmt: skip
    start = clock()
    done = 0
    for item in items:
        yield item
        done += size(item)
        now = clock()
        # A loop that is over sooner needs no line; and a loop within another one must not double them.
        if stream is not None and now - max(start, _last_line.get(stream, start)) >= every_s:
            _last_line[stream] = now
            out = NoticeStream(stream)
            seconds = now - start
            share = f"{done:,} of {total:,} ({100 * done / total:.0f} %)" if total else f"{done:,}"
            rate = ""
            if done and seconds > 0:  # 0.0 per second would state nothing
                fast = done / seconds >= 0.5
                rate = f", {done / seconds:,.1f} per second" if fast else f", {seconds / done:,.1f} s each"
            out.write(f"{label}: {share}, {seconds:.0f} s{rate}\n")


class NoticeStream:
    """A text stream for notices: what cannot be written is dropped. A stream of None drops everything."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write and flush `text`, if possible; returns its length."""
        if self._stream is not None:
            try:
                _write(self._stream, text)
            except (OSError, ValueError):  # a reader that has gone, a full disk, a closed file
                _redirect_to_null(self._stream)
        return len(text)

    def flush(self) -> None:
        """Nothing to do: every write is flushed."""

    def isatty(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:
            return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def print_result(text: str) -> None:
    """Print the result of a command as a line; a closed pipe (`| head`) is not an error, a full disk is a `RunError`."""
    if sys.stdout is None:  # the process was started with a closed output
        return
    try:
        _write(sys.stdout, text + "\n")
    except OSError as error:
        _redirect_to_null(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            from cxrlab.core.files import os_error

            raise os_error(error, "the output") from error


def terminal_safe(text: str, *, colours: bool = False) -> str:
    """The text without control characters: names, ids and reports may come from anywhere.

    Line breaks and tabs stay, with `colours` also colour codes. Marks that change the direction of writing are removed,
    since they reorder words.
    """
    return (_CONTROL_BUT_COLOURS if colours else _CONTROL).sub("\N{REPLACEMENT CHARACTER}", text)


_NOT_ESCAPE = r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_CONTROL = re.compile(rf"\x1b|{_NOT_ESCAPE}")
_CONTROL_BUT_COLOURS = re.compile(rf"\x1b(?!\[[0-9;]*m)|{_NOT_ESCAPE}")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        # As JSON escapes them: then the text stays readable, and JSON stays JSON.
        stream.write(re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text))
    stream.flush()


def _redirect_to_null(stream: TextIO) -> None:
    """Point a dead stream at nothing: the interpreter flushes it once more at its exit, and would fail there."""
    with contextlib.suppress(OSError, ValueError):
        target = stream.fileno()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, target)
        os.close(nothing)
