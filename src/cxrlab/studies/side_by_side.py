"""Pieces of a study side by side, each in a process of its own: small models leave a GPU waiting."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import TypeVar

from cxrlab.core.errors import CxrlabError
from cxrlab.data.parallel import follow_parent

Piece = TypeVar("Piece", bound=Hashable)


def side_by_side(
    work: Callable[[Piece], None],
    needs: Mapping[Piece, Collection[Piece]],
    at_once: int,
    told: Callable[[Piece], str] = str,
) -> None:
    """Do every piece of work as soon as those that it needs are done; whoever goes through them later finds them done.

    The first error, and Ctrl-C, end the others where they stand: every run of theirs goes on from its last checkpoint.

    Args:
        work: Importable by name (or a `functools.partial` of such a one); takes a piece.
        needs: Each piece → those before it.
        at_once: Most processes.
        told: How a piece is called in the sentence about its error.
    """
    left, done, running = dict(needs), set[Piece](), dict[Future[None], Piece]()
    pool = ProcessPoolExecutor(at_once, mp_context=get_context("spawn"), initializer=follow_parent)
    try:
        while left or running:
            for piece in [piece for piece, before in left.items() if done.issuperset(before)]:
                del left[piece]
                running[pool.submit(work, piece)] = piece
            if not running:
                raise ValueError(f"{told(next(iter(left)))} waits for something that nobody makes")
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                piece = running.pop(ended)
                if isinstance(error := ended.exception(), CxrlabError):
                    raise type(error)(f"{told(piece)}: {error}") from error
                ended.result()
                done.add(piece)
    except BaseException:
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
