"""Adapters on the language model's linear layers, and on nothing else."""

from __future__ import annotations

from typing import Any

from torch import nn

from cxrlab.core.errors import ConfigError

PROJECTOR = "multi_modal_projector"


def language_linears(model: Any) -> list[str]:
    """Names of the linear layers inside the language model of a LLaVA; its head is not one of them."""
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.startswith("model.language_model.")
    ]
    if not found:
        raise ConfigError(f"{type(model).__name__} has no linear layer under model.language_model to put adapters on.")
    return found


def add_adapters(
    model: Any, rank: int, alpha: float, dropout: float, *, train_projector: bool, autocast: bool = False
) -> Any:
    """The model as a `PeftModel`: adapters on the language model, the projector trained beside them.

    Args:
        model: A LLaVA; it is changed in place.
        rank: Of the adapters.
        alpha: Their scale, divided by the rank.
        dropout: Share of their inputs that is dropped.
        train_projector: Train a copy of the projector, kept in the adapter's folder.
        autocast: The model will run under autocast alone, which casts the small adapters; their inputs are then not
            copied into float32 first, which would cost more than the adapters themselves.
    """
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    # Kinds of layer, not their numbers: the pattern stays short, and the prefix keeps the encoder's namesakes out.
    kinds = sorted({name.rpartition(".")[2] for name in language_linears(model)})
    config = LoraConfig(
        r=rank,
        lora_alpha=alpha,  # type: ignore[arg-type]  # peft divides it by the rank, whole or not
        lora_dropout=dropout,
        bias="none",
        target_modules=rf"model\.language_model\..*\.({'|'.join(kinds)})",
        modules_to_save=[PROJECTOR] if train_projector else None,
        task_type="CAUSAL_LM",
    )
    peft = get_peft_model(model, config)
    for layer in peft.modules():
        if autocast and isinstance(layer, BaseTunerLayer):
            layer.cast_input_dtype_enabled = False  # type: ignore[assignment]
    return peft
