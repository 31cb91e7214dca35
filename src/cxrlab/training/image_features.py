"""Features of a frozen vision encoder, computed once per image and cached by the encoder's weights and the images."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cxrlab.core.terminal import track
from cxrlab.training.image_cache import ArrayStore, Images, fits
from cxrlab.training.run_folder import weights_key

# Patches per forward pass of the encoder on a GPU and on a CPU.
_PATCHES, _PATCHES_CPU = 1 << 16, 1 << 12


@dataclass(frozen=True)
class Features:
    """Features of images by number, [N, P, D] on disk; bfloat16 is stored as uint16."""

    store: NDArray[Any]
    dtype: torch.dtype

    def __getitem__(self, numbers: NDArray[np.int64]) -> Tensor:
        """[B, P, D] of the images of these numbers."""
        return torch.from_numpy(np.ascontiguousarray(self.store[numbers])).view(self.dtype)


def vision_encoder_features(model: Any, pixels: Tensor) -> Tensor:
    """The features that a LLaVA's projector takes, [B, 3, H, W] → [B, P, D]: layer and class token as in its config."""
    layers, config = model.model.vision_tower(pixels, output_hidden_states=True).hidden_states, model.config
    chosen = config.vision_feature_layer
    wanted = [layers[one] for one in ([chosen] if isinstance(chosen, int) else chosen)]
    if config.vision_feature_select_strategy == "default":
        wanted = [layer[:, 1:] for layer in wanted]
    return torch.cat(wanted, dim=-1)


def open_features(
    model: Any, images: Images, folder: Path, *, cache: str, most_gb: float, dtype: torch.dtype, device: torch.device
) -> Features | None:
    """Features of all images, computed where they are not stored yet; None where they are not cached.

    Args:
        model: A LLaVA on `device`.
        images: The images.
        folder: Folder of caches; runs may share it.
        cache: auto (up to `most_gb`), on or off.
        most_gb: Largest cache that auto makes, in 10^9 bytes.
        dtype: float32 or bfloat16.
        device: Where the vision encoder runs.
    """
    if not len(images) or cache == "off":
        return None
    example = _run(model, images, range(1), dtype, device)
    key = hashlib.blake2b(f"{images.key} {vision_encoder_key(model)} {dtype}".encode(), digest_size=12).hexdigest()
    kind = np.uint16 if dtype == torch.bfloat16 else np.float32
    store = ArrayStore(folder / f"features-{key}", (len(images), *example.shape[1:]), kind)
    if not fits(store, cache, most_gb):
        return None
    count, batch = len(images), batch_of(model.config.vision_config, device)
    store.fill(
        lambda start: (
            _run(model, images, numbers, dtype, device)
            for numbers in track(
                [range(first, min(first + batch, count)) for first in range(start, count, batch)],
                "reading features of images",
                count - start,
                size=len,
            )
        )
    )
    return Features(store.read(), dtype)


def batch_of(vision: Any, device: torch.device) -> int:
    """Images per forward pass of a vision encoder, by its config and device."""
    most = _PATCHES_CPU if device.type == "cpu" else _PATCHES
    return max(1, most // ((int(vision.image_size) // int(vision.patch_size)) ** 2 + 1))


def vision_encoder_key(model: Any) -> str:
    """A hash of the vision encoder's weights and of which of its features are used."""
    taken = f"{model.config.vision_feature_layer} {model.config.vision_feature_select_strategy}"
    return f"{taken} {weights_key(model.model.vision_tower)}"


def _run(model: Any, images: Images, numbers: range, dtype: torch.dtype, device: torch.device) -> NDArray[np.generic]:
    vision_encoder = model.model.vision_tower
    vision_encoder.eval()
    with torch.no_grad():
        pixels = to_pixels(torch.from_numpy(images[numbers]).to(device), images.processor)
        pixels = pixels.to(next(vision_encoder.parameters()).dtype)
        found = vision_encoder_features(model, pixels).to(dtype).cpu()
    return (found.view(torch.uint16) if dtype == torch.bfloat16 else found).numpy()


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
