"""One writer per folder or file: locks that the system releases when their process ends, however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from cxrlab.core.errors import RunError
from cxrlab.core.files import PRIVATE, make_folder, os_error

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


def take_lock(folder: Path) -> Lock:
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

    The lock file stands beside it while the lock is held; see `take_lock` for what a kill leaves.

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
