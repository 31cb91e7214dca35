"""What is refused at the door, before hours are spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError
from cxrlab.training.config import Optimisation

if TYPE_CHECKING:
    import torch

_ADAM = 2  # numbers that AdamW keeps for each weight
_HEADROOM = 1.1


@dataclass(frozen=True)
class Memory:
    """An estimate of what a training takes on one device, in bytes.

    Args:
        weights: All weights as they are stored.
        trained: The trained ones again in float32, with gradient and optimiser.
        activations: What the forward pass keeps for the backward one; roughly.
    """

    weights: int
    trained: int
    activations: int

    @property
    def whole(self) -> int:
        """Their sum, with a tenth more for what is not counted."""
        return int(_HEADROOM * (self.weights + self.trained + self.activations))

    def __str__(self) -> str:
        parts = (
            ("weights", self.weights),
            ("what is trained", self.trained),
            ("activations", self.activations),
        )
        return ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in parts)


def estimate(model: Any, settings: Optimisation, length: int, trained: int) -> Memory:
    """The memory of a training, before anything of it is set up.

    Args:
        model: With `config.text_config` (a LLaVA).
        settings: Batch, precision, checkpointing.
        length: Tokens of the longest sample.
        trained: Weights that will be trained.
    """
    text = model.config.text_config
    number = 2 if settings.precision == "bfloat16" else 4
    weights = number * sum(value.numel() for value in model.parameters())
    # A block keeps about 16 vectors of its width and 3 of its inner width a token; with checkpointing only its input,
    # and one block in full while it is computed again.
    block = 16 * text.hidden_size + 3 * getattr(text, "intermediate_size", 4 * text.hidden_size)
    layers = text.num_hidden_layers
    kept = layers * text.hidden_size + block if settings.gradient_checkpointing else layers * block
    return Memory(weights, trained * 4 * (2 + _ADAM), settings.batch_size * length * kept * number)


def check_memory(needed: Memory, device: torch.device, available: int | None = None) -> None:
    """Refuse what will not fit.

    Args:
        needed: The estimate.
        device: Where it will run.
        available: Bytes there; asked of the device when None. Where nobody can tell, nothing is refused.
    """
    there = available if available is not None else available_memory(device)
    if there is not None and needed.whole > there:
        raise ConfigError(
            f"training needs about {needed.whole / 1e9:.1f} GB ({needed}) and {device} has {there / 1e9:.1f} GB; use a "
            "smaller batch_size with more accumulate, gradient_checkpointing, precision=bfloat16, or a smaller rank."
        )


def available_memory(device: torch.device) -> int | None:
    """Bytes of the device; None when it cannot be told."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            told = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
        return told.get("MemTotal")
    except (OSError, ValueError, IndexError):
        return None


def check_context(model: Any, settings: Optimisation, longest: int) -> None:
    """Refuse samples that are longer than the language model was made for."""
    context = getattr(model.config.text_config, "max_position_embeddings", None)
    if context is not None and longest > context:
        raise ConfigError(
            f"the longest sample has {longest:,} tokens (image, prompt and report) and the language model reads "
            f"{context:,}; use max_length={context}."
        )


def check_kind(model: Any, name: str) -> None:
    """Refuse a start that is no LLaVA: vision encoder, projector and language model must be told apart."""
    kind = getattr(model.config, "model_type", None)
    if kind != "llava":
        raise ConfigError(
            f"'{name}' is a model of the type '{kind}'; stages 2 and 3 train a LLaVA (encoder, projector, language "
            "model)."
        )
