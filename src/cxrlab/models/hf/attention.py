"""Attention from every token of a report to the image, in one pass.

The row of a token is that of the position that *emits* it, the one before it: what this position reads
decides the token, while the row of the token's own position decides what comes after it. Writing token
by token gives the same rows, since no position sees what follows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError
from cxrlab.core.records import Span
from cxrlab.models.hf.prompting import TokenText, token_text
from cxrlab.models.hf.scoring import last_logits
from cxrlab.models.hf.token_grid import Grid, token_grid

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.core.protocols import Image
    from cxrlab.models.hf.inputs import Encoded
    from cxrlab.models.hf.model import HfModel


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
