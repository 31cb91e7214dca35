"""Memory that ran out: how it is recognised, and the batch that is halved because of it."""

from __future__ import annotations

import errno
import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cxrlab.core.errors import OutOfMemory
from cxrlab.core.files import read_json, write_json
from cxrlab.core.terminal import NoticeStream

Item = TypeVar("Item")
Result = TypeVar("Result")

BATCH_FILE = "batch.json"  # in a run folder: settings of batches that did not fit, and what was used in their place
GPU, CPU = "GPU memory", "memory"
_ON_GPU = ("CUDA out of memory", "CUDA error: out of memory", "MPS backend out of memory", "_ALLOC_FAILED")
_ON_CPU = ("can't allocate memory", "Cannot allocate memory", "not enough memory")


def exhausted_memory(error: BaseException) -> str | None:
    """`GPU memory` or `memory` where the error is about a lack of it; None for any other error."""
    # A process that cannot be forked and a file that cannot be mapped are errors of the system.
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return CPU
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return GPU
    if isinstance(error, RuntimeError):
        said = str(error)
        return GPU if any(sign in said for sign in _ON_GPU) else CPU if any(sign in said for sign in _ON_CPU) else None
    return None


def raise_if_out_of_memory(error: BaseException, loaded: Path) -> None:
    """Raise `OutOfMemory` where this error is about memory: what could not be loaded is not therefore damaged."""
    if where := exhausted_memory(error):
        raise OutOfMemory(f"{where} ran out while {loaded} was loaded") from error


class BatchSize:
    """How many items go through a model at once: the requested number, then half of it whenever memory runs out.

    The smaller number stays for everything that follows. Given a run folder, it is kept in its batch.json, where a
    resumed run finds it.

    Args:
        requested: Items at once, at least 1.
        folder: Run folder; None keeps the number in this object alone.
        setting: The config key of `requested`, under which the number stands in batch.json.
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

        Args:
            items: What goes through the model.
            function: Items of one batch → their results. It is called again with fewer items where memory runs out, so
                it must leave nothing behind when it fails.
        """
        found: list[Result] = []
        left = items
        while len(left):
            taken, results = self.retry(partial(_first, function, left), len(left))
            found += results
            left = left[taken:]
        return found

    def retry(self, function: Callable[[int], Result], items: int) -> Result:
        """`function` of the size of a batch, called again with half of it whenever memory runs out.

        Args:
            function: Called again from its start, so it must leave nothing behind when it fails.
            items: How many there are; no batch is larger.

        Raises:
            OutOfMemory: When a batch of one item does not fit either.
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
            # Only out here are the error and the frames that hold its tensors gone.
            _free()
            self._halve(size, where)

    def _halve(self, too_large: int, where: str) -> None:
        self.current = too_large // 2
        self.note = f"Batch of {self.requested} does not fit in {where}; continued with {self.current}."
        if self._folder is not None:
            record = {"requested": self.requested, "used": self.current, "note": self.note}
            write_json(self._folder / BATCH_FILE, {**self._record(), self._setting: record})
        NoticeStream(sys.stderr).write(
            f"Batch of {too_large} does not fit in {where}; continuing with {self.current}.\n"
        )

    def _record(self) -> dict[str, Any]:
        file = self._folder / BATCH_FILE if self._folder is not None else None
        return dict(read_json(file)) if file is not None and file.is_file() else {}


def _first(
    function: Callable[[Sequence[Item]], Iterable[Result]], items: Sequence[Item], size: int
) -> tuple[int, list[Result]]:
    """How many items the first batch has, and their results."""
    batch = items[:size]
    return len(batch), list(function(batch))


def _free() -> None:
    """Give back what a failed batch has left."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
