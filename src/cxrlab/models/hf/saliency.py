"""Saliency of report tokens: attention to the image, and gradients of their log-probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.core.records import Span
from cxrlab.models.hf.families import Grid, token_grid
from cxrlab.models.hf.gradient_memory import prepare_gradient
from cxrlab.models.hf.prompting import TokenText, token_text
from cxrlab.models.hf.scoring import last_logits

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.core.model_interfaces import Image
    from cxrlab.models.hf.inputs import Encoded
    from cxrlab.models.hf.model import HfModel

STEPS = 8  # of integrated gradients, at the middles of equal steps
REACH = 4.0  # radius of the Gaussian in standard deviations; weights beyond are below 1 in 10,000


@dataclass(frozen=True, eq=False)
class Gradient:
    """The gradient of a part of a report."""

    # float32 in the shape of the image, [H, W] or [H, W, 3], signed; natural log-probability of the part's tokens per
    # unit of brightness (black 0, white 1).
    values: NDArray[np.float32]
    log_probability: float  # of the part's tokens together, given all tokens before them


def gradients(
    model: HfModel, image: Image, report: str, parts: Sequence[Sequence[Span]], indication: str | None = None
) -> Iterator[Gradient]:
    """∂ log p(part | image, text before it) / ∂ pixel for each part of a report, from one forward pass.

    Args:
        model: With `capabilities.gradients`.
        image: [H, W] or [H, W, 3] in [0, 1].
        parts: For each part its character spans [start, end) in `written_text(report)`.
        indication: That of the report's generation.

    Raises:
        ConfigError: For a model without gradients, or one whose gradient needs more memory than is free.
    """
    import torch

    if not model.capabilities.gradients:
        raise ConfigError(f"'{model.name}' gives no gradient with respect to the image; use attention maps instead.")
    prepare_gradient(model, (image.shape[0], image.shape[1]), report, indication)
    radiograph = torch.from_numpy(np.array(image, dtype=np.float32))  # a copy
    batch = (
        (radiograph if radiograph.ndim == 2 else radiograph.permute(2, 0, 1))[None].to(model.device).requires_grad_()
    )
    scored = model.log_probabilities(batch, [report], [indication])
    written = token_text(model.tokenizer, scored.ids[0][scored.mask[0]].tolist())
    log_probs = scored.values[0][scored.mask[0]]
    for number, spans in enumerate(parts, 1):
        total = log_probs[list(written.tokens_of(spans))].sum()
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
    """Integrated gradients of a part, from a flat image of the same mean brightness; float32 in the image's shape.

    Up to the number of steps, the values sum to log p(part | image) - log p(part | flat image). Unlike the gradient at
    the image, they do not vanish where the model is confident.
    """
    flat = np.full_like(image, image.mean())
    total = np.zeros(image.shape, np.float64)
    for step in range(steps):
        between = flat + np.float32((step + 0.5) / steps) * (image - flat)
        total += next(gradients(model, between, report, [part], indication)).values
    found: NDArray[np.float32] = (total / steps * (image - flat)).astype(np.float32)
    return found


def smoothed(values: NDArray[np.float32], deviation: float) -> NDArray[np.float32]:
    """A map [H, W] blurred by a Gaussian of this standard deviation in pixels, renormalised near the edges."""
    if deviation <= 0:
        return values
    matrices = []
    for pixels in values.shape:
        distance = np.subtract.outer(np.arange(pixels), np.arange(pixels)) / deviation
        weights = np.where(np.abs(distance) <= REACH, np.exp(-0.5 * distance**2), 0.0)
        matrices.append(weights / weights.sum(axis=1, keepdims=True))
    down, across = matrices
    blurred: NDArray[np.float32] = (down @ values.astype(np.float64) @ across.T).astype(np.float32)
    return blurred


@dataclass(frozen=True, eq=False)
class ReportAttention:
    """Attention of each of T report tokens to the image."""

    written: TokenText  # the report and the characters of each token; the last token is the end of the report
    # float32 [T, layers, heads, rows, columns]: shares of a position's whole attention; those of one layer and head sum
    # to at most 1, the rest went to text tokens.
    values: NDArray[np.float32]
    grid: Grid  # position of the cells on the image

    def of(self, spans: Sequence[Span]) -> NDArray[np.float32]:
        """[layers, heads, rows, columns]: the mean over the tokens of a part, given by its character spans."""
        chosen = list(self.written.tokens_of(spans))
        mean: NDArray[np.float32] = self.values[chosen].mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean

    def usual(self) -> NDArray[np.float32]:
        """[layers, heads, rows, columns]: the mean over all tokens, end token included."""
        mean: NDArray[np.float32] = self.values.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean


def report_attention(model: HfModel, image: Image, report: str, indication: str | None = None) -> ReportAttention:
    """The attention of every token of a report, as if the model were generating it.

    Args:
        model: Loaded with `LoadSettings(attention="eager")`: fast kernels do not expose attention weights.
        image: [H, W] or [H, W, 3] in [0, 1].
        indication: That of the report's generation.

    Raises:
        ConfigError: For a model that does not expose its attention, or whose image tokens are no grid.
    """
    import torch

    encoded = model.encode([image], [model.prompts.ask(indication)], [report])
    columns = encoded.image_mask[0].nonzero().flatten()
    places = encoded.report_mask[0].nonzero().flatten()
    grid, before = _grid(model, image, encoded)
    rows, columns, length = places - 1, columns[before:], int(encoded.report_mask.shape[1])
    layers: list[Tensor] = []

    def keep(module: Any, given: Any, result: Any) -> None:
        """Keep [heads, rows, columns] of a layer's attention; all layers of a large model would not fit into memory."""
        weights: Any = result[1] if isinstance(result, tuple) and len(result) > 1 else None
        if getattr(weights, "ndim", 0) == 4 and tuple(weights.shape[-2:]) == (length, length):
            layers.append(weights[0][:, rows][:, :, columns].float())

    modules = model.model.get_decoder().named_modules()
    attention = [module for _, module in modules if type(module).__name__.endswith("Attention")]
    handles = [module.register_forward_hook(keep) for module in attention]
    try:
        with torch.no_grad():
            last_logits(model.model, encoded.inputs, 1)
    finally:
        for handle in handles:
            handle.remove()
    if not layers:
        raise ConfigError(
            f"'{model.name}' exposes no attention; load it with --loading.attention eager, or use gradients."
        )
    values = torch.stack(layers).permute(2, 0, 1, 3).cpu().numpy()
    ids = encoded.inputs["input_ids"][0][places].tolist()
    shaped = values.reshape(*values.shape[:3], grid.rows, grid.columns)
    return ReportAttention(token_text(model.tokenizer, ids), shaped, grid)


def image_grid(model: HfModel, image: Image) -> Grid | None:
    """The grid of an image's tokens, without running the model; None if they are no grid."""
    try:
        return _grid(model, image, model.encode([image], [model.prompts.ask(None)]))[0]
    except ConfigError:
        return None


def _grid(model: HfModel, image: Image, encoded: Encoded) -> tuple[Grid, int]:
    config, processor = model.model.config, model.processor.image_processor
    height, width = image.shape[:2]
    return token_grid(config, processor, encoded.inputs, int(encoded.image_mask.sum()), height, width)
