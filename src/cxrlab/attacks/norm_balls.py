"""Norm balls in pixel space: lengths, projection, steepest directions and random points, image by image.

Images are tensors [B, C, H, W] float32 in [0, 1]; lengths are taken over all of C, H and W of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cxrlab.attacks.config import Norm

if TYPE_CHECKING:
    from numpy.random import Generator

_TINY = 1e-12


def change_norms(change: Tensor, norm: Norm) -> Tensor:
    """Length of each image's change, [B] float64."""
    flat = change.flatten(1).double()
    return flat.abs().amax(dim=1) if norm == "linf" else flat.norm(dim=1)


def project(candidate: Tensor, clean: Tensor, eps: float, norm: Norm) -> Tensor:
    """The nearest image to `candidate` in the ball around `clean`, clipped to [0, 1].

    Clipping moves every pixel towards the clean image, which is inside, so that the result stays in the ball.
    """
    if norm == "linf":
        return torch.minimum(torch.maximum(candidate, clean - eps), clean + eps).clamp(0, 1)
    change = candidate.double() - clean.double()
    size = change_norms(change, norm)
    nearer = clean + (change * _per_image(eps / size.clamp(min=_TINY))).to(clean.dtype)
    # An image of the ball is given back bit by bit: `clean + (candidate - clean)` would round.
    return torch.where(_per_image(size <= eps), candidate, nearer).clamp(0, 1)


def clip_norm(change: Tensor, eps: float, norm: Norm) -> Tensor:
    """The nearest change of at most the length ε, whatever image it will be added to."""
    if norm == "linf":
        return change.clamp(-eps, eps)
    size = change_norms(change, norm).clamp(min=_TINY)
    return change * _per_image((eps / size).clamp(max=1.0).to(change.dtype))


def project_exactly(candidate: Tensor, clean: Tensor, eps: float, norm: Norm) -> Tensor:
    """The image nearest to `candidate` whose difference to `clean` is within the ball, exactly.

    `clean + eps` is rounded to float32, so that its distance from `clean` may exceed ε in the last place.
    """
    image = project(candidate, clean, eps, norm)
    if norm == "linf":
        low, high = clean.double() - eps, clean.double() + eps
        lowest, highest = low.float(), high.float()
        # Rounded to the wrong side of the exact bound: the next number on the right side.
        lowest = torch.where(lowest.double() < low, torch.nextafter(lowest, torch.ones_like(clean)), lowest)
        highest = torch.where(highest.double() > high, torch.nextafter(highest, torch.zeros_like(clean)), highest)
        return torch.minimum(torch.maximum(image, lowest), highest).clamp(0, 1)
    for _ in range(8):
        over = change_norms(image.double() - clean.double(), norm) > eps
        if not bool(over.any()):
            break
        # A step of a millionth of the change, and one place of every number, towards the clean image.
        closer = torch.nextafter(clean + (image - clean) * (1 - 1e-6), clean)
        image = torch.where(_per_image(over), closer, image)
    return image


def steepest_direction(gradient: Tensor, norm: Norm) -> Tensor:
    """Direction of the step of length 1 that raises the loss most; 0 where the gradient is 0."""
    if norm == "linf":
        return gradient.sign()
    size = change_norms(gradient, norm)
    # However small a gradient is, its direction has length 1.
    return (gradient.double() / _per_image(torch.where(size > 0, size, 1.0))).to(gradient.dtype)


def random_in_ball(shape: Sequence[int], eps: float, norm: Norm, generators: Sequence[Generator]) -> Tensor:
    """One change per image, uniform in the ball, each from its own generator; [B, C, H, W] float32."""
    changes = []
    for generator in generators:
        if norm == "linf":
            changes.append(generator.uniform(-eps, eps, tuple(shape[1:])))
        else:
            direction = _random_direction(tuple(shape[1:]), generator)
            changes.append(direction * eps * generator.uniform() ** (1 / direction.size))
    return torch.from_numpy(np.stack(changes).astype(np.float32))


def random_on_sphere(shape: Sequence[int], eps: float, norm: Norm, generators: Sequence[Generator]) -> Tensor:
    """One change per image of length ε, each from its own generator: uniform noise (l∞) or a uniform direction, rescaled."""
    changes = []
    for generator in generators:
        if norm == "linf":
            noise = generator.uniform(-1, 1, tuple(shape[1:]))
            changes.append(noise / max(float(np.abs(noise).max()), _TINY) * eps)
        else:
            changes.append(_random_direction(tuple(shape[1:]), generator) * eps)
    return torch.from_numpy(np.stack(changes).astype(np.float32))


def _random_direction(shape: tuple[int, ...], generator: Generator) -> np.ndarray:
    noise = generator.standard_normal(shape)
    return np.asarray(noise / max(float(np.linalg.norm(noise)), _TINY))


def _per_image(values: Tensor) -> Tensor:
    """[B] → [B, 1, 1, 1]."""
    return values.reshape(-1, 1, 1, 1)
