"""8-bit images to what a vision encoder takes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def to_pixels(images: Tensor, processor: Any) -> Tensor:
    """Scale and normalise as the image processor does: uint8 [B, H, W] or [B, H, W, 3] → float32 [B, 3, H, W].

    A grey image gets three equal channels before each is normalised by its own mean and deviation.
    """
    three = images.unsqueeze(1).expand(-1, 3, -1, -1) if images.ndim == 3 else images.permute(0, 3, 1, 2)
    pixels = three.to(torch.float32)
    if getattr(processor, "do_rescale", True):
        pixels = pixels * float(processor.rescale_factor)
    if getattr(processor, "do_normalize", True):
        mean = torch.tensor(processor.image_mean, device=images.device).view(1, 3, 1, 1)
        deviation = torch.tensor(processor.image_std, device=images.device).view(1, 3, 1, 1)
        pixels = (pixels - mean) / deviation
    return pixels
