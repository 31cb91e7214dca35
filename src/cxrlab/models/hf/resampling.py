"""Resizing as Pillow does it, in torch and differentiable.

A resampling filter is linear and acts on columns and rows one after the other, so that a resize is two matrix
products with weights that depend on the two sizes alone. Pillow (and torchvision on 8-bit tensors) keeps 8 bits
between the two: what a filter with negative lobes makes brighter than white or darker than black is cut after each
step, not once at the end, so that their order matters. The same is done here; rounding to whole grey levels is not,
because a rounded number has no slope.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    Size = tuple[int, int]
    Floats = NDArray[np.float64]

# A flat black or white region leaves the filter a rounding error outside [0, 1]; without this slack the cut
# would take away its gradient. 0.03 of a grey level.
SLACK = 1e-4
_LARGE, _BANDS = 1024, 8  # pixels of a side above which it is resized in so many bands


def _box(x: Floats) -> Floats:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _triangle(x: Floats) -> Floats:
    return np.clip(1.0 - np.abs(x), 0.0, None)


def _hamming(x: Floats) -> Floats:
    return np.where(np.abs(x) < 1.0, np.sinc(x) * (0.54 + 0.46 * np.cos(np.pi * x)), 0.0)


def _cubic(x: Floats) -> Floats:
    a, x = -0.5, np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _lanczos(x: Floats) -> Floats:
    return np.where((x >= -3.0) & (x < 3.0), np.sinc(x) * np.sinc(x / 3.0), 0.0)


# Pillow's number of a filter → (curve, half its width in pixels).
NEAREST, LANCZOS, BILINEAR, BICUBIC, BOX, HAMMING = range(6)
_CURVES: dict[int, tuple[Callable[[Floats], Floats], float]] = {
    LANCZOS: (_lanczos, 3.0),
    BILINEAR: (_triangle, 1.0),
    BICUBIC: (_cubic, 2.0),
    BOX: (_box, 0.5),
    HAMMING: (_hamming, 1.0),
}
# Filters with negative lobes, and how much a step can enlarge an error: the largest sum of weights without signs.
_OVERSHOOTING = {LANCZOS: 1.6, BICUBIC: 1.3}


def weights(before: int, after: int, resample: int) -> Floats:
    """Weights [after, before] float64 that resize a row of pixels; each row sums to 1.

    When the picture shrinks the filter widens with it (antialiasing).
    """
    scale = before / after
    pixels = np.arange(before)
    if resample == NEAREST:
        steps = np.cumsum([scale / 2, *[scale] * (after - 1)])  # added up as Pillow does, whose rounding decides ties
        nearest: Floats = (pixels[None, :] == steps.astype(np.int64)[:, None]).astype(np.float64)
        return nearest
    if resample not in _CURVES:
        raise ConfigError(f"the image processor asks for resampling filter {resample}; known are 0 to 5, as in Pillow.")
    curve, half = _CURVES[resample]
    centres = (np.arange(after) + 0.5) * scale
    widening = max(scale, 1.0)
    first = np.clip(np.trunc(centres - half * widening + 0.5), 0, None)
    last = np.clip(np.trunc(centres + half * widening + 0.5), None, before)
    raw = curve((pixels[None, :] + 0.5 - centres[:, None]) / widening)
    raw = np.where((pixels[None, :] >= first[:, None]) & (pixels[None, :] < last[:, None]), raw, 0.0)
    normalised: Floats = raw / raw.sum(axis=1, keepdims=True)
    return normalised


@dataclass(frozen=True, eq=False)
class _Band:
    """Weights [outputs, last - first] of neighbouring outputs: they look at the pixels from `first` to `last` alone."""

    first: int
    last: int
    weights: Tensor


@lru_cache(maxsize=64)
def _bands(before: int, after: int, resample: int, dtype: Any, device: Any) -> tuple[_Band, ...]:
    """A resize of one axis: one product, or for a large image several over a part of it each; most weights are 0."""
    import torch

    every, bands = weights(before, after, resample), []
    for rows in np.array_split(np.arange(after), _BANDS if before > _LARGE and after >= _BANDS else 1):
        looked_at = np.flatnonzero(every[rows].any(axis=0))
        first, last = int(looked_at[0]), int(looked_at[-1]) + 1
        with torch.inference_mode(False):  # made in inference mode they could never serve a backward pass
            part = torch.from_numpy(every[rows, first:last].copy()).to(dtype).to(device)
        bands.append(_Band(first, last, part))
    return tuple(bands)


def rounding(resample: int, times: int) -> float:
    """How many grey levels Pillow's rounding can be away from no rounding, after so many resizes in a row.

    Half a level after the first step, enlarged by the second, and half a level after that; the next resize enlarges
    what it is given twice. A twentieth more for rounding in float32 and for the slack of the cut.
    """
    enlarged = _OVERSHOOTING.get(resample, 1.0)
    return 1.05 * (0.5 * enlarged + 0.5) * sum(enlarged ** (2 * step) for step in range(times))


def resize(image: Tensor, size: Size, resample: int, rows_first: bool = False) -> Tensor:
    """A picture [..., H, W] in [0, 1] at another size (height, width).

    Args:
        image: Floating numbers; the result has the same type and device.
        size: Height and width of the result.
        resample: Pillow's number of the filter: 0 nearest, 1 Lanczos, 2 bilinear, 3 bicubic, 4 box, 5 Hamming.
        rows_first: Take rows before columns where many rows are lost, as `pillow_takes_rows_first` says; otherwise
            columns always come first.
    """
    import torch

    height, width = size
    lost_rows, lost_columns = image.shape[-2] - height, image.shape[-1] - width
    # Under autocast a product would be taken in bfloat16, which has 8 bits for 256 grey levels.
    with torch.autocast(image.device.type, enabled=False):
        if rows_first and lost_rows > max(0, 2 * lost_columns):
            return _across(_down(image, height, resample), width, resample)
        return _down(_across(image, width, resample), height, resample)


@cache
def pillow_takes_rows_first() -> bool:
    """Whether the Pillow at hand takes rows first where it loses more than twice as many rows as columns.

    Version 13 does (measured over thousands of pairs of sizes); earlier ones take columns first, always.
    """
    import torch
    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 256, (40, 10), dtype=np.uint8)
    theirs = torch.from_numpy(np.array(Image.fromarray(noise).resize((30, 30), resample=BICUBIC))) / 255.0
    ours = [resize(torch.from_numpy(noise) / 255.0, (30, 30), BICUBIC, rows_first=order) for order in (False, True)]
    columns, rows = (float((picture - theirs).abs().max()) for picture in ours)
    return rows < columns


def _across(image: Tensor, width: int, resample: int) -> Tensor:
    import torch

    if image.shape[-1] == width:
        return image
    bands = _bands(image.shape[-1], width, resample, image.dtype, image.device)
    return _cut(torch.cat([image[..., b.first : b.last] @ b.weights.T for b in bands], dim=-1), resample)


def _down(image: Tensor, height: int, resample: int) -> Tensor:
    import torch

    if image.shape[-2] == height:
        return image
    bands = _bands(image.shape[-2], height, resample, image.dtype, image.device)
    return _cut(torch.cat([b.weights @ image[..., b.first : b.last, :] for b in bands], dim=-2), resample)


def _cut(image: Tensor, resample: int) -> Tensor:
    return image.clamp(-SLACK, 1.0 + SLACK) if resample in _OVERSHOOTING else image
