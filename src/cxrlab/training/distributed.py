"""The processes that train together: how many, which one this is, and its device."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from cxrlab.core.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from cxrlab.training.config import Optimisation

T = TypeVar("T")


def _state() -> Any:
    import torch
    from accelerate import PartialState

    # One process may decode images for hours while the others wait for it.
    state = PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta(days=2))
    if state.num_processes > 1:
        _destroy_group_at_exit()
    return state


@cache
def _destroy_group_at_exit() -> None:
    """A process that ends while its group's threads still communicate may be aborted after its work is done."""
    from torch import distributed

    atexit.register(lambda: distributed.destroy_process_group() if distributed.is_initialized() else None)


def process_count() -> int:
    """Processes that train together; 1 outside a launcher."""
    return int(_state().num_processes)


def process_rank() -> int:
    """Number of this process, from 0."""
    return int(_state().process_index)


def is_main_process() -> bool:
    """Whether this is the process that writes files."""
    return bool(_state().is_main_process)


def wait_for_all() -> None:
    """Return when every process has come here."""
    _state().wait_for_everyone()


@contextmanager
def main_process_first() -> Iterator[None]:
    """The main process runs the block before the others do; they then find what it has made."""
    with _state().main_process_first():
        yield


def from_main_process(make: Callable[[], T]) -> T:
    """What `make` returns in the main process; the others do not call it and receive the same."""
    from accelerate.utils import broadcast_object_list

    found = [make() if is_main_process() else None]
    broadcast_object_list(found)
    return found[0]  # type: ignore[return-value]


def summed(values: torch.Tensor) -> torch.Tensor:
    """The sum of a tensor over all processes."""
    from accelerate.utils import reduce

    total: torch.Tensor = reduce(values, "sum")
    return total


_FSDP = "ACCELERATE_USE_FSDP"
# What else Accelerate's launcher may ask of FSDP, and the only value that the trainer has.
_FSDP_SETTINGS = {
    "FSDP_VERSION": "2",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_OFFLOAD_PARAMS": "false",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
    "FSDP_ACTIVATION_CHECKPOINTING": "false",
}


def shares_weights(settings: Optimisation) -> bool:
    """Whether the processes share weights, gradients and optimiser states: by the settings, or by Accelerate's launcher.

    Raises:
        ConfigError: When the launcher asks for what the trainer does not have; when there is no launcher.
    """
    from torch import distributed

    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        raise ConfigError("DeepSpeed is not supported; launch with configs/distributed/fsdp.yaml to share the weights.")
    if os.environ.get(_FSDP) == "true":
        for name, only in _FSDP_SETTINGS.items():
            if (asked := os.environ.get(name, only).lower()) != only:
                raise ConfigError(
                    f"{name.lower()}: {asked} of the launcher is not supported; use {only}, as in "
                    "configs/distributed/fsdp.yaml."
                )
    elif settings.sharding == "none":
        return False
    _state()
    if not distributed.is_initialized():
        raise ConfigError(
            "sharding=fsdp2 shares the weights among processes and one was started; launch with `accelerate launch "
            "--config_file configs/distributed/fsdp.yaml` or torchrun, or give --optimisation.sharding none."
        )
    return True


@contextmanager
def without_plugin() -> Iterator[None]:
    """Within it Accelerate does not shard: the trainer does, by itself and on a CPU too."""
    before = os.environ.pop(_FSDP, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[_FSDP] = before


def training_device() -> torch.device:
    """Where this process trains."""
    import torch

    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
