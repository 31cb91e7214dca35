"""The original IDEFICS: images enter by cross-attention; one token marks the place of an image and is not replaced."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.models.hf.families import Family
from cxrlab.models.hf.pixels import Plain

if TYPE_CHECKING:
    from torch import Tensor


class ImagesOfSamples(Plain):
    """`pixel_values` [N, 1, 3, H, W], one image per sample; the image processor returns [N, 3, H, W] without a name."""

    def arrange(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """As for one image size, with the number of images per sample: one."""
        return {"pixel_values": super().arrange(images)["pixel_values"][:, None]}

    @staticmethod
    def named(outputs: Any) -> dict[str, Tensor]:
        """The image processor's outputs by name."""
        return {"pixel_values": outputs[:, None]}


class Idefics(Family):
    """Gated layers of cross-attention lie between the layers of the language model, all in one module."""

    model_types = ("idefics",)
    pixel_paths = MappingProxyType({"IdeficsImageProcessor": ImagesOfSamples})
    no_grid_reason = "reads its images by cross-attention, not as image tokens"
    language_model, vision_encoder, projector = "model", "model.vision_model", "model.perceiver_resampler"
    is_causal = True
    processors = ("IdeficsProcessor",)
    image_text = "<fake_token_around_image><image><fake_token_around_image>"
    image_suffix = ""
    several_images = False  # a token sees the last image before it alone: of several before a text, one

    def token_inputs(self, ids: Tensor, is_image: Tensor, is_text: Tensor) -> dict[str, Tensor]:
        """`image_attention_mask` [B, L, images]: from its own token on, an image is seen until the next one begins."""
        import torch

        count = is_image.long().cumsum(dim=1)
        images = torch.arange(1, int(count.max()) + 1, device=ids.device)
        seen = (count[..., None] == images) & is_text[..., None].bool()
        return {"image_attention_mask": seen.long()}
