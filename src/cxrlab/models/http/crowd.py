"""Several requests under way at once, answers handed out as they come, and an orderly end when one fails."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
GRACE_S = 10.0  # how long answers under way are waited for after Ctrl-C; once more, and nothing is


def as_they_come(work: Callable[[int, threading.Event], T], count: int, workers: int) -> Iterator[tuple[int, T]]:
    """Place and result of every piece of work, in any order.

    After the first failure, or Ctrl-C, nothing new begins; what is under way is handed out, then the error is raised.

    Args:
        work: Called with a place from 0 and with what is set once nothing new should begin; in threads of its own.
        count: Number of places.
        workers: Most at once.
    """
    stop, lock, places = threading.Event(), threading.Lock(), iter(range(count))
    done: queue.SimpleQueue[tuple[int, T] | BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        while not stop.is_set():
            with lock:
                place = next(places, None)
            if place is None:
                break
            try:
                done.put((place, work(place, stop)))
            except BaseException as error:
                done.put(error)
                stop.set()
        done.put(None)

    # Daemons: after Ctrl-C the program may end although a server keeps somebody waiting.
    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(workers, count))]
    for thread in threads:
        thread.start()
    failure: BaseException | None = None
    until: float | None = None
    left = len(threads)
    try:
        while left:
            try:
                found = done.get(timeout=None if until is None else max(until - time.monotonic(), 0.0))
            except queue.Empty:
                break
            except KeyboardInterrupt as error:
                if until is not None:
                    raise
                stop.set()
                failure, until = error, time.monotonic() + GRACE_S
                continue
            if found is None:
                left -= 1
            elif isinstance(found, BaseException):
                failure = failure or found
            else:
                yield found
    finally:
        stop.set()
    if failure is not None:
        raise failure
