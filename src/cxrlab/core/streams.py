"""Talking to a terminal or a pipe whose other end may leave at any time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from typing import Any, TextIO


class Remarks:
    """A text stream for what is nice to know: where nobody can read it, it is dropped and the work goes on.

    Args:
        stream: Where to; None (a process without an error stream) takes everything and shows nothing.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write and flush `text`, if possible; returns its length."""
        if self._stream is not None:
            try:
                _write(self._stream, text)
            except (OSError, ValueError):  # a reader that has gone, a full disk, a closed file
                _let_go(self._stream)
        return len(text)

    def flush(self) -> None:
        """Nothing is left to flush; here for those who expect a file."""

    def isatty(self) -> bool:
        """Whether a person looks at it."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:
            return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def deliver(text: str) -> None:
    """Print the result of a command as a line; a reader that has gone (`| head`) has had enough.

    Raises:
        RunError: When the result cannot be written for another reason, such as a full disk.
    """
    if sys.stdout is None:  # the process was started with a closed output
        return
    try:
        _write(sys.stdout, text + "\n")
    except OSError as error:
        _let_go(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            from cxrlab.core.files import os_error

            raise os_error(error, "the output") from error


def harmless(text: str, *, colours: bool = False) -> str:
    """The text without what a terminal would obey instead of show: names, ids and reports may come from anywhere.

    Line breaks and tabs stay. Marks that turn the direction of writing go too: they make words change places.

    Args:
        text: Any text.
        colours: Leave what colours a text; for text that was coloured on purpose.
    """
    return (_OBEYED_BUT_COLOURS if colours else _OBEYED).sub("\N{REPLACEMENT CHARACTER}", text)


_OTHERS = r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
_OBEYED = re.compile(rf"\x1b|{_OTHERS}")
_OBEYED_BUT_COLOURS = re.compile(rf"\x1b(?!\[[0-9;]*m)|{_OTHERS}")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        # As JSON escapes them: then the text stays readable, and JSON stays JSON.
        stream.write(re.sub(r"[^\x00-\x7f]", lambda found: json.dumps(found[0])[1:-1], text))
    stream.flush()


def _let_go(stream: TextIO) -> None:
    """Point a dead stream at nothing: the interpreter flushes it once more at its exit, and would fail there."""
    with contextlib.suppress(OSError, ValueError):
        target = stream.fileno()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, target)
        os.close(nothing)
