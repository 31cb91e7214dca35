"""Pieces of a study side by side, each in a process of its own: small models leave a GPU waiting."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

from cxrlab.core.errors import CxrlabError, RunError
from cxrlab.core.terminal import track
from cxrlab.data.parallel import follow_parent, worker_count

Piece = TypeVar("Piece", bound=Hashable)


def side_by_side(
    work: Callable[[Piece], None],
    needs: Mapping[Piece, Collection[Piece]],
    at_once: int,
    told: Callable[[Piece], str] = str,
) -> None:
    """Do every piece of work as soon as those that it needs are done; whoever goes through them later finds them done.

    Where more could begin than may, whoever waited for most begins first, so that no long chain is left for the end.
    The first error, and Ctrl-C, end the others where they stand: every run of theirs goes on from its last checkpoint.

    Args:
        work: Importable by name (or a `functools.partial` of such a one); takes a piece.
        needs: Each piece → those before it.
        at_once: Most processes; no more than there are cores.
        told: How a piece is called in the sentence about its error.
    """
    at_once = worker_count(at_once, "at_once")
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(at_once, mp_context=get_context("spawn"), initializer=follow_parent)
    try:
        for _ in track(_finished(pool, work, needs, at_once, told), f"parts, up to {at_once} at once", len(needs)):
            pass
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def named(piece: str) -> Iterator[None]:
    """What goes wrong within begins with the name of the piece."""
    try:
        yield
    except CxrlabError as error:
        raise type(error)(f"{piece}: {error}") from error


def _finished(
    pool: ProcessPoolExecutor,
    work: Callable[[Piece], None],
    needs: Mapping[Piece, Collection[Piece]],
    at_once: int,
    told: Callable[[Piece], str],
) -> Iterator[Piece]:
    """The pieces as they are done."""
    left, done, running = dict(needs), set[Piece](), dict[Future[None], Piece]()
    while left or running:
        ready = [piece for piece, before in left.items() if done.issuperset(before)]
        ready.sort(key=lambda piece: -len(needs[piece]))
        for piece in ready[: at_once - len(running)]:
            del left[piece]
            running[pool.submit(work, piece)] = piece
        if not running:
            raise ValueError(f"{told(next(iter(left)))} waits for something that nobody makes")
        for ended in wait(running, return_when=FIRST_COMPLETED).done:
            try:
                with named(told(running[ended])):
                    ended.result()
            except BrokenProcessPool as error:
                raise RunError(
                    "a process of the study was ended from outside, perhaps for want of memory; run the command again "
                    "to go on, with a smaller at_once if it happens again."
                ) from error
            done.add(running[ended])
            yield running.pop(ended)
