"""Seeds of a study side by side, each in a process of its own: small models leave a GPU waiting."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from cxrlab.core.errors import CxrlabError
from cxrlab.data.parallel import follow_parent


def side_by_side(work: Callable[[int], None], seeds: Sequence[int], at_once: int) -> None:
    """Do the work of every seed; whoever goes through the parts of the study later finds them done.

    The first error, and Ctrl-C, end the others where they stand: every run of theirs goes on from its last checkpoint.

    Args:
        work: Importable by name (or a `functools.partial` of such a one); takes the seed.
        seeds: All of them.
        at_once: Most processes.
    """
    pool = ProcessPoolExecutor(at_once, mp_context=get_context("spawn"), initializer=follow_parent)
    try:
        waiting = {pool.submit(work, seed): seed for seed in seeds}
        for done in as_completed(waiting):
            if isinstance(error := done.exception(), CxrlabError):
                raise type(error)(f"seed {waiting[done]}: {error}") from error
            done.result()
    except BaseException:
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
