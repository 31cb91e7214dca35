"""Estimate of the memory that a training takes, and checks before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf.gradient_memory import block_numbers
from cxrlab.training.config import Optimisation

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Memory:
    """Estimated memory of a training on one device, in bytes.

    Args:
        weights: All weights as they are stored.
        trained: The trained ones again in float32, with gradient and optimiser.
        activations: Kept from the forward to the backward pass; roughly.
    """

    weights: int
    trained: int
    activations: int

    @property
    def whole(self) -> int:
        """Their sum, with a tenth more for what is not counted."""
        return int(1.1 * (self.weights + self.trained + self.activations))

    def __add__(self, other: Memory) -> Memory:
        """Both together."""
        return Memory(self.weights + other.weights, self.trained + other.trained, self.activations + other.activations)

    def shared(self, processes: int, gathered: int) -> Memory:
        """Per process, where so many share weights and what is trained, and gather so many bytes of weights at a time."""
        weights, trained = (-(-size // processes) for size in (self.weights, self.trained))
        return Memory(weights + gathered, trained, self.activations)

    def __str__(self) -> str:
        parts = (("weights", self.weights), ("what is trained", self.trained), ("activations", self.activations))
        return ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in parts)


def activations(config: Any, tokens: int, checkpointing: bool) -> int:
    """Numbers that an encoder keeps per sample from the forward to the backward pass; roughly."""
    block = 16 * config.hidden_size + 3 * getattr(config, "intermediate_size", 4 * config.hidden_size)
    layers: int = config.num_hidden_layers
    return int(tokens * (layers * config.hidden_size + block if checkpointing else layers * block))


def estimate(
    model: Any, settings: Optimisation, length: int, trained: int, validated: int = 0, quantised: int = 0
) -> Memory:
    """Memory for training a report model with `trained` trained weights.

    Args:
        model: The model.
        settings: Batch size, precision and gradient checkpointing.
        length: Tokens of the longest training sample.
        trained: Number of trained weights.
        validated: Tokens of the longest validation sample; 0 without validation.
        quantised: Number of weights that are stored in 4 bits, with a scale in 8 bits for each 64.
    """
    number = _bytes(settings)
    weights = number * (sum(value.numel() for value in model.parameters()) - quantised) + quantised * 33 // 64
    block, kept = _kept(model.config.get_text_config(), settings)
    # Per trained weight: itself, its gradient, and two numbers of AdamW, in float32.
    # A validation batch has as many samples, and without gradients keeps one block alone.
    activations = settings.batch_size * max(length * kept, validated * block) * number
    return Memory(weights, trained * 4 * 4, activations)


def estimate_vision(model: Any, settings: Optimisation, patches: int, *, trained: bool) -> Memory:
    """Memory of a vision encoder that runs at every step, where the largest image has so many patches."""
    block, kept = _kept(model.config.vision_config, settings)
    return Memory(0, 0, settings.batch_size * patches * (kept if trained else block) * _bytes(settings))


def estimate_logits(model: Any, settings: Optimisation, tokens: int) -> Memory:
    """Memory of the logits at the longest report: as computed, in float32, and their gradient."""
    vocabulary = int(model.config.get_text_config().vocab_size)
    return Memory(0, 0, settings.batch_size * tokens * vocabulary * (_bytes(settings) + 4 + 4))


def gathered_weights(model: Any, settings: Optimisation) -> int:
    """Bytes that are whole at a time where processes share the weights: all outside the layers, and the two largest."""
    from cxrlab.training.sharding import layers

    sizes = sorted(sum(value.numel() for value in layer.parameters()) for layer in layers(model))
    outside: int = sum(value.numel() for value in model.parameters()) - sum(sizes)
    return _bytes(settings) * (outside + sum(sizes[-2:]))


def _bytes(settings: Optimisation) -> int:
    """Per number that is not trained."""
    return 2 if settings.precision == "bfloat16" else 4


def _kept(config: Any, settings: Optimisation) -> tuple[int, int]:
    """Numbers per token that one block keeps from the forward to the backward pass, and that all blocks keep.

    With checkpointing a block keeps only its input, and one block is there in full while it is computed again.
    """
    width, layers, block = block_numbers(config)
    return block, layers * width + block if settings.gradient_checkpointing else layers * block


def check_memory(needed: Memory, device: torch.device, available: int | None = None) -> None:
    """Refuse a training that does not fit into `available` bytes (the device's when None; unknown passes)."""
    there = available if available is not None else available_memory(device)
    if there is not None and needed.whole > there:
        raise ConfigError(
            f"training needs about {needed.whole / 1e9:.1f} GB ({needed}) and {device} has {there / 1e9:.1f} GB; use a "
            "smaller batch_size with more accumulate, gradient_checkpointing, precision=bfloat16, a smaller rank, or several "
            "GPUs with sharding=fsdp2."
        )


def available_memory(device: torch.device) -> int | None:
    """Bytes of the device; None when unknown."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}.get("MemTotal")
    except (OSError, ValueError, IndexError):
        return None


def check_context(model: Any, longest: int) -> None:
    """Refuse samples that are longer than the language model's context."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if context is not None and longest > context:
        raise ConfigError(
            f"the longest sample has {longest:,} tokens (image, prompt and report) and the language model reads "
            f"{context:,}; use max_length={context}."
        )
