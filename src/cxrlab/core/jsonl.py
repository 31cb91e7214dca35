"""JSON Lines files: a streaming reader and an appender whose file can be resumed.

A record is written with its newline at once, so that an interruption can cut only the last line. The appender removes a
cut line when it opens the file again; a resumed run then continues exactly.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import PRIVATE, make_folder, os_error, unreadable, utf8, write_all
from cxrlab.core.json_values import InvalidJson, dumps, loads

_BLOCK = 1 << 16
# Bytes of a line. Parsed, it takes up to twenty times as much.
LONGEST_LINE = 1 << 24


def read_jsonl(path: str | os.PathLike[str], *, undefined: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, object) per line, in constant memory; blank lines are skipped.

    A missing file, or a line that is not UTF-8, not JSON (see `json_values.loads`) or not an object, raises a `DataError`
    with file, line and remedy. `undefined` allows `NaN`, which files of other programs may hold.
    """
    for _, number, values in scan_jsonl(path, undefined=undefined):
        yield number, values


def scan_jsonl(path: str | os.PathLike[str], *, undefined: bool = False) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield (byte offset of the line, line number from 1, object), to return to a line later; see `read_jsonl`."""
    source = Path(path)
    try:
        stream = source.open("rb")
    except OSError as error:
        raise unreadable(error, source) from error
    with stream:
        number = offset = 0
        while True:
            try:
                line, length = read_line(stream)
            except OSError as error:
                raise unreadable(error, source) from error
            if not line:
                return
            number += 1
            if line.strip():
                cut = not line.endswith(b"\n")
                yield offset, number, parse_line(line, f"{source}:{number}", cut=cut, undefined=undefined)
            offset += length


def read_line(stream: IO[bytes]) -> tuple[bytes, int]:
    """The next line and its length; a line that is too long is returned only as far as `parse_line` needs to refuse it."""
    line = stream.readline(LONGEST_LINE + 1)
    length, rest = len(line), line
    while length > LONGEST_LINE and rest and not rest.endswith(b"\n"):
        rest = stream.readline(_BLOCK)
        length += len(rest)
    return line, length


def parse_line(line: bytes, place: str, cut: bool = False, undefined: bool = False) -> dict[str, Any]:
    """The object in one line; errors name the `place`. The newline of a `cut` line is missing."""
    if len(line) > LONGEST_LINE:
        raise DataError(f"{place} is longer than {LONGEST_LINE:,} bytes; correct or delete the line.")
    try:
        value = _decode(line, undefined)
    except InvalidJson as error:
        remedy = (
            "the file ends in the middle of this line; resume the run that writes it, or delete the line"
            if cut
            else "correct or delete the line"
        )
        raise DataError(f"{place} is not valid JSON ({error}); {remedy}.") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place} is not UTF-8 text (byte {error.start} of the line); convert the file to UTF-8."
        ) from None
    if not isinstance(value, dict):
        kinds = {list: "list", str: "text", bool: "truth value", type(None): "null"}
        kind = kinds.get(type(value), "number")
        raise DataError(f'{place} holds a {kind}, not an object; a line must look like {{"id": …}}.')
    return value


def line_of(record: Any, path: str | os.PathLike[str]) -> bytes:
    """A record as its line in the file `path`, newline included."""
    return utf8(dumps(record) + "\n", path)


def _decode(line: bytes, undefined: bool = False) -> Any:
    # Without its newline: a line that was cut is then reported at its end, not on the next line.
    return loads(line.decode("utf-8-sig").rstrip("\r\n"), undefined=undefined)


class JsonlAppender:
    """Append records to a file, each whole or absent.

    Opening a file removes a last line that was cut by an interruption; a complete last line without its newline gets one.
    A write that fails half-way (full disk) is undone.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        make_folder(self.path.parent)
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, PRIVATE)
        except OSError as error:
            raise os_error(error, self.path) from error
        try:
            self._repair_last_line()
        except OSError as error:
            os.close(self._handle)
            raise os_error(error, self.path) from error

    def append(self, record: Any) -> None:
        """Write one record (see `json_values.plain`); it is in the file when this returns."""
        self.append_line(line_of(record, self.path))

    def append_line(self, line: bytes) -> None:
        """Write a record that is already a line (see `line_of`)."""
        if self._handle < 0:
            raise ValueError(f"{self.path} is closed")
        size = os.fstat(self._handle).st_size
        try:
            write_all(self._handle, line)
        except BaseException as error:
            with contextlib.suppress(OSError):  # a device such as /dev/full has no length to restore
                os.ftruncate(self._handle, size)
            if isinstance(error, OSError):
                raise os_error(error, self.path) from error
            raise

    def close(self) -> None:
        """Flush the lines to the disk and close the file; closing twice is allowed."""
        if self._handle < 0:
            return
        try:
            os.fsync(self._handle)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a device such as /dev/full has no disk behind it
                raise os_error(error, self.path) from error
        finally:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> JsonlAppender:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # An error that is being raised already matters more than one of closing the file.
        with contextlib.suppress(RunError) if error is not None else contextlib.nullcontext():
            self.close()

    def _repair_last_line(self) -> None:
        """Leave the file empty or ending in a newline."""
        size = begin = os.fstat(self._handle).st_size
        start = 0  # just after the last newline, which is searched from the end
        while begin > 0 and not start:
            end, begin = begin, max(0, begin - _BLOCK)
            newline = os.pread(self._handle, end - begin, begin).rfind(b"\n")
            start = begin + newline + 1 if newline >= 0 else 0
        if start == size:
            return
        tail = os.pread(self._handle, size - start, start)
        try:
            complete = isinstance(_decode(tail), dict)
        except ValueError:
            complete = False
        if complete:
            write_all(self._handle, b"\n")
        else:
            os.ftruncate(self._handle, start)
