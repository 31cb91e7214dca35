"""How many processes train together, and which of them this is."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

# One process may decode images for hours while the others wait for it.
_PATIENCE = timedelta(days=2)


def _state() -> Any:
    import torch
    from accelerate import PartialState

    state = PartialState(cpu=not torch.cuda.is_available(), timeout=_PATIENCE)
    if state.num_processes > 1:
        _leave_at_the_end()
    return state


@cache
def _leave_at_the_end() -> None:
    """A process that ends while its group's threads still talk to the others may be aborted after its work is done."""
    atexit.register(_leave)


def _leave() -> None:
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def count() -> int:
    """Processes that train together; 1 outside a launcher."""
    return int(_state().num_processes)


def is_first() -> bool:
    """Whether this is the process that writes files."""
    return bool(_state().is_main_process)


def wait_for_all() -> None:
    """Return when every process has come here."""
    _state().wait_for_everyone()


@contextmanager
def first_alone() -> Iterator[None]:
    """The first process runs the block before the others do; they then find what it has made."""
    with _state().main_process_first():
        yield
