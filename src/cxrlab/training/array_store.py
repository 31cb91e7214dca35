"""One large array on disk, computed once, row after row; a kill costs the last rows alone.

    KEY/rows.bin      the rows, one after the other
    KEY/state.json    shape, dtype and how many rows are done

The key names everything that the rows depend on, so that a store is never read for something else.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cxrlab.core.errors import RunError
from cxrlab.core.files import make_folder, os_error, read_json, write_json
from cxrlab.core.locks import take_lock

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
        with take_lock(self.folder):
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
        free = shutil.disk_usage(self.folder).free
        if start == 0 and free < self.bytes:
            raise RunError(
                f"the cache in {self.folder} needs {self.bytes / 1e9:.1f} GB and the disk has {free / 1e9:.1f} GB "
                "left; name another folder with cache, or turn the cache off."
            )
        try:
            mode = "r+" if start else "w+"
            return np.memmap(self.folder / _ROWS, np.dtype(self.dtype), mode, shape=self.shape)  # type: ignore[call-overload, no-any-return]
        except OSError as error:
            raise os_error(error, self.folder / _ROWS) from error

    def _note(self, array: np.memmap[tuple[int, ...], np.dtype[np.generic]], done: int) -> None:
        array.flush()
        state = {"shape": list(self.shape), "dtype": np.dtype(self.dtype).name, "done": done}
        write_json(self.folder / _STATE, state)


def fits(store: ArrayStore, wanted: str, most_gb: float) -> bool:
    """Whether a store is to be used: `wanted` is on, off, or auto, which means up to `most_gb` (10^9 bytes)."""
    return wanted == "on" or (wanted == "auto" and store.bytes <= most_gb * 1e9)


def sequence_blocks(items: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """The items in blocks of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
