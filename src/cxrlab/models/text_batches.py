"""Token ids of many texts in batches of similar length: padding is small and the caller's order is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cxrlab.core.memory import BatchSize

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class TextBatch:
    """Texts that go through a model together.

    Args:
        rows: Where each text stands in the caller's list, [B].
        ids: Token ids [B, T], padded at the end.
        mask: [B, T], 1 for tokens and 0 for padding.
    """

    rows: tuple[int, ...]
    ids: Tensor
    mask: Tensor


def in_batches(token_ids: Sequence[Sequence[int]], pad: int, size: BatchSize, run: Callable[[TextBatch], None]) -> None:
    """`run` on batch after batch, longest texts first, so that running out of memory is known at once.

    A text without a token (not even a special one) is in no batch.
    """
    filled = [row for row, ids in enumerate(token_ids) if ids]

    def ran(rows: Sequence[int]) -> tuple[()]:
        run(_batch(token_ids, pad, tuple(rows)))
        return ()

    size.map(sorted(filled, key=lambda row: -len(token_ids[row])), ran)


def _batch(token_ids: Sequence[Sequence[int]], pad: int, rows: tuple[int, ...]) -> TextBatch:
    import torch

    longest = len(token_ids[rows[0]])
    ids = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        length = len(token_ids[row])
        ids[place, :length] = torch.tensor(token_ids[row], dtype=torch.long)
        mask[place, :length] = 1
    return TextBatch(rows, ids, mask)
