"""Folders that are written whole or not at all, their checksums, and locks."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cxrlab.core.environment import usable_cores
from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import PRIVATE, make_folder, os_error, read_json, sha256_of, write_json

CHECKSUMS = "checksums.json"


def write_folder(out: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill an empty folder, which then becomes `out`; after a kill there is no `out`."""
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
    """Make the files of a folder readable by their owner only; libraries create them with the default mode."""
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(PRIVATE)


def write_checksums(folder: Path, name: str = CHECKSUMS) -> None:
    """Flush every file of a folder to the disk, then list their sizes and SHA-256 in the file `name`.

    Files and folders whose names begin with a dot are left out: file browsers and network disks create them.
    """
    files = _listed(folder, name)
    for file in files.values():
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    sums = {path: {"bytes": files[path].stat().st_size, "sha256": digest} for path, digest in _digests(files).items()}
    write_json(folder / name, sums)


def find_damage(folder: Path, name: str = CHECKSUMS) -> str | None:
    """The first difference from what `write_checksums` recorded, in a few words; None when there is none."""
    files = _listed(folder, name)
    try:
        sums = {str(path): (int(row["bytes"]), str(row["sha256"])) for path, row in read_json(folder / name).items()}
    except (DataError, AttributeError, KeyError, TypeError, ValueError):
        return f"{name} is not a list of checksums"
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
    """Raise a `RunError` when `out` exists and is not an empty folder. Call it before long work."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise RunError(f"{out} is there already; choose a new or empty folder.")


LOCK = ".lock"
LOCK_TIMEOUT_S = 1.0
_FILE_LOCK_TIMEOUT_S = 60.0


class FolderBusy(RunError):
    """A folder or file that another process is writing."""


class Lock:
    """An exclusive lock of a folder or file, released by `release` or at the end of a `with` block.

    `file` exists while the lock is held; after a kill it may stay behind, which does no harm. When another process
    holds the lock for longer than `timeout_s`, `FolderBusy` is raised with the message `busy`.
    """

    def __init__(self, file: Path, timeout_s: float, busy: str) -> None:
        from filelock import FileLock, Timeout  # slow to import, and most commands lock nothing

        if not file.parent.is_dir():  # which the library would make
            raise os_error(FileNotFoundError(errno.ENOENT, "no such folder"), file.parent, "lock")
        self._file = file
        # A lock that consists in the existence of its file would outlive a killed process.
        self._lock = FileLock(file, timeout_s, mode=PRIVATE, thread_local=False, fallback_to_soft=False)
        try:
            self._lock.acquire(poll_interval=0.02)
        except Timeout:
            raise FolderBusy(busy) from None
        except OSError as error:
            self._remove_file()
            raise os_error(error, file, "lock") from error

    @property
    def held(self) -> bool:
        return self._lock.is_locked

    def release(self) -> None:
        """Remove the lock file and release the lock; releasing twice is allowed."""
        if self.held:
            self._remove_file()  # while locked: a waiting process notices, and makes a new one
            self._lock.release()

    def _remove_file(self) -> None:
        with contextlib.suppress(OSError):
            if self._file.stat().st_size == 0:  # a file with content was there before, and is not ours
                self._file.unlink()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def lock_folder(folder: Path) -> Lock:
    """Lock an existing folder for writing; see `Lock`. Another writer has a second to finish."""
    busy = f"{folder} is being written by another process; wait for it, or choose another folder."
    return Lock(folder / LOCK, LOCK_TIMEOUT_S, busy)


def lock_file(file: Path) -> Lock:
    """Lock a file that is read, changed and written again; another process has a minute to finish."""
    busy = f"another process has locked {file} for {_FILE_LOCK_TIMEOUT_S:.0f} seconds; wait for it or end it."
    return Lock(make_folder(file.parent) / f".{file.name[:200]}.lock", _FILE_LOCK_TIMEOUT_S, busy)
