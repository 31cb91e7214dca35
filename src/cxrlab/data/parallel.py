"""A parallel map that keeps order, holds little in memory and stops cleanly.

Results come back in the order of the items, so that a file written from them has the same bytes
with any number of workers. At most `ahead` items are under way, so that memory stays flat however
many there are.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import TypeVar

from cxrlab.core.errors import RunError

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_THREAD_SETTERS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")


def worker_count(workers: int) -> int:
    """Processes to use: 0 means every core this process may run on."""
    if workers > 0:
        return workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int = 0, ahead: int | None = None
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order.

    Args:
        function: Importable by name (or a `functools.partial` of such a one); runs in the workers.
        items: Read lazily, at most `ahead` before the result being yielded.
        workers: Processes; 0 is one for each core, 1 runs in this process.
        ahead: Most items under way or waiting to be yielded; four for each worker by default.

    An error of the function reaches the caller at the item's turn, after all earlier results. On
    any error, on Ctrl-C and when the caller stops early, no worker outlives the iterator.
    """
    count = worker_count(workers)
    if count == 1:
        yield from map(function, items)
        return
    yield from _in_processes(function, items, count, max(count, ahead or 4 * count))


def _in_processes(
    function: Callable[[Item], Result], items: Iterable[Item], count: int, ahead: int
) -> Iterator[Result]:
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else methods[0])
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker, initargs=(os.getpid(),))
    waiting: deque[Future[Result]] = deque()
    source = iter(items)
    try:
        with warnings.catch_warnings():
            # The first submission forks every worker. Python 3.12 warns of it whenever a library has
            # started threads, which linear algebra does at import; workers take none of its locks.
            warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
            waiting.extend(pool.submit(function, item) for item in islice(source, ahead))
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(function, item) for item in islice(source, 1))
            yield result
    except BrokenProcessPool:
        raise RunError(
            f"One of {count} worker processes was ended from outside, most often for want of memory; "
            "run again with fewer workers."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(parent: int) -> None:
    """One thread for each worker's linear algebra; Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _THREAD_VARIABLES:
        os.environ[name] = "1"
    _pin_loaded_blas()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _pin_loaded_blas() -> None:
    """A forked worker inherits a library that has already read its environment: ask it directly."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    for path in {line.split()[-1] for line in maps.read_text().splitlines() if "openblas" in line}:
        library = ctypes.CDLL(path)
        for name in _THREAD_SETTERS:
            if hasattr(library, name):
                getattr(library, name)(1)


def _end_with(parent: int) -> None:
    """A worker whose parent was killed would wait for work for ever."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
