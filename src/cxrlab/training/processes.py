"""How many processes train together, and which of them this is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

# One process may decode films for hours while the others wait for it.
_PATIENCE = timedelta(days=2)


def _state() -> Any:
    import torch
    from accelerate import PartialState

    return PartialState(cpu=not torch.cuda.is_available(), timeout=_PATIENCE)


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
