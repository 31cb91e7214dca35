"""A parallel map over processes that keeps order, bounds memory and stops at once.

Each worker has its own pipe and one item at a time, so that a kill on either side leaves no process waiting.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Generic, TypeVar

from cxrlab.core.environment import usable_cores
from cxrlab.core.errors import RunError
from cxrlab.core.terminal import NoticeStream

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_THREAD_SETTERS = ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads")


def worker_count(workers: int, setting: str = "workers") -> int:
    """Processes to use: 0 means one per usable core; a larger number is cut to that, with a remark on `setting`."""
    cores = usable_cores()
    if workers > cores:
        _remark(setting, workers, cores)
    return min(workers, cores) if workers > 0 else cores


@cache
def _remark(setting: str, workers: int, cores: int) -> None:
    """Cached, so that it is printed once."""
    NoticeStream(sys.stderr).write(
        f"{setting}={workers} is more than the {cores} cores of this machine; using {cores}.\n"
    )


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int = 0, ahead: int | None = None
) -> Generator[Result, None, None]:
    """Yield `function(item)` for each item, in order.

    Args:
        function: Importable by name (or a `functools.partial` of such a one); runs in the workers.
        items: Read lazily, at most `ahead` before the result being yielded.
        workers: Most processes (see `worker_count`), never more than there are items; 1 runs in this process.
        ahead: Most items in work or waiting to be yielded; four per worker by default.

    An error of the function reaches the caller at the item's turn. On any error, on Ctrl-C and when the caller stops
    early, the workers are killed, so what they write must be whole or absent at every moment.
    """
    count = worker_count(workers)
    if count == 1:
        yield from map(function, items)
        return
    team = _Team(function, count)
    try:
        yield from team.results(iter(items), max(count, ahead or 4 * count))
    finally:
        team.end()


class _Worker:
    """One process with its pipe, and the number of the item that it works on."""

    def __init__(self, context: BaseContext, function: Callable[[Any], Any]) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.number = -1
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_work, args=(function, theirs, self.pipe), daemon=True
        )
        self.process.start()
        theirs.close()


class _Team(Generic[Item, Result]):
    """Workers, started one by one as items need them."""

    def __init__(self, function: Callable[[Item], Result], most: int) -> None:
        methods = multiprocessing.get_all_start_methods()
        self._context = multiprocessing.get_context("fork" if "fork" in methods else methods[0])
        self._function = function
        self._most = most
        self._workers: list[_Worker] = []
        self._busy: dict[Connection, _Worker] = {}
        self._idle: list[_Worker] = []

    def results(self, source: Iterator[Item], ahead: int) -> Iterator[Result]:
        """The results in order; `source` is read while workers are free and fewer than `ahead` items are out."""
        answers: dict[int, Any] = {}
        handed, turn = 0, 0
        more = True
        while True:
            while more and handed - turn < ahead and (self._idle or len(self._workers) < self._most):
                try:
                    item = next(source)
                except StopIteration:
                    more = False
                else:
                    self._hand(item, handed)
                    handed += 1
            if turn in answers:
                turn += 1
                done, value, trace = answers.pop(turn - 1)
                if not done:
                    raise value from _InWorker(f"\n{trace}")
                yield value
            elif self._busy:
                answers.update(self._collected())
            else:
                return

    def _hand(self, item: Item, number: int) -> None:
        worker = self._idle.pop() if self._idle else self._started()
        worker.number = number
        self._busy[worker.pipe] = worker
        with suppress(OSError):  # a dead worker's pipe is found closed when its answer is due
            worker.pipe.send(item)

    def _collected(self) -> Iterator[tuple[int, Any]]:
        """Number and answer of every item that is done, after waiting for at least one."""
        ready = wait(list(self._busy))
        for worker in [worker for pipe, worker in self._busy.items() if pipe in ready]:
            del self._busy[worker.pipe]
            try:
                answer = worker.pipe.recv()
            except (EOFError, OSError):
                raise RunError(
                    f"One of {len(self._workers)} worker processes was killed from outside, usually because the machine "
                    "ran out of memory; run again with fewer workers."
                ) from None
            self._idle.append(worker)
            yield worker.number, answer

    def _started(self) -> _Worker:
        # Blocked until the worker ignores it: a Ctrl-C in its first moments would print its traceback.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of a fork whenever a library has started threads, which linear algebra
                # does at import; workers take none of its locks.
                warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
                worker = _Worker(self._context, self._function)
                self._workers.append(worker)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return worker

    def end(self) -> None:
        """Kill all workers, then wait for them, so that a further Ctrl-C cannot leave one running."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()


class _InWorker(Exception):
    """The traceback of an error in a worker, shown above it by `--debug`."""


def _work(function: Callable[[Any], Any], pipe: Connection, parents: Connection) -> None:
    """Main loop of a worker: receive an item, send its answer, until the pipe closes."""
    _start_worker()
    parents.close()
    with suppress(EOFError, OSError):
        while True:
            item = pipe.recv()
            try:
                answer = pickle.dumps((True, function(item), ""))
            except BaseException as error:  # whatever it is, it is the parent's to raise
                trace = traceback.format_exc()
                try:
                    answer = pickle.dumps((False, error, trace))
                    pickle.loads(answer)  # some errors can be packed and not be unpacked
                except Exception:
                    answer = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}"), trace))
            pipe.send_bytes(answer)


def follow_parent() -> None:
    """In a worker process: ignore Ctrl-C, which the parent handles, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _start_worker() -> None:
    """Use one thread for the linear algebra of each worker, and leave the memory shared with the parent untouched."""
    follow_parent()
    gc.freeze()  # a collection would write to every object of the parent, and so copy the memory of all of them
    for name in _THREAD_VARIABLES:
        os.environ[name] = "1"
    _pin_loaded_blas()
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)  # its pool of threads did not come along with the fork, and would be waited for


def _pin_loaded_blas() -> None:
    """Set the threads of a forked library itself: it read its environment before the fork."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    # Five columns come before the path, which may hold spaces.
    for path in {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines() if "openblas" in line}:
        # A library that was replaced on disk since it was loaded cannot be opened; it keeps its threads.
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            for name in _THREAD_SETTERS:
                if hasattr(library, name):
                    getattr(library, name)(1)


def _end_with_parent() -> None:
    """End when the parent was killed: the worker would keep the folder's lock until its item is done."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
