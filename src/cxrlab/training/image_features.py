"""Features of a frozen vision encoder, computed once per image and cached by the encoder's weights and the images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cxrlab.core.json_values import dumps
from cxrlab.core.terminal import track
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.frozen_encoder import encoder_features
from cxrlab.models.hf.inputs import Encoder, Size, as_images
from cxrlab.training.image_cache import ArrayStore, ImageFile, Images, fits, images_key, read_image
from cxrlab.training.run_folder import weights_key

_CPU = torch.device("cpu")
# Patches per forward pass of the encoder on a GPU and on a CPU.
_PATCHES, _PATCHES_CPU = 1 << 16, 1 << 12


@dataclass(frozen=True)
class Features:
    """Features of images by number on disk; bfloat16 is stored as uint16.

    Args:
        store: [N, P, D] or, with `starts`, [R, ...]: the tiles or patches of all images, image after image.
        starts: First row of each image, and the number of rows, [N + 1].
    """

    store: NDArray[Any]
    dtype: torch.dtype
    starts: NDArray[np.int64] | None = None

    def __getitem__(self, numbers: NDArray[np.int64]) -> Tensor:
        """Features of the images of these numbers, [B, P, D] or their rows one after the other."""
        rows = numbers
        if self.starts is not None:
            rows = np.concatenate([np.arange(*self.starts[[number, number + 1]]) for number in numbers])
        return torch.from_numpy(np.ascontiguousarray(self.store[rows])).view(self.dtype)


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


def open_family_features(
    model: Any,
    encoder: Encoder,
    files: Sequence[ImageFile],
    sizes: Sequence[Size],
    folder: Path,
    *,
    cache: str,
    most_gb: float,
    dtype: torch.dtype,
    device: torch.device,
) -> Features | None:
    """As `open_features`, for a family with a `feature_source`.

    None too where images of different size have features of different shape, which batches would pad.

    Args:
        model: Its vision encoder is on `device`.
        encoder: Prepares images, on the CPU.
        files: The images.
        sizes: Height and width of each.
    """
    if not files or cache == "off":
        return None
    precision = next(model.get_submodule(find_family(model.config.model_type).vision_encoder).parameters()).dtype

    def run(numbers: Sequence[int]) -> NDArray[np.generic]:
        pixels = encoder.path.inputs([[image] for image in as_images([read_image(files[n]) for n in numbers], _CPU)])
        given = {name: one.to(device, precision if one.is_floating_point() else None) for name, one in pixels.items()}
        with torch.autocast(device.type, dtype, enabled=dtype == torch.bfloat16):
            found = encoder_features(model, given).to(dtype).cpu()
        return (found.view(torch.uint16) if dtype == torch.bfloat16 else found).numpy()

    shapes = {size: run([number]).shape for size, number in {size: n for n, size in enumerate(sizes)}.items()}
    if len({shape[1:] for shape in shapes.values()}) > 1:
        return None
    starts = np.concatenate([[0], np.cumsum([shapes[size][0] for size in sizes])]).astype(np.int64)
    settings = dumps({name: str(value) for name, value in sorted(encoder.processor.image_processor.to_dict().items())})
    text = f"{images_key(files, encoder.processor.image_processor)} {settings} {vision_encoder_key(model)} {dtype}"
    key = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    shape = (int(starts[-1]), *next(iter(shapes.values()))[1:])
    store = ArrayStore(folder / f"features-{key}", shape, np.uint16 if dtype == torch.bfloat16 else np.float32)
    if not fits(store, cache, most_gb):
        return None
    most = _PATCHES_CPU if device.type == "cpu" else _PATCHES

    def blocks(done: int) -> Iterator[NDArray[np.generic]]:
        first = int(np.searchsorted(starts, done))
        batches: list[list[int]] = []
        for number in range(first, len(files)):  # consecutive images of one size, so that nothing is padded
            count = max(1, most // int(np.prod(shapes[sizes[number]][:-1])))
            if not batches or sizes[batches[-1][0]] != sizes[number] or len(batches[-1]) == count:
                batches.append([])
            batches[-1].append(number)
        for batch in track(batches, "reading features of images", len(files) - first, size=len):
            yield run(batch)

    store.fill(blocks)
    return Features(store.read(), dtype, starts)


def batch_of(vision: Any, device: torch.device) -> int:
    """Images per forward pass of a vision encoder, by its config and device."""
    most = _PATCHES_CPU if device.type == "cpu" else _PATCHES
    return max(1, most // ((int(vision.image_size) // int(vision.patch_size)) ** 2 + 1))


def vision_encoder_key(model: Any) -> str:
    """A hash of the vision encoder's weights and of which of its features are used."""
    family = find_family(model.config.model_type)
    if family.feature_source is not None:
        return f"{family.used_layers(model.config)} {weights_key(model.get_submodule(family.vision_encoder))}"
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
