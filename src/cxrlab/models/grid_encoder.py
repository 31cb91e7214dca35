"""Convolutional networks as vision encoders: a feature grid becomes patch tokens behind a class token, as in a ViT.

With that convention a network trains in all three stages, in retrieval and under attacks without code of its own. Any
transformers vision model whose last hidden state is one grid can be the backbone (ResNet, ConvNeXt, Swin, …).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.efficientnet_lite import STRIDE, VARIANTS, pretrained

MODEL_TYPE = "grid-encoder"


class GridEncoderConfig(PreTrainedConfig):
    """The backbone's own config, and the sizes that a vision encoder of patches has.

    Args:
        backbone: Config of the backbone, with its `model_type`.
        image_size: Side of the image in pixels, a multiple of `patch_size`.
        patch_size: Pixels per cell of the grid.
        hidden_size: Channels of the grid.
        num_hidden_layers: For estimates of memory alone, like `num_attention_heads`.
    """

    model_type = MODEL_TYPE
    backbone: dict[str, Any] | None = None
    image_size: int = 224
    patch_size: int = STRIDE
    hidden_size: int = 1280
    num_hidden_layers: int = 2
    num_attention_heads: int = 1


class GridEncoder(PreTrainedModel):
    """A backbone whose grid [B, D, h, w] is given as tokens [B, 1 + h * w, D]; the class token is their mean."""

    config_class = GridEncoderConfig
    base_model_prefix = "grid_encoder"
    main_input_name = "pixel_values"
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True  # it has no attention of its own

    def __init__(self, config: Any, backbone: Any = None) -> None:
        super().__init__(config)
        if backbone is None:
            backbone = AutoModel.from_config(AutoConfig.for_model(**config.backbone))
        self.backbone = backbone
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, pixel_values: Tensor, **_: Any) -> BaseModelOutputWithPooling:
        """Tokens, and their mean. A projector that takes the layer before the last gets the same tokens."""
        tokens = self.tokens(pixel_values)
        mean: Any = tokens.mean(1)
        every: Any = torch.cat([mean[:, None], tokens], 1)
        return BaseModelOutputWithPooling(last_hidden_state=every, pooler_output=mean, hidden_states=(every, every))

    def tokens(self, pixels: Tensor) -> Tensor:
        """The grid row by row, [B, h * w, D]."""
        # Channels last: depthwise convolutions are then half as fast again on a CPU.
        grid: Tensor = self.backbone(
            pixel_values=pixels.contiguous(memory_format=torch.channels_last)
        ).last_hidden_state
        return grid.flatten(2).transpose(1, 2) if grid.ndim == 4 else grid

    def train(self, mode: bool = True) -> GridEncoder:
        """Batch norms whose weights are frozen keep their statistics in training too."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.training = mode and module.weight is not None and module.weight.requires_grad
        return self


AutoConfig.register(MODEL_TYPE, GridEncoderConfig, exist_ok=True)
AutoModel.register(GridEncoderConfig, GridEncoder, exist_ok=True)


def around(backbone: Any, image: int) -> GridEncoder:
    """The encoder around a backbone for images of this side; the size of its grid is measured on a blank image.

    Raises:
        DataError: When the last hidden state is no square grid of cells of equal size.
    """
    probe = GridEncoder(GridEncoderConfig(backbone=backbone.config.to_dict(), image_size=image), backbone)
    probe.train(False)
    with torch.no_grad():
        tokens = probe.tokens(torch.zeros(1, 3, image, image, dtype=next(backbone.parameters()).dtype))
    side = round(tokens.shape[1] ** 0.5)
    if tokens.ndim != 3 or side * side != tokens.shape[1] or image % side:
        raise DataError(
            f"a model of the type '{backbone.config.model_type}' gives {tuple(tokens.shape[1:-1])} cells for an image of "
            f"{image} x {image} pixels, which is no square grid; give another image_size, such as 224 or 256."
        )
    config = probe.config
    config.patch_size, config.hidden_size = image // side, tokens.shape[2]
    return probe


def packaged(name: str) -> GridEncoder:
    """An encoder of the packages of weights, such as efficientnet-lite2."""
    backbone = pretrained(name)
    return around(backbone, VARIANTS[name].image)


def resize(encoder: GridEncoder, image: int) -> None:
    """Set the side of the images that the encoder takes."""
    patch = int(encoder.config.patch_size)
    if image < patch or image % patch:
        raise ConfigError(f"image_size={image} is not usable; this encoder needs a multiple of {patch} pixels.")
    encoder.config.image_size = image
