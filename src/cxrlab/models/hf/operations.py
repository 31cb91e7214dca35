"""Floating point operations of a report model's passes, and what they take on a GPU by its data sheet.

A multiplication with an addition counts as two operations. Only operations that the work needs are counted: padding,
logits of positions without a report token and recomputed activations are not. For one sample of L tokens, I of them
image tokens and R report tokens, with frozen weights W of the language model's linear layers, adapters A, projector
layers P1 and P2 (numbers of weights), vocabulary V, width d, N layers:

    linear layers    2·W·L forward, 2·W·L backward: a frozen weight passes the gradient on and has none
    adapters         2·A·L forward, 4·A·L backward
    attention        2·N·d·L² forward (a token looks back only: half the square), twice that backward
    output layer     2·V·d·R forward, 2·V·d·R backward
    projector        2·(P1 + P2)·I forward; backward 4·P2·I and 2·P1·I, since nothing below it is trained
    encoder            2·T·(I + 1) + 4·M·t·(I + 1)² forward, for T weights in the M layers of width t whose output is
                     used; nothing with cached features

Norms, activations, embeddings and the optimiser are left out; they need less than 1 % of the total.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cxrlab.core.errors import ConfigError, did_you_mean

_LANGUAGE = re.compile(r"language_model\.(?:model\.)?layers\.")
_VISION_ENCODER = re.compile(r"vision_tower\.(?:.*\.)?layers?\.(\d+)\.")
_PROJECTOR = re.compile(r"multi_modal_projector\.")


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU by its data sheet: dense operations per second in bfloat16, bytes of memory, bytes per second."""

    operations: float
    memory: float
    bandwidth: float


GPUS: Mapping[str, Gpu] = MappingProxyType(
    {
        "a100-40gb": Gpu(312e12, 40e9, 1.555e12),
        "a100-80gb": Gpu(312e12, 80e9, 2.039e12),
        "h100-80gb": Gpu(989e12, 80e9, 3.35e12),
        "h200-141gb": Gpu(989e12, 141e9, 4.8e12),
        "l40s-48gb": Gpu(362e12, 48e9, 0.864e12),
        "rtx4090-24gb": Gpu(165e12, 24e9, 1.008e12),
    }
)
# Shares of the data sheet that were reached on one H200 with 7 billion random weights of LLaVA-Rad's sizes and images of
# 518 pixels (docs/scale.md): 5.1 training samples per second, 134 ms per gradient to the pixels, 1.4 s for the prefill of
# 32 images, and 9.9 s for 35 reports of 256 tokens. A test computes these speeds from the shares.
TRAINING, GRADIENT, PREFILL, DECODING = 0.22, 0.31, 0.44, 0.26


@dataclass(frozen=True)
class Gpus:
    """So many GPUs of one kind."""

    name: str
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Gpus:
        """From `h100-80gb`, or `8xh100-80gb`."""
        count, times, name = text.rpartition("x") if re.match(r"\d+x", text) else ("1", "", text)
        if name not in GPUS or not int(count):
            raise ConfigError(
                f"--hardware {text} is not known; give one of {', '.join(GPUS)}, or several such as "
                f"8xh100-80gb.{did_you_mean(name, GPUS)}"
            )
        return cls(name, int(count))

    @property
    def each(self) -> Gpu:
        """Data sheet of one."""
        return GPUS[self.name]

    def __str__(self) -> str:
        return f"{self.count} x {self.name}" if self.count > 1 else self.name

    def facts(self, needed: float) -> dict[str, str]:
        """What a plan states about them, where each needs so many bytes."""
        fits = "" if needed <= self.each.memory else ", so the run does not fit"
        return {"hardware": f"{self}, {self.each.memory / 1e9:.0f} GB each{fits}"}

    def seconds(self, operations: float, share: float) -> float:
        """Of operations that are divided evenly."""
        return operations / (self.each.operations * share * self.count)


@dataclass(frozen=True)
class Shape:
    """The sizes that determine the number of operations.

    Args:
        linear: Weights of the language model's linear layers, without embeddings and output layer.
        adapters: Weights of the adapters on them.
        layers: Layers of the language model.
        width: Attention heads times head dimension.
        output: Weights of the output layer.
        projector: Weights of the projector's first and second layer.
        vision_encoder: Weights of the vision encoder's layers in use; 0 with cached features.
        vision_encoder_layers: Number of these layers.
        vision_encoder_width: Its hidden size.
        image_tokens: Per image.
        cache_width: Numbers per token and layer that the key-value cache holds.
    """

    linear: int
    adapters: int
    layers: int
    width: int
    output: int
    projector: tuple[int, int]
    vision_encoder: int
    vision_encoder_layers: int
    vision_encoder_width: int
    image_tokens: int
    cache_width: int = 0

    @property
    def encoder_operations(self) -> float:
        """Forward pass of the vision encoder for one image."""
        patches = self.image_tokens + 1
        return (
            2.0 * self.vision_encoder * patches
            + 4.0 * self.vision_encoder_layers * self.vision_encoder_width * patches**2
        )

    def forward(self, tokens: int, answer: int) -> float:
        """Operations of a forward pass over so many tokens, at so many of which there are logits."""
        language = 2.0 * (self.linear + self.adapters) * tokens + 2.0 * self.layers * self.width * tokens**2
        return (
            language
            + 2.0 * self.output * answer
            + 2.0 * sum(self.projector) * self.image_tokens
            + self.encoder_operations
        )

    def gradient(self, tokens: int, answer: int) -> float:
        """Operations of a gradient with respect to the pixels: every weight passes the gradient on and has none."""
        attention = 2.0 * self.layers * self.width * tokens**2
        patches = self.image_tokens + 1
        of_patches = 4.0 * self.vision_encoder_layers * self.vision_encoder_width * patches**2
        return 2 * self.forward(tokens, answer) + attention + of_patches

    def report_seconds(self, gpus: Gpus, tokens: int, new: int, batch: int) -> float:
        """Generate one report of a batch: its prompt is read once, then each step reads all weights and the cache.

        Args:
            tokens: Of the prompt, image included.
            new: Tokens of the report.
            batch: Reports that are generated together.
        """
        prefill = gpus.seconds(self.forward(tokens, 1), PREFILL)
        weights = 2.0 * (self.linear + self.adapters + self.output)
        cached = 2.0 * self.layers * self.cache_width * (tokens + new / 2)
        step = (weights / batch + cached) / (gpus.each.bandwidth * DECODING * gpus.count)
        return prefill + new * step


