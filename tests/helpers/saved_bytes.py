"""Bytes that autograd keeps from the forward to the backward pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def saved_bytes(model: torch.nn.Module, compute: Callable[[], Tensor]) -> tuple[Tensor, int]:
    """What `compute` returns, and the size of the tensors saved in its graph; weights are not counted."""
    own = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    found: dict[int, int] = {}
    alive: list[Tensor] = []  # storages that are freed would give their address to others

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = compute()
    return result, sum(found.values())
