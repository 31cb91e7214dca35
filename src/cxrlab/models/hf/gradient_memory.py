"""Memory of gradients with respect to the pixels: its estimate, and gradient checkpointing where it does not fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf.scoring import reads_left_to_right

if TYPE_CHECKING:
    import torch

    from cxrlab.models.hf.model import HfModel

# Floating point operations of a forward pass from which a GPU is busy throughout: more images per pass take more memory
# and no less time. On an H200 with 7 billion weights and 1,400 image tokens, 4 images per pass took 103 ms per image, 1
# took 123.
_BUSY = 5e13
_RESERVE = 1.1  # for what the estimate does not count


@dataclass(frozen=True)
class GradientMemory:
    """Estimate for one image in a forward and backward pass, weights not counted."""

    plain: int  # Bytes with all activations kept
    checkpointed: int  # Bytes with gradient checkpointing
    operations: float  # Floating point operations of the forward pass

    def times(self, copies: int) -> GradientMemory:
        """For several copies of the image."""
        return GradientMemory(copies * self.plain, copies * self.checkpointed, copies * self.operations)


@dataclass(frozen=True)
class GradientPlan:
    """How gradients are computed within the memory that is free."""

    images: int  # Per pass
    checkpointing: bool  # Whether activations are computed again in the backward pass
    per_image: int  # Estimated bytes
    free: int | None  # Bytes; None where unknown

    def __str__(self) -> str:
        free = "" if self.free is None else f", {in_words(self.free)} are free"
        how = " with gradient checkpointing" if self.checkpointing else ""
        return f"Gradients need about {in_words(self.per_image)} per image{free}: {self.images} at once{how}."


def in_words(size: float) -> str:
    """Bytes as `8.2 GB` or `37 MB`."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{math.ceil(size / 1e6)} MB"


def plan_gradients(
    memory: GradientMemory, images: int, free: int | None, checkpointing: bool | None = None
) -> GradientPlan:
    """The images per pass, and whether to use gradient checkpointing.

    Checkpointing takes about a third more time, one image per pass instead of several about a fifth. So it is used where
    a single image does not fit without it.

    Args:
        images: Most images per pass.
        free: Free bytes; anything fits where unknown.
        checkpointing: Decided by the user; by the estimate when None.

    Raises:
        ConfigError: If a single image does not fit.
    """
    room = math.inf if free is None else free
    checkpoint = checkpointing if checkpointing is not None else memory.plain > room
    each = memory.checkpointed if checkpoint else memory.plain
    if each > room:
        more = "" if checkpoint else ", or gradient checkpointing (--gradient-checkpointing auto)"
        raise ConfigError(
            f"a gradient with respect to one image needs about {in_words(each)} beside the weights and "
            f"{in_words(room)} are free; use smaller images or --loading.dtype bfloat16{more}."
        )
    fitting = images if room == math.inf else int(room / max(each, 1))
    busy = math.ceil(_BUSY / max(memory.operations, 1))
    return GradientPlan(max(1, min(images, fitting, busy)), checkpoint, each, free)


def estimate_gradient(
    model: HfModel, size: tuple[int, int], texts: Sequence[int], answer: int, images: int = 1
) -> GradientMemory:
    """Estimate for one image and the texts about it.

    Args:
        size: Height and width of the image.
        texts: Number of tokens of each text, image included.
        answer: Tokens of all texts whose logits are computed.
        images: Images per prompt.
    """
    from cxrlab.models.hf.image_prefix import pack

    config, item = model.model.config, model.model.dtype.itemsize
    eager = getattr(config, "_attn_implementation", None) == "eager"
    prefix = model.image_length(size) if reads_left_to_right(model.model) else 0
    own = [length - prefix for length in texts]
    tokens = max(prefix + sum(own[place] for place in group) for group in pack(own, prefix))
    weights = sum(weight.numel() for weight in model.model.parameters())
    return memory_of_sizes(config, weights, item, tokens, images * _patches(model, size), answer, eager=eager)


