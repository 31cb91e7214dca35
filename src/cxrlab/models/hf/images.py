"""Images as a caller holds them, arrays or tensors in [0, 1], into one list of float32 tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import DataError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_SLACK = 1e-4  # a resampled or perturbed image may leave [0, 1] by rounding


def as_images(images: Any, device: torch.device) -> list[Tensor]:
    """One tensor an image, [1, H, W] or [3, H, W] float32 in [0, 1] on the device; gradients flow through.

    Args:
        images: Tensor [B, H, W] or [B, 3, H, W], array [B, H, W] or [B, H, W, 3], or a sequence of arrays [H, W] or
            [H, W, 3] and tensors [H, W] or [3, H, W].
        device: Where they go.

    Raises:
        DataError: When there is no image, or one that is not a picture in [0, 1].
    """
    import numpy as np
    import torch

    stacked = isinstance(images, (torch.Tensor, np.ndarray))
    if isinstance(images, str) or not (stacked or isinstance(images, Sequence)):
        raise DataError(f"images must be a sequence of arrays or a tensor [B, H, W], not {_named(images)}.")
    if stacked and images.ndim not in (3, 4):
        raise DataError(f"images in one piece must be [B, H, W], with colours [B, 3, H, W], not {list(images.shape)}.")
    one_piece = isinstance(images, torch.Tensor) and images.is_floating_point()
    if one_piece:
        images = images.to(device=device, dtype=torch.float32)
    radiographs = [_image(image, number, device) for number, image in enumerate(images)]
    if radiographs:
        _check_range([images.flatten(1)] if one_piece else [radiograph.reshape(1, -1) for radiograph in radiographs])
    return radiographs


def _image(image: Any, number: int, device: torch.device) -> Tensor:
    import numpy as np
    import torch

    if isinstance(image, torch.Tensor):
        radiograph = image
    elif isinstance(image, np.ndarray):
        if image.dtype.kind not in "fiubc":
            raise DataError(f"image {number} holds {image.dtype}, not numbers; scale it to float32 in [0, 1] first.")
        # A copy: an array may be read-only, turned around, or of another byte order.
        radiograph = torch.from_numpy(np.array(image, np.float32 if image.dtype.kind == "f" else None))
        radiograph = radiograph.permute(2, 0, 1) if radiograph.ndim == 3 else radiograph
    else:
        raise DataError(
            f"image {number} is {_named(image)}, not an array or tensor; no model is asked without an image."
        )
    if not radiograph.is_floating_point():
        raise DataError(f"image {number} holds {radiograph.dtype}; scale it to float32 in [0, 1] first.")
    radiograph = radiograph[None] if radiograph.ndim == 2 else radiograph
    if radiograph.ndim != 3 or radiograph.shape[0] not in (1, 3) or 0 in radiograph.shape:
        raise DataError(
            f"image {number} has the shape {list(image.shape)}; an array is [H, W] or [H, W, 3], "
            "a tensor [H, W] or [3, H, W]."
        )
    return radiograph.to(device=device, dtype=torch.float32)


def _check_range(rows: list[Tensor]) -> None:
    """One look at all images, so that a GPU is asked once.

    Args:
        rows: [images, pixels], all of them in one piece or in several.
    """
    import torch

    with torch.no_grad():
        ends = torch.cat([torch.stack([part.amin(dim=1), part.amax(dim=1)], dim=1) for part in rows]).cpu()
    for number, (low, high) in enumerate(ends.tolist()):
        if not (low >= -_SLACK and high <= 1 + _SLACK):  # not a number fails both
            raise DataError(f"image {number} holds values from {low:g} to {high:g}; pixels must be in [0, 1].")


def _named(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
