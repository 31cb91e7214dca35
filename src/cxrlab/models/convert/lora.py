"""LoRA matrices of a language model: read from PEFT's layout, added into the weights, or kept as an adapter.

A LoRA says that a weight W is used as W + (alpha / rank) · B·A.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError, shown
from cxrlab.core.files import read_json
from cxrlab.models.convert.tensors import read_tensors, shape

_CONFIG = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_NAME = re.compile(r"(?:base_model\.model\.)?(.+)\.lora_([AB])(?:\.default)?\.weight")
# Settings of later LoRAs that add something else than (alpha / rank) · B·A.
_PLAIN = {
    "bias": ("none",),
    "fan_in_fan_out": (False,),
    "modules_to_save": (None, []),
    "rank_pattern": ({},),
    "alpha_pattern": ({},),
    "use_rslora": (False,),
    "use_dora": (False,),
}


@dataclass(frozen=True)
class Lora:
    """Pairs of matrices for some modules of a model.

    Args:
        rank: Numbers between the two matrices.
        alpha: The sum is scaled by alpha / rank.
        dropout: Of training; no part of what is computed.
        pairs: Name of a module → (A [rank, in], B [out, rank]).
    """

    rank: int
    alpha: float
    dropout: float
    pairs: dict[str, tuple[Any, Any]]


def read_lora(folder: Path) -> Lora:
    """The LoRA in a folder of PEFT's; anything but a plain one is refused."""
    config = read_json(folder / _CONFIG)
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise DataError(f"{folder / _CONFIG} does not describe a LoRA.")
    for key, allowed in _PLAIN.items():
        if key in config and config[key] not in allowed:
            raise DataError(f"{folder / _CONFIG} has {key}={shown(config[key])}; plain LoRAs alone are converted.")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or not isinstance(alpha, (int, float)) or rank < 1:
        raise DataError(f"{folder / _CONFIG} gives r={shown(rank)} and lora_alpha={shown(alpha)}; numbers are needed.")
    path = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), folder / _WEIGHTS[1])
    halves: dict[str, dict[str, Any]] = {}
    for name, tensor in read_tensors(path).items():
        found = _NAME.fullmatch(name)
        if found is None:
            raise DataError(f"{path} holds {name}, which is no part of a LoRA.")
        halves.setdefault(found[1], {})[found[2]] = tensor
    if alone := sorted(module for module, half in halves.items() if len(half) != 2):
        raise DataError(f"{path} holds one matrix of two for {len(alone)} modules, such as {alone[0]}.")
    pairs = {module: (half["A"], half["B"]) for module, half in halves.items()}
    return Lora(rank, float(alpha), float(config.get("lora_dropout") or 0.0), pairs)


def check_fit(model: Any, lora: Lora) -> None:
    """Raise when a pair has no module in the model, or another size than that module's weight."""
    modules = dict(model.named_modules())
    for name, (a, b) in lora.pairs.items():
        weight = getattr(modules.get(name), "weight", None)
        if weight is None:
            raise DataError(f"the LoRA changes {name}, which the base does not have; give the base it was trained on.")
        if a.shape != (lora.rank, weight.shape[1]) or b.shape != (weight.shape[0], lora.rank):
            raise DataError(
                f"the LoRA's matrices for {name} are {shape(a)} and {shape(b)}, and the weight is {shape(weight)}; "
                "give the base it was trained on."
            )


def merge(model: Any, lora: Lora) -> None:
    """Add the LoRA into the model's weights, in float32 and then rounded to the weights' own format."""
    import torch

    with torch.no_grad():
        for name, (a, b) in lora.pairs.items():
            weight = model.get_submodule(name).weight
            weight.copy_(weight.float() + (lora.alpha / lora.rank) * (b.float() @ a.float()))


def write_adapter(lora: Lora, names: Mapping[str, str], out: Path) -> None:
    """An adapter folder of PEFT's; what it stands on is for the model card to say, since PEFT would look for it online.

    Args:
        lora: What it holds.
        names: Module → what it is called in the model that the adapter stands on.
        out: The folder.
    """
    import peft
    from safetensors.torch import save_file

    make: Any = peft.LoraConfig
    config = make(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=sorted(names.values()),
        task_type="CAUSAL_LM",
        inference_mode=True,
    )
    config.save_pretrained(out)
    tensors = {
        f"base_model.model.{names[module]}.lora_{letter}.weight": tensor.contiguous().clone()
        for module, pair in lora.pairs.items()
        for letter, tensor in zip("AB", pair, strict=True)
    }
    save_file(tensors, out / _WEIGHTS[0], metadata={"format": "pt"})