def memory_of_sizes(
    config: Any, weights: int, item: int, tokens: int, patches: int, answer: int, *, eager: bool = False
) -> GradientMemory:
    """The estimate from sizes alone.

    Args:
        config: Of the model.
        weights: Their number.
        item: Bytes per number.
        tokens: Of all texts that are computed together, image included.
        patches: Of the vision encoder.
        answer: Tokens whose logits are computed.
        eager: Attention without a fused kernel.
    """
    language = config.get_text_config()
    width, layers, block = block_numbers(language, tokens if eager else 0)
    # With checkpointing one block is there in full, and the gradients of what it keeps.
    kept, kept_inputs = tokens * layers * block, tokens * (layers * width + 2 * block)
    vision = getattr(config, "vision_config", None)
    if vision is not None and patches:
        wide, deep, inside = block_numbers(vision, patches if eager else 0)
        kept, kept_inputs = kept + patches * deep * inside, kept_inputs + patches * (deep * wide + 2 * inside)
    logits = answer * int(language.vocab_size) * (item + 4 + 4)
    return GradientMemory(
        int(_RESERVE * (kept * item + logits)),
        int(_RESERVE * (kept_inputs * item + logits)),
        2.0 * weights * tokens,
    )


def prepare_gradient(model: HfModel, size: tuple[int, int], report: str, indication: str | None) -> None:
    """Set a model to gradient checkpointing where the gradient of one report needs it; refuse where it does not help."""
    model.free_generation_cache()
    answer = model.report_length(report)
    memory = estimate_gradient(model, size, [model.prompt_length(indication, size) + answer], answer)
    checkpoint_layers(model.model, plan_gradients(memory, 1, free_memory(model.device)).checkpointing)


def block_numbers(config: Any, attended: int = 0) -> tuple[int, int, int]:
    """Width, number of blocks, and numbers per token that a block keeps from the forward to the backward pass.

    About 16 vectors of its width and 3 of its inner width; a Llama with frozen weights keeps 8 and 3, Gemma 3 keeps 16
    and 3. Attention without a fused kernel also keeps `attended` weights per head, three times.
    """
    width = getattr(config, "embed_dim", config.hidden_size)  # Qwen2-VL's vision encoder calls its output hidden
    layers = config.num_hidden_layers if hasattr(config, "num_hidden_layers") else config.depth
    if between := getattr(config, "cross_layer_interval", 0):  # IDEFICS: cross-attention before every so many layers
        layers += layers // between
    heads = getattr(config, "num_attention_heads", None) or int(getattr(config, "num_heads", 0))
    block = 16 * width + 3 * getattr(config, "intermediate_size", 4 * width) + 3 * heads * attended
    return width, layers, block


def _patches(model: HfModel, size: tuple[int, int]) -> int:
    """Patches of the vision encoder for an image of this size, all tiles together."""
    import torch

    pixels = model.path.inputs([torch.zeros(1, *size)]).get("pixel_values")
    if pixels is None:
        return 0
    if pixels.ndim == 2:  # one row per patch
        return int(pixels.shape[0])
    side = getattr(model.model.config.vision_config, "patch_size", 16)
    area = side * side if isinstance(side, int) else math.prod(side)
    return int(pixels.numel() // pixels.shape[-3] // area)


def free_memory(device: torch.device) -> int | None:
    """Bytes that new tensors can take on a device; None when unknown."""
    if device.type == "cuda":
        import torch

        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + unused)
    if device.type != "cpu":
        return None
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if ":" in line}
    except (OSError, ValueError, IndexError):
        return None
    return found.get("MemAvailable")


def checkpoint_layers(model: Any, on: bool = True) -> None:
    """Keep only the inputs of each layer from the forward to the backward pass, or all activations again.

    Also in evaluation mode and with frozen weights, where transformers' own switch does nothing. Values do not change.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer):
            layer.__dict__.pop("forward", None)
            if on:
                layer.forward = partial(_checkpointed, layer.forward)


def _checkpointed(forward: Any, *args: Any, **kwargs: Any) -> Any:
    import torch
    from torch.utils.checkpoint import checkpoint

    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
