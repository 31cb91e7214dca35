"""Which pixels a word hangs on: the gradient of its log-probability with respect to the image.

Resizing and normalisation are inside the model's wrapper and inside the gradient, so that a map has the
size of the image as it was given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.core.records import Span
from cxrlab.models.hf.prompting import token_text

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image
    from cxrlab.models.hf.model import HfModel

STEPS = 8  # images between a flat one and the true one, at the middles of equal steps
REACH = 4.0  # deviations of a Gaussian on either side; what lies beyond weighs less than 1 in 10,000


@dataclass(frozen=True, eq=False)
class Gradient:
    """What a part of a report hangs on.

    Args:
        values: float32 in the shape of the image, [H, W] or [H, W, 3], signed; unit: natural log-probability of the
            part's tokens for each unit of brightness (black 0, white 1).
        log_probability: Of the part's tokens together, given all before them; ≤ 0.
    """

    values: NDArray[np.float32]
    log_probability: float


def gradients(
    model: HfModel, image: Image, report: str, parts: Sequence[Sequence[Span]], indication: str | None = None
) -> Iterator[Gradient]:
    """∂ log p(part | image, words before it) / ∂ pixel, part after part, from one forward pass.

    Args:
        model: With `capabilities.gradients`.
        image: Image [H, W] or [H, W, 3] in [0, 1].
        report: The words to explain, the model's own or others.
        parts: Of each part its characters [start, end), in one or several pieces, in the text that the report's
            tokens write (`written_text`).
        indication: As it was given when the report was written.
    """
    import torch

    if not model.capabilities.gradients:
        raise ConfigError(
            f"'{model.name}' gives no gradient with respect to the image; ask for attention maps instead."
        )
    radiograph = torch.from_numpy(np.array(image, dtype=np.float32))  # a copy: the caller's image stays as it is
    batch = (
        (radiograph if radiograph.ndim == 2 else radiograph.permute(2, 0, 1))[None].to(model.device).requires_grad_()
    )
    scored = model.log_probabilities(batch, [report], [indication])
    written = token_text(model.tokenizer, scored.ids[0][scored.mask[0]].tolist())
    told = scored.values[0][scored.mask[0]]
    for number, spans in enumerate(parts, 1):
        total = told[list(written.tokens_of(spans))].sum()
        (slope,) = torch.autograd.grad(total, batch, retain_graph=number < len(parts))
        shaped = slope[0] if slope.ndim == 3 else slope[0].permute(1, 2, 0)
        yield Gradient(shaped.detach().float().cpu().numpy(), float(total.detach()))


def integrated(
    model: HfModel,
    image: Image,
    report: str,
    part: Sequence[Span],
    indication: str | None = None,
    steps: int = STEPS,
) -> NDArray[np.float32]:
    """What each pixel adds to the log-probability of a part, from a flat image of the same mean brightness to the image.

    The gradient at the image alone says little once a model is sure of a word; along the way there it is not. Up to
    the number of steps, the values sum to log p(part | image) - log p(part | flat image).

    Returns:
        float32 in the shape of the image, signed.
    """
    flat = np.full_like(image, image.mean())
    total = np.zeros(image.shape, np.float64)
    for step in range(steps):
        between = flat + np.float32((step + 0.5) / steps) * (image - flat)
        total += next(gradients(model, between, report, [part], indication)).values
    found: NDArray[np.float32] = (total / steps * (image - flat)).astype(np.float32)
    return found


def smoothed(values: NDArray[np.float32], deviation: float) -> NDArray[np.float32]:
    """A map [H, W] blurred by a Gaussian of this deviation in pixels; near an edge the weights inside are renormalised.

    A single pixel's gradient is noise of the network; what a region has in common is what can be read.
    """
    if deviation <= 0:
        return values
    down, across = (_blur(side, deviation) for side in values.shape)
    blurred: NDArray[np.float32] = (down @ values.astype(np.float64) @ across.T).astype(np.float32)
    return blurred


def _blur(pixels: int, deviation: float) -> NDArray[np.float64]:
    """[pixels, pixels], rows that sum to 1."""
    distance = np.subtract.outer(np.arange(pixels), np.arange(pixels)) / deviation
    weights = np.where(np.abs(distance) <= REACH, np.exp(-0.5 * distance**2), 0.0)
    normed: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
    return normed
