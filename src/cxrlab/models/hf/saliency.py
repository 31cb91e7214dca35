"""What a report was written from: attention to the image, and gradients of log-probabilities, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.core.records import Span
from cxrlab.models.hf.families import Grid, token_grid
from cxrlab.models.hf.prompting import TokenText, token_text
from cxrlab.models.hf.scoring import last_logits

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.core.protocols import Image
    from cxrlab.models.hf.inputs import Encoded
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


@dataclass(frozen=True, eq=False)
class ReportAttention:
    """What each of T tokens was emitted from.

    Args:
        written: The report and the characters of each token; the last token is the end of the report.
        values: float32 [T, layers, heads, rows, columns]: shares of a position's whole attention, so that those
            of one layer and head sum to at most 1; the rest went to the words.
        grid: Where the cells lie on the image.
    """

    written: TokenText
    values: NDArray[np.float32]
    grid: Grid

    def of(self, spans: Sequence[Span]) -> NDArray[np.float32]:
        """[layers, heads, rows, columns] of a part of the report: the mean over the tokens that write it.

        Args:
            spans: Characters [start, end) of the part, in one or several pieces.
        """
        chosen = list(self.written.tokens_of(spans))
        mean: NDArray[np.float32] = self.values[chosen].mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean

    def usual(self) -> NDArray[np.float32]:
        """[layers, heads, rows, columns]: the mean over all tokens, the end of the report among them."""
        mean: NDArray[np.float32] = self.values.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean


def report_attention(model: HfModel, image: Image, report: str, indication: str | None = None) -> ReportAttention:
    """The attention behind every token of a report, as if the model were writing it.

    Args:
        model: Loaded with `Loading(attention="eager")`: the fast kernels never hold the attention itself.
        image: Image [H, W] or [H, W, 3] in [0, 1].
        report: The words to explain, the model's own or others.
        indication: As it was given when the report was written.

    Raises:
        ConfigError: For a model whose attention cannot be read, or whose image tokens are no grid.
    """
    import torch

    encoded = model.encode([image], [model.prompts.ask(indication)], [report])
    columns = encoded.image_mask[0].nonzero().flatten()
    places = encoded.report_mask[0].nonzero().flatten()
    grid, before = _grid(model, image, encoded)
    length = int(encoded.report_mask.shape[1])
    with torch.no_grad(), _watched(model.model, places - 1, columns[before:], length) as layers:
        last_logits(model.model, encoded.inputs, 1)
    if not layers:
        raise ConfigError(
            f"'{model.name}' gives no attention as it is loaded; load it with attention=eager, or ask for gradients."
        )
    values = torch.stack(layers).permute(2, 0, 1, 3).cpu().numpy()
    ids = encoded.inputs["input_ids"][0][places].tolist()
    shaped = values.reshape(*values.shape[:3], grid.rows, grid.columns)
    return ReportAttention(token_text(model.tokenizer, ids), shaped, grid)


def image_grid(model: HfModel, image: Image) -> Grid | None:
    """Where the image tokens of an image lie on it, without running the model; None when they are no grid."""
    try:
        return _grid(model, image, model.encode([image], [model.prompts.ask(None)]))[0]
    except ConfigError:
        return None


def _grid(model: HfModel, image: Image, encoded: Encoded) -> tuple[Grid, int]:
    config, processor = model.model.config, model.processor.image_processor
    height, width = image.shape[:2]
    return token_grid(config, processor, encoded.inputs, int(encoded.image_mask.sum()), height, width)


@contextmanager
def _watched(model: Any, rows: Tensor, columns: Tensor, length: int) -> Iterator[list[Tensor]]:
    """Collects [heads, len(rows), len(columns)] float32 of every attention layer of the language model.

    A layer's whole attention is [heads, length, length]; a large model cannot keep that of every layer, so each is
    cut down as it passes.
    """
    kept: list[Tensor] = []

    def keep(module: Any, given: Any, result: Any) -> None:
        weights: Any = result[1] if isinstance(result, tuple) and len(result) > 1 else None
        if getattr(weights, "ndim", 0) == 4 and tuple(weights.shape[-2:]) == (length, length):
            kept.append(weights[0][:, rows][:, :, columns].float())

    decoder = model.get_decoder()
    watched = [module for name, module in decoder.named_modules() if type(module).__name__.endswith("Attention")]
    handles = [module.register_forward_hook(keep) for module in watched]
    try:
        yield kept
    finally:
        for handle in handles:
            handle.remove()
