"""The tables of a source: CSV as spreadsheets, scripts and hosts write it.

A byte-order mark, gzip, quoted line breaks and foreign line ends are taken as they come; a column that
is not there, or a row of another length, is a sentence with file and line.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TextIO, cast

from cxrlab.core.errors import DataError, nearest
from cxrlab.core.files import unreadable
from cxrlab.data.bounded import Unpacked, most_unpacked

Row = dict[str, str]
# Characters of a row. Reports and run-length masks stand in cells; the module's own limit of 128 KiB is below some.
LONGEST_ROW = 1 << 24
# Folders of a root in which a file is looked for that the root itself does not hold.
_MOST_FOLDERS = 100
# What an importer found so far, in order; see `files_found`.
_found: ContextVar[dict[Path, None] | None] = ContextVar("_found", default=None)


@contextlib.contextmanager
def files_found() -> Iterator[dict[Path, None]]:
    """Collect the files, images aside, that an importer finds meanwhile: what the corpus is made from."""
    files: dict[Path, None] = {}
    token = _found.set(files)
    try:
        yield files
    finally:
        _found.reset(token)


def noted(file: Path) -> Path:
    """The file, remembered as one that the corpus is made from; `find_file` and `find_optional` do it themselves."""
    files = _found.get()
    if files is not None:
        files[file] = None
    return file


def find_file(root: Path, *names: str, what: str) -> Path:
    """The first of these files that stands under the root; with none of them, a sentence with what was looked for.

    Args:
        root: The source folder.
        names: Paths relative to it, the most wanted first; `*` matches within a name.
        what: What the file is, for the error ("the table of images").
    """
    found = find_optional(root, *names)
    if found is None:
        near = folder_with(root, *names)
        remedy = f"it lies in {near}, so give that folder" if near else "give the folder that holds it"
        raise DataError(f"{root} does not hold {what}: looked for {', '.join(names)}; {remedy}.")
    return found


def find_optional(root: Path, *names: str) -> Path | None:
    """The first of these files that stands under the root, or None; see `find_file`."""
    if not root.is_dir():
        kind = "is a file, not a folder" if root.exists() else "does not exist"
        raise DataError(f"{root} {kind}; give the folder that you downloaded.")
    for name in names:
        matches = sorted(root.glob(name)) if "*" in name else [root / name]
        for match in matches:
            if match.is_file():
                return noted(match)
    return None


def folder_with(root: Path, *names: str) -> Path | None:
    """The folder above or just below the root that holds one of these files, for the remedy of an error."""
    with contextlib.suppress(OSError):
        below = sorted(entry for entry in root.iterdir() if entry.is_dir())
        for folder in (root.resolve().parent, *below[:_MOST_FOLDERS]):
            if any(next(folder.glob(name), None) for name in names):
                return folder
    return None


def read_rows(
    path: Path,
    needed: Sequence[str],
    *,
    rename: Callable[[list[str]], list[str]] | None = None,
    padded: bool = False,
) -> Iterator[tuple[int, Row]]:
    """Each row with its line number, by column name; cells are stripped of blanks at both ends.

    Args:
        path: A `.csv` file, or the same packed by gzip, told by content.
        needed: Columns that must be there.
        rename: Gives the header's names as they should have been, for files whose header is known to be broken.
        padded: Let a row be shorter than the header; the cells that it lacks are empty.
    """
    limit = csv.field_size_limit(LONGEST_ROW)
    try:
        with _open(path) as stream:
            yield from _rows(path, stream, needed, rename, padded)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}); fetch it again.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error.reason}); save it as UTF-8.") from None
    except csv.Error as error:
        raise DataError(f"{path} is not a usable CSV file ({error}); fetch it again.") from None
    except OSError as error:
        raise unreadable(error, path) from error
    finally:
        csv.field_size_limit(limit)


def _rows(
    path: Path,
    stream: TextIO,
    needed: Sequence[str],
    rename: Callable[[list[str]], list[str]] | None,
    padded: bool,
) -> Iterator[tuple[int, Row]]:
    lines = _Lines(path, stream)
    reader = csv.reader(lines)
    header = [name.strip() for name in next(reader, [])]
    if rename is not None:
        header = rename(header)
    missing = [name for name in needed if name not in header]
    if missing:
        hint = nearest(missing[0], header)
        has = ", ".join(filter(None, header[:8])) or "nothing"
        raise DataError(f"{path} has no column '{missing[0]}'.{hint} Its first columns are {has}.")
    for cells in reader:
        lines.taken = 0
        if not any(cells):
            continue
        if len(cells) != len(header) and not (padded and len(cells) < len(header)):
            raise DataError(
                f"{path}:{reader.line_num} has {len(cells)} cells under {len(header)} columns; "
                "a quote or comma is out of place there, or the file was cut."
            )
        cells += [""] * (len(header) - len(cells))
        yield reader.line_num, {name: cell.strip() for name, cell in zip(header, cells, strict=True)}


class _Lines:
    """The lines of a table, for the CSV parser; a NUL byte or a row that is too long is a `DataError`.

    `taken` counts the characters of the row so far; whoever takes a row sets it to 0.
    """

    def __init__(self, path: Path, stream: TextIO) -> None:
        self.taken, self._number, self._path, self._stream = 0, 0, path, stream

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(LONGEST_ROW + 1 - self.taken)
        self.taken += len(line)
        if self.taken > LONGEST_ROW:
            raise DataError(
                f"{self._path} holds a row of more than {LONGEST_ROW:,} characters; a quote is not closed there, or it "
                "is not this table. Fetch it again."
            )
        if not line:
            raise StopIteration
        self._number += 1
        if "\0" in line:
            raise DataError(f"{self._path}:{self._number} holds a NUL byte, which no CSV has; fetch the file again.")
        return line


def _open(path: Path) -> TextIO:
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    if packed:
        unpacked = Unpacked(cast(IO[bytes], gzip.open(path)), path, most_unpacked(path))
        return io.TextIOWrapper(io.BufferedReader(unpacked), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")
