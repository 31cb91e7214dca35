"""The vision encoder of open_clip's timm models, as `Dinov2Model`.

A timm ViT and DINOv2 are one architecture: class token in front of the patches, position embeddings for both, blocks
that normalise before attention and before the MLP. DINOv2 scales what a block adds by a learnt number a
channel; a ViT without that is a DINOv2 whose numbers are all one, which changes no bit of the result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.models.convert.tensors import check_names, filled, renamed, shape

_WHERE = "the vision encoder (visual.trunk)"
# Members of timm's family whose norm, activation and head width are those of DINOv2; others (clip, siglip, huge, reg4
# …) differ in one of them, which no tensor tells.
_NAMES = re.compile(r"vit_(tiny|small|base|large)_patch\d+(_\d+)?(_in21k|_dino|_dinov2)?(\.\w+)?")
_HEAD = 64  # numbers an attention head, in all of them
_BLOCK = {
    "norm1": ("norm1",),
    "attn.qkv": ("attention.attention.query", "attention.attention.key", "attention.attention.value"),
    "attn.proj": ("attention.output.dense",),
    "norm2": ("norm2",),
    "mlp.fc1": ("mlp.fc1",),
    "mlp.fc2": ("mlp.fc2",),
}
_AROUND = {
    "cls_token": ("embeddings.cls_token",),
    "pos_embed": ("embeddings.position_embeddings",),
    "patch_embed.proj.weight": ("embeddings.patch_embeddings.projection.weight",),
    "patch_embed.proj.bias": ("embeddings.patch_embeddings.projection.bias",),
    "norm.weight": ("layernorm.weight",),
    "norm.bias": ("layernorm.bias",),
}
_SCALES = {"ls1.gamma": "layer_scale1.lambda1", "ls2.gamma": "layer_scale2.lambda1"}


def convert_vision_encoder(trunk: Mapping[str, Any], name: str, image: int, dtype: Any) -> Any:
    """A `Dinov2Model` with the tensors of a timm ViT.

    Args:
        trunk: Name → tensor, as timm names them.
        name: Of the model in timm, such as `vit_base_patch14_dinov2`.
        image: Side of the image in pixels, as the published config says.
        dtype: Number format of the vision encoder.
    """
    from transformers import Dinov2Model

    if not _NAMES.fullmatch(name):
        raise DataError(
            f"{_WHERE} is timm's '{name}', which is not known to compute what transformers' DINOv2 does; encoders "
            "named vit_{tiny,small,base,large}_patchN, with or without _dinov2, can be converted."
        )
    if {"reg_token", "norm_pre.weight", "fc_norm.weight"} & set(trunk):
        raise DataError(
            f"{_WHERE} has register tokens or further norms, which the converted vision encoder would not have."
        )
    layers = 1 + max((int(found[1]) for key in trunk if (found := re.match(r"blocks\.(\d+)\.", key))), default=-1)
    scaled = "blocks.0.ls1.gamma" in trunk
    tensors = renamed(trunk, _names(layers, scaled), _WHERE)
    config = _config(trunk, layers, image)
    if not scaled:
        tensors |= _unit_scales(layers, config.hidden_size)
    return filled(Dinov2Model, config, tensors, _WHERE, dtype)


def _names(layers: int, scaled: bool) -> dict[str, tuple[str, ...]]:
    """Name in timm → names in published DINOv2 checkpoints."""
    names: dict[str, tuple[str, ...]] = dict(_AROUND)
    for layer in range(layers):
        old, new = f"blocks.{layer}", f"encoder.layer.{layer}"
        for module, targets in _BLOCK.items():
            for kind in ("weight", "bias"):
                names[f"{old}.{module}.{kind}"] = tuple(f"{new}.{target}.{kind}" for target in targets)
        if scaled:
            names |= {f"{old}.{scale}": (f"{new}.{target}",) for scale, target in _SCALES.items()}
    return names


def _unit_scales(layers: int, width: int) -> dict[str, Any]:
    import torch

    return {f"encoder.layer.{k}.{target}": torch.ones(width) for k in range(layers) for target in _SCALES.values()}


def _config(trunk: Mapping[str, Any], layers: int, image: int) -> Any:
    """Sizes read off the tensors, and checked against each other and against the published image size."""
    from transformers import Dinov2Config

    if not layers:
        check_names(["blocks.0"], [], _WHERE)
    kernel, positions, hidden = trunk["patch_embed.proj.weight"], trunk["pos_embed"], trunk["blocks.0.mlp.fc1.weight"]
    if kernel.dim() != 4 or kernel.shape[2] != kernel.shape[3] or positions.dim() != 3 or hidden.dim() != 2:
        raise DataError(f"{_WHERE}: patch_embed.proj is {shape(kernel)} and pos_embed {shape(positions)}; odd shapes.")
    width, channels, patch = int(kernel.shape[0]), int(kernel.shape[1]), int(kernel.shape[3])
    side = math.isqrt(positions.shape[1] - 1)
    if side * side + 1 != positions.shape[1]:
        raise DataError(f"{_WHERE}: {positions.shape[1]} position embeddings are not a square and a class token.")
    if side * patch != image:
        raise DataError(
            f"{_WHERE} has positions for images of {side * patch} px, but its config says image_size {image}; positions "
            "are not resampled. Correct image_size in the config if the weights are right."
        )
    if width % _HEAD or hidden.shape[0] % width:
        raise DataError(f"{_WHERE}: width {width} and MLP width {hidden.shape[0]} are not those of a timm ViT.")
    return Dinov2Config(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // _HEAD,
        mlp_ratio=hidden.shape[0] // width,
        image_size=image,
        patch_size=patch,
        num_channels=channels,
        use_mask_token=False,
    )
