"""What a server writes down of its work: one JSON object a line, and never what was asked or answered.

No picture, report, indication, prompt, key, header or address of a client is ever handed to this file. Of an exception
it writes the class and the place in the program, since its text may quote a patient's.
"""

from __future__ import annotations

import datetime
import json
import logging
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any, TextIO

from cxrlab.core.files import make_folder, os_error, private_opener
from cxrlab.core.streams import Remarks


class Journal:
    """The log of one server; lines may come from any thread.

    Args:
        stream: Where lines go; None for nowhere.
        file: A file that they are added to as well.
    """

    def __init__(self, stream: TextIO | None = None, file: Path | None = None) -> None:
        self._lock = threading.Lock()
        self._targets = [Remarks(stream)] if stream is not None else []
        self._file: TextIO | None = None
        if file is not None:
            make_folder(file.parent)
            try:
                self._file = open(file, "a", encoding="utf-8", opener=private_opener)
            except OSError as error:
                raise os_error(error, file) from error
            self._targets.append(Remarks(self._file))

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
