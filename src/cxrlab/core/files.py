"""Atomic writes of files, and readers whose errors name the file.

A file is written under a temporary name in the same folder, flushed to the disk and renamed, so that a crash or a full disk
never leaves half a file. Files may concern patients: new ones are private to their owner (mode 600, folders
700).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cxrlab.core.errors import CxrlabError, DataError, RunError, did_you_mean
from cxrlab.core.json_values import InvalidJson, dumps, loads

PRIVATE = 0o600  # mode of a new file
_PRIVATE_FOLDER = 0o700
_making = threading.Lock()
_REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space, or choose a folder on another disk",
    errno.EDQUOT: "your disk quota is used up; free some space, or choose a folder on another disk",
    errno.EACCES: "permission is denied; choose a folder that you may write to, or change its permissions",
    errno.EPERM: "permission is denied; choose a folder that you may write to, or change its permissions",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EISDIR: "it is a folder where a file was expected; choose another name",
    errno.ENOTDIR: "a part of the path is a file where a folder was expected; choose another path",
    errno.EEXIST: "a file of that name exists; choose another path",
    errno.ENOENT: "it does not exist; check the path",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.EMFILE: "too many files are open; close other programs or raise the limit (ulimit -n)",
    errno.EIO: "the disk reports an input/output error; check the disk",
}


def os_error(error: OSError, path: str | os.PathLike[str], action: str = "write") -> RunError:
    """One sentence for an operating-system error: action, path, reason and remedy."""
    reason = _REMEDIES.get(error.errno or 0, (error.strerror or str(error) or type(error).__name__).lower())
    return RunError(f"cannot {action} {os.fspath(path)}: {reason}.")


def make_folder(path: str | os.PathLike[str]) -> Path:
    """The folder, made with its parents if absent; new folders are accessible to their owner only."""
    folder = Path(path)
    try:
        for each in (*reversed(folder.parents), folder):
            if not each.is_dir():
                each.mkdir(_PRIVATE_FOLDER, exist_ok=True)
    except OSError as error:
        raise os_error(error, folder, "make the folder") from error
    return folder


def write_bytes(path: str | os.PathLike[str], data: bytes, *, durable: bool = True) -> Path:
    """Write the whole file or keep what was there; see `write_pieces`."""
    return write_pieces(path, [data], durable=durable)


def write_pieces(path: str | os.PathLike[str], pieces: Iterable[bytes], *, durable: bool = True) -> Path:
    """Write the whole file, piece after piece, or keep what was there; missing folders are made.

    A new file is private to its owner; a replaced file passes on its permissions.

    Args:
        durable: Wait until the disk holds the content, also after a power cut. Without it the file is still whole
            or absent after a kill; use that for the many images of a corpus.
    """
    target = Path(path)
    make_folder(target.parent)
    # Dot in front: a leftover of a killed process is never mistaken for a result.
    temporary = target.parent / f".{target.name[:100]}.{secrets.token_hex(4)}.tmp"
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        try:
            _take_permissions(handle, target)
            for piece in pieces:
                write_all(handle, piece)
            if durable:
                os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, target)
    except BaseException as error:  # also on Ctrl-C
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise os_error(error, target) from error
        raise
    return target


def _take_permissions(handle: int, target: Path) -> None:
    """Give an open file the group and mode of the file that it will replace; without the group, none of its rights."""
    try:
        before = target.stat()
    except FileNotFoundError:
        return
    mode = stat.S_IMODE(before.st_mode) & 0o777
    if before.st_gid != os.fstat(handle).st_gid:
        try:
            os.fchown(handle, -1, before.st_gid)
        except PermissionError:
            mode &= ~0o070
    os.fchmod(handle, mode)


def private_opener(path: str | os.PathLike[str], flags: int) -> int:
    """For `open(..., opener=private_opener)`: a new file is readable by its owner only."""
    return os.open(path, flags, PRIVATE)


def make_file(path: str | os.PathLike[str]) -> Path:
    """The file, created empty and readable by its owner only if absent; SQLite gives its journal files the same mode."""
    file = Path(path)
    make_folder(file.parent)
    # SQLite's locks end when its process closes any descriptor of the file: no thread may connect before this one
    # is closed, and an existing file is not opened.
    with _making:
        try:
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE))
        except FileExistsError:
            pass
        except OSError as error:
            raise os_error(error, file) from error
    return file


def write_all(handle: int, data: bytes) -> None:
    """Write every byte to an open file descriptor; the system may take them in several pieces."""
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def write_text(path: str | os.PathLike[str], text: str, *, durable: bool = True) -> Path:
    """Write UTF-8 text atomically; see `write_bytes`."""
    return write_bytes(path, utf8(text, path), durable=durable)


def utf8(text: str, path: str | os.PathLike[str]) -> bytes:
    """The bytes of a text that goes into the file `path`; a lone surrogate is a `DataError`."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = text[error.start].encode("unicode_escape").decode()
        raise DataError(
            f"cannot write {os.fspath(path)}: the text holds the lone surrogate {half}; "
            "it may come from a file name that is not UTF-8: rename that file."
        ) from None


def write_json(path: str | os.PathLike[str], value: Any, *, durable: bool = True) -> Path:
    """Write a value (see `json_values.plain`) as indented JSON, atomically, with a final newline."""
    return write_text(path, dumps(value, indent=2) + "\n", durable=durable)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file; a missing one is a `DataError` that names similar files in its folder."""
    source = Path(path)
    try:
        return source.read_bytes()
    except OSError as error:
        raise unreadable(error, source) from error


def sha256_of(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's content as hexadecimal digits, read piece by piece."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(error, Path(path)) from error


def read_text(path: str | os.PathLike[str]) -> str:
    """UTF-8 text of a file; a byte-order mark at its start is dropped."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{os.fspath(path)} is not UTF-8 text (byte {error.start}); convert it to UTF-8.") from None


def read_json(path: str | os.PathLike[str]) -> Any:
    """The value in a JSON file; a malformed one is a `DataError` with place and reason."""
    try:
        return loads(read_text(path))
    except InvalidJson as error:
        place = f"{os.fspath(path)}:{error.line}" if error.line else os.fspath(path)
        raise DataError(f"{place} is not valid JSON ({error}); correct it, or make the file again.") from None


def unreadable(error: OSError, path: Path) -> CxrlabError:
    """The `DataError` for a file that cannot be opened for reading."""
    if error.errno == errno.ENOENT:
        neighbours: list[str] = []
        with contextlib.suppress(OSError):
            neighbours = os.listdir(path.parent)
        return DataError(f"{path} does not exist.{did_you_mean(path.name, neighbours) or ' Check the path.'}")
    return DataError(str(os_error(error, path, "read")))
