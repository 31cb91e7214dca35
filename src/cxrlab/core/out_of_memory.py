"""Recognising that memory ran out, and halving the batch size when it does."""

from __future__ import annotations

import errno
import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cxrlab.core.errors import OutOfMemory
from cxrlab.core.files import read_json, write_json
from cxrlab.core.terminal import NoticeStream

Item = TypeVar("Item")
Result = TypeVar("Result")

BATCH_FILE = "batch.json"  # in a run folder: batch sizes that did not fit, and those used instead
GPU, CPU = "GPU memory", "memory"
_ON_GPU = ("CUDA out of memory", "CUDA error: out of memory", "MPS backend out of memory", "_ALLOC_FAILED")
_ON_CPU = ("can't allocate memory", "Cannot allocate memory", "not enough memory")


def exhausted_memory(error: BaseException) -> str | None:
    """`GPU memory` or `memory` where the error is about a lack of it; None for any other error."""
    # A process that cannot be forked and a file that cannot be mapped raise OSError.
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return CPU
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return GPU
    if isinstance(error, RuntimeError):
        message = str(error)
        return GPU if any(s in message for s in _ON_GPU) else CPU if any(s in message for s in _ON_CPU) else None
    return None


def raise_if_out_of_memory(error: BaseException, loaded: Path) -> None:
    """Raise `OutOfMemory` when the error is about memory, so that a checkpoint that did not fit is not called damaged."""
    if where := exhausted_memory(error):
        raise OutOfMemory(f"{where} ran out while {loaded} was loaded") from error


class BatchSize:
    """How many items go through a model at once: the requested number, halved whenever memory runs out.

    The smaller number is kept for everything that follows and, given a run folder, in its batch.json (under `setting`,
    the config key of the requested number) for a resumed run.
    """

    def __init__(self, requested: int, folder: Path | None = None, setting: str = "batch_size") -> None:
        self.requested = self.current = requested
        self.note: str | None = None
        self._folder, self._setting = folder, setting
        kept = self._record().get(setting)
        # A request for less than what failed is tried anew.
        if kept is not None and requested >= kept["requested"]:
            self.current, self.note = min(requested, int(kept["used"])), str(kept["note"])

    def map(self, items: Sequence[Item], function: Callable[[Sequence[Item]], Iterable[Result]]) -> list[Result]:
        """All results of `function` over the items in batches, in order.

        It is called again with fewer items when memory runs out, so a failed call must have no lasting effect.
        """
        found: list[Result] = []
        left = items
        while len(left):

            def first_batch(size: int, items: Sequence[Item] = left) -> tuple[int, list[Result]]:
                return len(items[:size]), list(function(items[:size]))

            taken, results = self.retry(first_batch, len(left))
            found += results
            left = left[taken:]
        return found

    def retry(self, function: Callable[[int], Result], items: int) -> Result:
        """`function` of a batch size (at most `items`), called again with half of it whenever memory runs out.

        A failed call must have no lasting effect. `OutOfMemory` is raised when a batch of one item does not fit.
        """
        while True:
            size = max(1, min(self.current, items))
            try:
                return function(size)
            except Exception as error:
                where = exhausted_memory(error)
                if where is None:
                    raise
                if size == 1:
                    raise OutOfMemory(f"{where} ran out even with a batch of 1") from error
            # Only outside `except` are the error and the frames that hold its tensors gone.
            # Free what the failed batch has allocated.
            gc.collect()
            torch = sys.modules.get("torch")
            if torch is not None and torch.cuda.is_available():
                torch.cuda.empty_cache()
            self.current = size // 2
            self.note = f"Batch of {self.requested} does not fit in {where}; continued with {self.current}."
            self._keep()
            notice = f"Batch of {size} does not fit in {where}; continuing with {self.current}.\n"
            NoticeStream(sys.stderr).write(notice)

    def start_with(self, size: int, note: str) -> None:
        """Fewer items than requested, because an estimate says so; kept as a halved size is."""
        if size < self.current:
            self.current, self.note = size, note
            self._keep()

    def _keep(self) -> None:
        if self._folder is not None:
            record = {"requested": self.requested, "used": self.current, "note": self.note}
            write_json(self._folder / BATCH_FILE, {**self._record(), self._setting: record})

    def _record(self) -> dict[str, Any]:
        file = self._folder / BATCH_FILE if self._folder is not None else None
        return dict(read_json(file)) if file is not None and file.is_file() else {}
