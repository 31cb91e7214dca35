"""Folders that are whole or absent, and checksums by which later damage to them is found.

A folder is filled under a hidden name, then given its own. `checksums.json` in it lists every file with its size and
SHA-256.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from cxrlab.core.environment import usable_cores
from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import PRIVATE, make_folder, os_error, read_json, sha256_of, write_json

CHECKSUMS = "checksums.json"


def write_folder(out: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill an empty folder, which then becomes `out`; after a kill there is no `out`.

    Args:
        out: The folder to make; see `require_new_folder`.
        write: Given an empty folder beside it.
    """
    require_new_folder(out)
    make_folder(out.parent)
    # Dot in front: a leftover of a killed process is never mistaken for a result.
    hidden = out.parent / f".{out.name[:100]}.{secrets.token_hex(4)}.tmp"
    try:
        make_folder(hidden)
        write(hidden)
        make_private(hidden)
        write_checksums(hidden)
        if out.is_dir():
            out.rmdir()  # an empty one
        os.replace(hidden, out)
    except OSError as error:
        raise os_error(error, out) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return out


def make_private(folder: Path) -> None:
    """Take from all but the owner the right to read the files of a folder, which libraries write as umask has it."""
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(PRIVATE)


def write_checksums(folder: Path, name: str = CHECKSUMS) -> None:
    """Hand every file of a folder to the disk, then list their sizes and SHA-256 in the file `name`.

    Files and folders whose names begin with a dot are left out: file browsers and network disks make such.
    """
    files = _listed(folder, name)
    for file in files.values():
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    sums = {path: {"bytes": files[path].stat().st_size, "sha256": digest} for path, digest in _digests(files).items()}
    write_json(folder / name, sums)


def find_damage(folder: Path, name: str = CHECKSUMS) -> str | None:
    """What of a folder is not as `write_checksums` found it, in a few words; None when every file is."""
    files = _listed(folder, name)
    try:
        sums = {str(path): (int(row["bytes"]), str(row["sha256"])) for path, row in read_json(folder / name).items()}
    except (DataError, AttributeError, KeyError, TypeError, ValueError):
        return f"{name} is no list of checksums"
    if odd := sorted(sums.keys() ^ files.keys()):
        return f"{odd[0]} is missing" if odd[0] in sums else f"{odd[0]} was added after it was written"
    for path, (size, _) in sums.items():
        if (found := files[path].stat().st_size) != size:
            return f"{path} has {found:,} bytes and was written with {size:,}"
    for path, digest in _digests(files).items():
        if digest != sums[path][1]:
            return f"the content of {path} has changed since it was written"
    return None


def _listed(folder: Path, name: str) -> dict[str, Path]:
    """Path within the folder → file, for every file that checksums are about."""
    found = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    hidden = {path for path in found if any(part.startswith(".") for part in path.parts)}
    return {path.as_posix(): file for path, file in found.items() if path not in hidden and path != Path(name)}


def _digests(files: dict[str, Path]) -> dict[str, str]:
    """SHA-256 of each file; hashing lets other threads run, so files are read side by side."""
    with ThreadPoolExecutor(min(8, usable_cores())) as team:
        return dict(zip(files, team.map(sha256_of, files.values()), strict=True))


def require_new_folder(out: Path) -> None:
    """A `RunError` when something is there already; an empty folder is nothing. Ask before hours are spent."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise RunError(f"{out} is there already; choose a new or empty folder.")


LOCK = ".lock"
PATIENCE_S = 1.0
_FILE_PATIENCE_S = 60.0


class FolderBusy(RunError):
    """A folder or file that another process is writing."""


class Lock:
    """The right to write into a folder or to change a file; given back by `release` or a `with` block.

    Args:
        file: The lock file.
        handle: Its open, locked descriptor.
    """

    def __init__(self, file: Path, handle: int) -> None:
        self._file = file
        self._handle = handle

    @property
    def held(self) -> bool:
        """Whether it was not released yet."""
        return self._handle >= 0

    def release(self) -> None:
        """Remove the lock file and let the next writer in; releasing twice is allowed."""
        if not self.held:
            return
        # A file with content was somebody else's before; ours is empty.
        if os.fstat(self._handle).st_size == 0:
            with contextlib.suppress(OSError):
                self._file.unlink()
        os.close(self._handle)
        self._handle = -1

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def lock_folder(folder: Path) -> Lock:
    """Lock a folder for writing; the folder must exist.

    A holder is given a second to end: the workers of a process that was killed keep its lock until
    they have noticed, and a run started again at once should not be refused for that.

    The file `.lock` stands in the folder while the lock is held. After a kill it may stay behind,
    which does no harm: the lock itself ended with the process.

    Raises:
        FolderBusy: When another writer holds the lock.
        RunError: When the file system cannot lock.
    """
    busy = f"{folder} is being written by another process; wait for it, or choose another folder."
    return _take(folder / LOCK, PATIENCE_S, busy)


def lock_file(file: Path) -> Lock:
    """Lock a file that is read, changed and written again; another process that does so is waited for.

    The lock file stands beside it while the lock is held; see `lock_folder` for what a kill leaves.

    Raises:
        FolderBusy: When another process holds the lock for a minute.
        RunError: When the file system cannot lock.
    """
    busy = f"{file} has been held by another process for {_FILE_PATIENCE_S:.0f} seconds; end that one, or wait for it."
    return _take(make_folder(file.parent) / f".{file.name[:200]}.lock", _FILE_PATIENCE_S, busy)


def _take(file: Path, patience: float, busy: str) -> Lock:
    limit = time.monotonic() + patience
    while True:
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT, PRIVATE)
        except OSError as error:
            raise os_error(error, file) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_open(file, handle):
                return Lock(file, handle)
        except BlockingIOError:
            os.close(handle)
            if time.monotonic() < limit:
                time.sleep(0.02)
                continue
            raise FolderBusy(busy) from None
        except OSError as error:
            Lock(file, handle).release()
            raise os_error(error, file, "lock") from error
        # The last holder removed the file between our opening and our locking it: what we hold has no name.
        os.close(handle)


def _is_open(file: Path, handle: int) -> bool:
    """Whether the descriptor is the file that stands at the path now."""
    try:
        return os.path.samestat(file.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False
