"""Useful FLOP per sample of stage 3, for the FLOP utilisation of a GPU.

A multiplication with an addition counts as two operations. Only operations that the training needs are counted:
padding, logits of positions without a report token and recomputed activations are not. For one sample of L tokens, I
of them image tokens and R report tokens, with frozen weights W of the language model's linear layers, adapters A,
projector layers P1 and P2 (numbers of weights), vocabulary V, width d, N layers:

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
from dataclasses import dataclass
from typing import Any

_LANGUAGE = re.compile(r"language_model\.(?:model\.)?layers\.")
_VISION_ENCODER = re.compile(r"vision_tower\.(?:.*\.)?layers?\.(\d+)\.")
H200_BFLOAT16 = 989e12  # operations per second, dense, from the data sheet


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
    """The sizes of a LLaVA with adapters on its language model.

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
    first, second = (size for name, size in matrices.items() if "multi_modal_projector" in name)
    chosen = model.config.vision_feature_layer
    used = 0 if features_kept else chosen if chosen >= 0 else vision.num_hidden_layers + 1 + chosen
    return Shape(
        linear=sum(size for name, size in matrices.items() if _LANGUAGE.search(name) and "lora_" not in name),
        adapters=sum(size for name, size in matrices.items() if "lora_" in name),
        layers=text.num_hidden_layers,
        width=heads * (getattr(text, "head_dim", None) or text.hidden_size // heads),
        output=text.vocab_size * text.hidden_size,
        projector=(first, second),
        vision_encoder=sum(
            size for name, size in matrices.items() if (at := _VISION_ENCODER.search(name)) and int(at[1]) < used
        ),
        vision_encoder_layers=used,
        vision_encoder_width=vision.hidden_size,
        image_tokens=(vision.image_size // vision.patch_size) ** 2,
    )
