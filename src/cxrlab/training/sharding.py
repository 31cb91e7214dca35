"""FSDP2: share the weights, gradients and optimiser states of a module among the processes that train together.

Each layer is one group of torch's `fully_shard`: its weights are gathered before it runs and freed afterwards. The same
code runs on GPUs and, over gloo, on CPUs. What is saved is whole, in the same files as without sharding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

# What `fully_shard` registers hooks in.
_HOOKS = (
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
)  # fmt: skip


def layers(module: nn.Module) -> list[nn.Module]:
    """The repeated layers of all parts of a model: the items of its outermost lists."""
    found: list[nn.Module] = []
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            for item in child:
                found += layers(nn.ModuleList([item])) if isinstance(item, nn.ModuleList) else [item]
        else:
            found += layers(child)
    return found


def shard(module: nn.Module, device: torch.device) -> Callable[[bool], None]:
    """Share the parameters of a module among all processes, layer by layer, in place.

    Returns a function that makes the module an ordinary one again, on the CPU, with the weights of that time. Every
    process calls it; those that give false for `keep` only learn the shapes.
    """
    from torch.distributed import get_world_size
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (get_world_size(),))
    before = [(one, type(one), _entries(one)) for one in module.modules()]
    for layer in layers(module):
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    # Before the first forward pass, which otherwise may be one of a part during an evaluation.
    module._get_fsdp_state()._lazy_init()  # type: ignore[operator]

    added = [(one, kind, _entries(one) - entries) for one, kind, entries in before]

    def make_whole(keep: bool) -> None:
        _free_gathered(module)
        whole: dict[Tensor, nn.Parameter] = {}  # parameters that two modules share stay shared
        for one, kind, entries in added:
            for name, value in one._parameters.items():
                if value is not None:
                    if value not in whole:
                        full = _gathered(value.detach(), keep)
                        whole[value] = nn.Parameter(full, requires_grad=value.requires_grad)
                    one._parameters[name] = whole[value]
            for name, buffer in one._buffers.items():
                one._buffers[name] = None if buffer is None else buffer.cpu()
            one.__class__ = kind
            for held, key in entries:
                del (vars(one)[held] if held else vars(one))[key]

    return make_whole


def is_sharded(module: nn.Module) -> bool:
    """Whether the parameters of a module are shared among processes."""
    return any(isinstance(value, DTensor) for value in module.parameters())


def trained_weights(module: nn.Module, keep: bool = True) -> dict[str, Tensor]:
    """The trained weights by name, whole and on the CPU; every process calls it.

    Args:
        module: The module.
        keep: Whether this process uses the numbers; where it does not, they take no memory.
    """
    _free_gathered(module)
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    return {name: _gathered(value.detach(), keep) for name, value in {**trained, **_statistics(module)}.items()}


def trained_names(module: nn.Module) -> list[str]:
    """Names of the trained weights: parameters with `requires_grad`, and statistics of trained batch norms."""
    parameters = [name for name, value in module.named_parameters() if value.requires_grad]
    return [*parameters, *_statistics(module)]


def _statistics(module: nn.Module) -> dict[str, Tensor]:
    """Running means and variances of batch norms that are trained: they change with every step."""
    norms = [(name, one) for name, one in module.named_modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]
    return {
        f"{name}.{key}": value
        for name, one in norms
        if one.weight is not None and one.weight.requires_grad
        for key, value in one.named_buffers(recurse=False)
    }


def put_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put whole weights into a module; of a sharded one, every process calls it with the same numbers."""
    _free_gathered(module)
    own = {**dict(module.named_parameters()), **_statistics(module)}
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(_placed_like(own[name], value))


def whole_optimiser_state(optimiser: Any, keep: bool) -> dict[str, Any]:
    """The state of an optimiser, whole and on the CPU; see `trained_weights`."""
    found: dict[str, Any] = optimiser.state_dict()
    state = {
        number: {name: _gathered(value, keep) if isinstance(value, Tensor) else value for name, value in values.items()}
        for number, values in found["state"].items()
    }
    return {**found, "state": state}


def load_optimiser_state(optimiser: Any, whole: Mapping[str, Any]) -> None:
    """Load a whole state into the optimiser of a sharded module; every process has the same state."""
    parameters = [value for group in optimiser.param_groups for value in group["params"]]
    state = {
        number: {
            name: _placed_like(parameters[number], value) if torch.is_tensor(value) and value.dim() else value
            for name, value in values.items()
        }
        for number, values in whole["state"].items()
    }
    optimiser.load_state_dict({**whole, "state": state})


@contextmanager
def unsharded(module: nn.Module) -> Iterator[None]:
    """Within it every process has the whole weights, so that one alone can run a part of the module.

    Every process enters and leaves it. An ordinary module stays as it is.
    """
    groups = _sharded(module)
    for one in groups:
        one.set_reshard_after_forward(False, recurse=False)
        one.unshard()
    try:
        yield
    finally:
        _free_gathered(module)
        for one in groups:
            one.set_reshard_after_forward(one is not module, recurse=False)


def _entries(module: nn.Module) -> set[tuple[str, Any]]:
    """The hooks of a module, and its other attributes."""
    own = vars(module)
    return {("", name) for name in own} | {(held, key) for held in _HOOKS for key in own[held]}


def _sharded(module: nn.Module) -> list[Any]:
    from torch.distributed.fsdp import FSDPModule

    return [one for one in module.modules() if isinstance(one, FSDPModule)]


def _free_gathered(module: nn.Module) -> None:
    # The weights outside the layers stay gathered after a forward pass without a backward pass.
    for one in _sharded(module):
        one.reshard()


def _gathered(tensor: Tensor, keep: bool) -> Tensor:
    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.cpu().contiguous() if keep else torch.empty_like(whole, device="meta")


def _placed_like(tensor: Tensor, whole: Tensor) -> Tensor:
    if not isinstance(tensor, DTensor):
        return whole
    # Each process has read the whole and keeps its own share of it.
    moved = whole.to(tensor.device)
    return distribute_tensor(moved, tensor.device_mesh, tensor.placements, src_data_rank=None)
