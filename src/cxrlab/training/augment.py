"""Images varied a little, whole batches at a time on whatever device they are on.

Every random number is a hash of the image's own seed and of what it is for. An image therefore comes out the
same in any batch, on any device and after any interruption; there is no generator whose state could be lost.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from cxrlab.training.config import Augmentation

# Numbers an image draws before its noise: shift x, shift y, scale, rotation, brightness, contrast, gamma, noise.
_DRAWS = 8
_STEP, _FIRST, _SECOND = (number - (1 << 64) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def augment(images: Tensor, seeds: Tensor, how: Augmentation) -> Tensor:
    """Images of the same shape and dtype, each moved, turned, scaled, re-exposed and made noisy by its own seed.

    Args:
        images: [B, H, W] or [B, C, H, W], values in [0, 1].
        seeds: [B] whole numbers, on the device of the images; see `image_seeds`.
        how: Largest change of each kind.
    """
    if how.none:
        return images
    stack = images.unsqueeze(1) if images.dim() == 3 else images
    draws = 2 * uniform(seeds, torch.arange(_DRAWS, device=seeds.device)).to(images.dtype) - 1
    varied = _exposed(_moved(stack, draws, how), draws, how)
    if how.noise:
        strength = how.noise * draws[:, 7].abs()
        varied = varied + strength[:, None, None, None] * _noise(seeds, varied)
    return varied.clamp(0.0, 1.0).reshape(images.shape)


def varied(images: Tensor, seeds: Tensor, how: Augmentation) -> Tensor:
    """`augment` for 8-bit images [B, H, W] or [B, H, W, 3]: the same layout and scale, no longer whole numbers."""
    if how.none:
        return images
    colour = images.dim() == 4
    stack = images.permute(0, 3, 1, 2) if colour else images
    changed = 255.0 * augment(stack.float() / 255.0, seeds, how)
    return changed.permute(0, 2, 3, 1) if colour else changed


def image_seeds(seed: int, rows: Tensor, step: int) -> Tensor:
    """One seed an image [B] from the run's seed, the image's place in the corpus and the step at which it is seen."""
    return _mix(_mix(rows.long() + _mix(torch.tensor(seed)).to(rows.device)) + step)


def uniform(seeds: Tensor, places: Tensor) -> Tensor:
    """Numbers in [0, 1), float32: one for each seed [B] and place [K] → [B, K]."""
    bits = _mix(seeds[:, None] + (places[None, :] + 1) * _STEP)
    return ((bits >> 40) & 0xFFFFFF).float() / float(1 << 24)  # 24 bits, all that a float32 holds


def _mix(numbers: Tensor) -> Tensor:
    """The finaliser of splitmix64: every bit of the input changes about half of those of the output."""
    mixed = numbers.long() + _STEP
    mixed = (mixed ^ _shifted(mixed, 30)) * _FIRST
    mixed = (mixed ^ _shifted(mixed, 27)) * _SECOND
    return mixed ^ _shifted(mixed, 31)


def _shifted(numbers: Tensor, by: int) -> Tensor:
    """Shifted right with zeros coming in; torch's own shift of signed numbers repeats the sign."""
    return (numbers >> by) & ((1 << (64 - by)) - 1)


def _moved(images: Tensor, draws: Tensor, how: Augmentation) -> Tensor:
    """Shifted, scaled and turned about the middle in one resampling; what comes in from outside repeats the border."""
    if not (how.shift or how.scale or how.rotation):
        return images
    angle = draws[:, 3] * math.radians(how.rotation)
    zoom = 1.0 + draws[:, 2] * how.scale
    # Coordinates run from -1 to 1 over the image, so a share of its side is twice as much in them.
    shift = 2.0 * how.shift * draws[:, :2]
    cos, sin = angle.cos() * zoom, angle.sin() * zoom
    ratio = images.shape[2] / images.shape[3]  # keeps a turn a turn on an image that is not square
    rows = (torch.stack([cos, -sin * ratio, shift[:, 0]], 1), torch.stack([sin / ratio, cos, shift[:, 1]], 1))
    grid = affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _exposed(images: Tensor, draws: Tensor, how: Augmentation) -> Tensor:
    """Gamma, then contrast about middle grey, then brightness."""
    brightness, contrast, gamma = (draws[:, place, None, None, None] for place in (4, 5, 6))
    if how.gamma:
        images = images.clamp(0.0, 1.0) ** ((1.0 + how.gamma) ** gamma)
    return (images - 0.5) * (1.0 + how.contrast * contrast) + 0.5 + how.brightness * brightness


def _noise(seeds: Tensor, images: Tensor) -> Tensor:
    """Normal noise of deviation 1, the same in all channels of a pixel [B, 1, H, W]."""
    height, width = images.shape[2:]
    pixels = torch.arange(height * width, device=seeds.device) + _DRAWS
    first, second = uniform(seeds, pixels), uniform(~seeds, pixels)
    bell = (-2.0 * (1.0 - first).log()).sqrt() * (2.0 * math.pi * second).cos()  # Box and Muller
    return bell.reshape(len(seeds), 1, height, width).to(images.dtype)
