"""Augmentation of whole batches of images on their device.

Every random number is a hash of the image's own seed and of its purpose. An image therefore gets the same augmentation
in any batch, on any device and after any interruption.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from cxrlab.training.config import Augmentation

# Numbers drawn per image before its noise: shift x, shift y, scale, rotation, brightness, contrast, gamma, noise.
_DRAWS = 8
_STEP, _FIRST, _SECOND = (number - (1 << 64) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def augment(images: Tensor, seeds: Tensor, how: Augmentation) -> Tensor:
    """Shift, scale, rotate, change exposure and add noise, for each image by its own seed.

    Args:
        images: [B, H, W] or [B, C, H, W], values in [0, 1].
        seeds: Integers [B], on the device of the images; see `image_seeds`.
        how: Largest change of each kind.
    """
    if how.none:
        return images
    varied = images.unsqueeze(1) if images.dim() == 3 else images
    height, width = varied.shape[2:]
    draws = 2 * uniform(seeds, torch.arange(_DRAWS, device=seeds.device)).to(images.dtype) - 1
    if how.shift or how.scale or how.rotation:  # about the middle, in one resampling; outside, the border is repeated
        angle = draws[:, 3] * math.radians(how.rotation)
        zoom = 1.0 + draws[:, 2] * how.scale
        # Coordinates run from -1 to 1 over the image, so a share of its side is twice as much in them.
        shift = 2.0 * how.shift * draws[:, :2]
        cos, sin = angle.cos() * zoom, angle.sin() * zoom
        ratio = height / width  # keeps a rotation a rotation on an image that is not square
        rows = (torch.stack([cos, -sin * ratio, shift[:, 0]], 1), torch.stack([sin / ratio, cos, shift[:, 1]], 1))
        grid = affine_grid(torch.stack(rows, 1), list(varied.shape), align_corners=False)
        varied = grid_sample(varied, grid, mode="bilinear", padding_mode="border", align_corners=False)
    # Gamma, then contrast about middle grey, then brightness.
    brightness, contrast, gamma = (draws[:, place, None, None, None] for place in (4, 5, 6))
    if how.gamma:
        varied = varied.clamp(0.0, 1.0) ** ((1.0 + how.gamma) ** gamma)
    varied = (varied - 0.5) * (1.0 + how.contrast * contrast) + 0.5 + how.brightness * brightness
    if how.noise:  # normal (Box and Muller), the same in all channels of a pixel
        pixels = torch.arange(height * width, device=seeds.device) + _DRAWS
        first, second = uniform(seeds, pixels), uniform(~seeds, pixels)
        noise = (-2.0 * (1.0 - first).log()).sqrt() * (2.0 * math.pi * second).cos()
        noise = noise.reshape(len(seeds), 1, height, width).to(varied.dtype)
        varied = varied + (how.noise * draws[:, 7].abs())[:, None, None, None] * noise
    return varied.clamp(0.0, 1.0).reshape(images.shape)


def varied(images: Tensor, seeds: Tensor, how: Augmentation) -> Tensor:
    """`augment` for 8-bit images [B, H, W] or [B, H, W, 3]; the result is float in the same layout and range."""
    if how.none:
        return images
    colour = images.dim() == 4
    stack = images.permute(0, 3, 1, 2) if colour else images
    changed = 255.0 * augment(stack.float() / 255.0, seeds, how)
    return changed.permute(0, 2, 3, 1) if colour else changed


def image_seeds(seed: int, rows: Tensor, step: int) -> Tensor:
    """One seed per image [B] from the run's seed, the image's row in the data set and the step."""
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
    """Logical shift to the right; torch's own shift of signed numbers repeats the sign."""
    return (numbers >> by) & ((1 << (64 - by)) - 1)