def sample_flops(shape: Shape, tokens: int, report: int) -> float:
    """Operations that one sample needs, forward and backward.

    Args:
        shape: Sizes of the model.
        tokens: Tokens of the sample, image tokens included, padding excluded.
        report: Number of report tokens, those with a loss.
    """
    first, second = shape.projector
    patches = shape.image_tokens
    return float(
        4 * shape.linear * tokens
        + 6 * shape.adapters * tokens
        + 6 * shape.layers * shape.width * tokens**2
        + 4 * shape.output * report
        + (4 * first + 6 * second) * patches
        + 2 * shape.vision_encoder * (patches + 1)
        + 4 * shape.vision_encoder_layers * shape.vision_encoder_width * (patches + 1) ** 2
    )


def shape_of(model: Any, *, features_kept: bool) -> Shape:
    """The sizes of a LLaVA, with or without adapters on its language model.

    Args:
        model: `LlavaForConditionalGeneration`, plain or wrapped by PEFT.
        features_kept: The vision features are cached, so the vision encoder does not run.
    """
    matrices = {
        name: value.numel()
        for name, value in model.named_parameters()
        if value.ndim == 2 and "original_module" not in name  # PEFT keeps a frozen copy of what it trains whole
    }
    text, vision = model.config.text_config, model.config.vision_config
    heads = text.num_attention_heads
    width = heads * (getattr(text, "head_dim", None) or text.hidden_size // heads)
    first, second = (size for name, size in matrices.items() if _PROJECTOR.search(name))
    chosen = model.config.vision_feature_layer
    used = 0 if features_kept else chosen if chosen >= 0 else vision.num_hidden_layers + 1 + chosen
    return Shape(
        linear=sum(size for name, size in matrices.items() if _LANGUAGE.search(name) and "lora_" not in name),
        adapters=sum(size for name, size in matrices.items() if "lora_" in name),
        layers=text.num_hidden_layers,
        width=width,
        output=text.vocab_size * text.hidden_size,
        projector=(first, second),
        vision_encoder=sum(
            size for name, size in matrices.items() if (at := _VISION_ENCODER.search(name)) and int(at[1]) < used
        ),
        vision_encoder_layers=used,
        vision_encoder_width=vision.hidden_size,
        image_tokens=(vision.image_size // vision.patch_size) ** 2,
        cache_width=2 * width * (getattr(text, "num_key_value_heads", None) or heads) // heads,
    )


def with_adapters(shape: Shape, model: Any, rank: int) -> Shape:
    """The shape with LoRA of this rank on every linear layer of the language model."""
    layers = [value for name, value in model.named_parameters() if value.ndim == 2 and _LANGUAGE.search(name)]
    return replace(shape, adapters=rank * sum(sum(value.shape) for value in layers))


def open_sizes(name: str | None, encoder: str | None = None, language_model: str | None = None) -> Any:
    """A LLaVA without weights, from the config.json of hf:FOLDER, or of a vision encoder and a language model.

    Raises:
        ConfigError: For another family, whose image tokens depend on the image.
    """
    import torch
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    from cxrlab.models.hf.adapters import lineage
    from cxrlab.models.hf.checkpoint import read_config
    from cxrlab.models.load_settings import LoadSettings
    from cxrlab.models.model_parts import folder_of

    def config_of(one: str) -> Any:
        named = one if ":" in one else f"hf:{Path(one)}"
        return read_config(lineage(folder_of(named), LoadSettings())[-1], LoadSettings())

    if name is not None:
        config = config_of(name)
    else:
        vision, text = config_of(str(encoder)), config_of(str(language_model))
        vision = getattr(vision, "vision_config", vision)
        config = LlavaConfig(vision_config=vision, text_config=text.get_text_config())
    if config.model_type != "llava":
        raise ConfigError(
            f"--hardware estimates a LLaVA, and {name} is a '{config.model_type}', whose image tokens depend on the image; "
            "plan it on that hardware, without --hardware."
        )
    with torch.device("meta"):
        return LlavaForConditionalGeneration(config)
