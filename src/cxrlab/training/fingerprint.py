"""A short name for the weights of a model: the same for the same numbers, another for any other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from cxrlab.core.environment import usable_cores


def weights_key(module: nn.Module) -> str:
    """A hash of the names, types, shapes and numbers of all weights and buffers that are saved."""
    return tensors_key(module.state_dict())


def tensors_key(named: Mapping[str, Tensor]) -> str:
    """The same of tensors by name."""
    tensors = sorted(named.items())
    digest = hashlib.blake2b(digest_size=12)
    # Hashing lets other threads run, so that billions of weights take seconds.
    with ThreadPoolExecutor(min(16, usable_cores())) as team:
        for (name, tensor), own in zip(tensors, team.map(_hash, (tensor for _, tensor in tensors)), strict=True):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {own}\n".encode())
    return digest.hexdigest()


def _hash(tensor: Tensor) -> str:
    numbers = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    return hashlib.blake2b(numbers.data, digest_size=12).hexdigest()
