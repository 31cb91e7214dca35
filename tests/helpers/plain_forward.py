"""What published models compute, written out in plain torch from their descriptions: the other side of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import conv2d, gelu, layer_norm, linear


def vit_states(t: Mapping[str, Tensor], pixels: Tensor, head: int = 64) -> list[Tensor]:
    """A timm ViT: [B, 3, H, W] -> what goes into the first block and what comes out of each, [B, 1 + patches, D]."""
    patches = conv2d(pixels, t["patch_embed.proj.weight"], t["patch_embed.proj.bias"], stride=14)
    x = patches.flatten(2).transpose(1, 2)
    x = torch.cat([t["cls_token"].expand(len(x), -1, -1), x], dim=1) + t["pos_embed"]
    states = [x]
    for k in range(sum(name.endswith("norm1.weight") for name in t)):
        at = f"blocks.{k}."
        y = vit_attention(t, at + "attn.", norm(t, at + "norm1", x, 1e-6), head)
        x = x + y * t.get(at + "ls1.gamma", torch.tensor(1.0))
        y = dense(t, at + "mlp.fc2", gelu(dense(t, at + "mlp.fc1", norm(t, at + "norm2", x, 1e-6))))
        x = x + y * t.get(at + "ls2.gamma", torch.tensor(1.0))
        states.append(x)
    return states


def vit_class_token(t: Mapping[str, Tensor], pixels: Tensor) -> Tensor:
    """What open_clip projects: the class token after the last norm, [B, D]."""
    return norm(t, "norm", vit_states(t, pixels)[-1], 1e-6)[:, 0]


def vit_attention(t: Mapping[str, Tensor], at: str, x: Tensor, head: int) -> Tensor:
    """timm keeps query, key and value in one matrix, in this order, heads side by side in each."""
    query, key, value = dense(t, at + "qkv", x).chunk(3, dim=-1)
    return dense(t, at + "proj", attend(query, key, value, head, None))


def bert_states(t: Mapping[str, Tensor], ids: Tensor, padding: int = 0, head: int = 64) -> list[Tensor]:
    """A BERT: token numbers [B, T] -> embeddings and what comes out of each layer, [B, T, D]."""
    x = t["embeddings.word_embeddings.weight"][ids] + t["embeddings.token_type_embeddings.weight"][0]
    x = norm(t, "embeddings.LayerNorm", x + t["embeddings.position_embeddings.weight"][: ids.shape[1]], 1e-12)
    states = [x]
    for k in range(sum(name.endswith("intermediate.dense.weight") for name in t)):
        at = f"encoder.layer.{k}."
        query, key, value = (dense(t, f"{at}attention.self.{part}", x) for part in ("query", "key", "value"))
        seen = attend(query, key, value, head, ids != padding)
        x = norm(t, at + "attention.output.LayerNorm", x + dense(t, at + "attention.output.dense", seen), 1e-12)
        y = dense(t, at + "output.dense", gelu(dense(t, at + "intermediate.dense", x)))
        x = norm(t, at + "output.LayerNorm", x + y, 1e-12)
        states.append(x)
    return states


def attend(query: Tensor, key: Tensor, value: Tensor, head: int, real: Tensor | None) -> Tensor:
    """Attention head by head; tokens that are not `real` [B, T] are not looked at."""
    out = []
    for q, k, v in zip(query.split(head, -1), key.split(head, -1), value.split(head, -1), strict=True):
        scores = q @ k.transpose(1, 2) / math.sqrt(head)
        if real is not None:
            scores = scores.masked_fill(~real[:, None, :], -torch.inf)
        out.append(scores.softmax(-1) @ v)
    return torch.cat(out, dim=-1)


def dense(t: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return linear(x, t[f"{name}.weight"], t[f"{name}.bias"])


def norm(t: Mapping[str, Tensor], name: str, x: Tensor, eps: float) -> Tensor:
    return layer_norm(x, x.shape[-1:], t[f"{name}.weight"], t[f"{name}.bias"], eps)
