"""One large array on disk, computed once, row after row; a kill costs the last rows alone.

    KEY/rows.bin      the rows, one after the other
    KEY/state.json    shape, dtype and how many rows are done

The key names everything that the rows depend on, so that a store is never read for something else.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cxrlab.core.errors import RunError
from cxrlab.core.files import make_folder, os_error, private_opener, read_json, write_json
from cxrlab.core.locks import FolderBusy, Lock, take_lock
from cxrlab.core.progress import track

_ROWS, _STATE = "rows.bin", "state.json"
_CHUNK = 1 << 28  # bytes between two notes of how far it has come


@dataclass(frozen=True)
class ArrayStore:
    """Rows of one shape on disk.

    Args:
        folder: Folder of this store alone.
        shape: Rows, then the shape of one.
        dtype: Of the numbers.
    """

    folder: Path
    shape: tuple[int, ...]
    dtype: DTypeLike

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @property
    def done(self) -> int:
        """Rows that are there."""
        file = self.folder / _STATE
        if not file.is_file() or not (self.folder / _ROWS).is_file():
            return 0
        state = read_json(file)
        fits = state["shape"] == list(self.shape) and state["dtype"] == np.dtype(self.dtype).name
        return int(state["done"]) if fits and (self.folder / _ROWS).stat().st_size == self.bytes else 0

    def fill(self, rows: Callable[[int], Iterator[NDArray[np.generic]]]) -> None:
        """Compute what is missing.

        Args:
            rows: Number of the first wanted row → that row and all that follow, as arrays [K, …] of one row or more.
        """
        make_folder(self.folder)
        with _own_turn(self.folder):
            start = self.done
            if start == self.shape[0]:
                return
            array = self._allocate(start)
            noted = start
            for block in rows(start):
                array[start : start + len(block)] = block
                start += len(block)
                if (start - noted) * self.bytes // self.shape[0] >= _CHUNK:
                    self._note(array, start)
                    noted = start
            if start != self.shape[0]:
                raise ValueError(f"{start} rows were given for a store of {self.shape[0]}")
            self._note(array, start)

    def read(self) -> NDArray[np.generic]:
        """The whole array, read-only and not in memory."""
        return np.memmap(self.folder / _ROWS, np.dtype(self.dtype), "r", shape=self.shape)

    def _allocate(self, start: int) -> np.memmap[tuple[int, ...], np.dtype[np.generic]]:
        file = self.folder / _ROWS
        free = shutil.disk_usage(self.folder).free
        try:
            if start == 0 and free < self.bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            with open(file, "r+b" if start else "w+b", opener=private_opener) as stream:
                # The whole room now: a disk that fills up later would end the process at a write into the map.
                reserve = getattr(os, "posix_fallocate", lambda handle, _, size: os.ftruncate(handle, size))
                reserve(stream.fileno(), 0, self.bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise os_error(error, file) from error
            file.unlink(missing_ok=True)
            raise RunError(
                f"the cache in {self.folder} needs {self.bytes / 1e9:.1f} GB and the disk has {free / 1e9:.1f} GB "
                "left; name another folder with cache, or turn the cache off."
            ) from None
        return np.memmap(file, np.dtype(self.dtype), "r+", shape=self.shape)

    def _note(self, array: np.memmap[tuple[int, ...], np.dtype[np.generic]], done: int) -> None:
        array.flush()
        state = {"shape": list(self.shape), "dtype": np.dtype(self.dtype).name, "done": done}
        write_json(self.folder / _STATE, state)


def _own_turn(folder: Path) -> Lock:
    """The lock of the folder; a run that shares the cache is waited for, since it computes what is wanted here."""
    with suppress(FolderBusy):
        return take_lock(folder)
    for _ in track(count(), f"waiting for another run, which is filling {folder}"):
        with suppress(FolderBusy):
            return take_lock(folder)  # waits a second itself
    raise AssertionError("counting does not end")


def fits(store: ArrayStore, wanted: str, most_gb: float) -> bool:
    """Whether a store is to be used: `wanted` is on, off, or auto, which means up to `most_gb` (10^9 bytes)."""
    return wanted == "on" or (wanted == "auto" and store.bytes <= most_gb * 1e9)
