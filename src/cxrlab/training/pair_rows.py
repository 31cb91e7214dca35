"""Images and reports in batches for contrastive training: cut into tokens once, then indexing alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cxrlab.core.errors import DataError
from cxrlab.models.tokenization import user_ids
from cxrlab.training.contrastive_loss import report_key
from cxrlab.training.images import Images
from cxrlab.training.rows import ROWS

_BLOCK = 4096  # texts that the tokenizer is given at once


@dataclass(frozen=True)
class Texts:
    """Reports as tokens, one after the other.

    Args:
        ids: All tokens, int32.
        starts: Where each report begins, [N + 1].
        keys: A number a report that those with the same words share, [N]; see `report_key`.
        cut: Reports that were cut at their end.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    keys: NDArray[np.int64]
    cut: int

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each report, [N]."""
        return np.diff(self.starts)


def tokenise(tokenizer: Any, reports: Sequence[str], longest: int) -> Texts:
    """Cut reports into tokens, at most `longest` each, those that the tokenizer adds included.

    Two reports that are equal as far as they are read have the same key: what was cut off cannot tell them apart.
    """
    ids: list[NDArray[np.int32]] = []
    keys = np.zeros(len(reports), np.int64)
    cut = 0
    for first in range(0, len(reports), _BLOCK):
        block = list(reports[first : first + _BLOCK])
        found = user_ids(tokenizer, block, truncation=True, max_length=longest)
        ids += [np.asarray(tokens, np.int32) for tokens in found]
        read = dict(enumerate(block))
        for place in _cut_off(tokenizer, block, found, longest):
            read[place] = tokenizer.decode(found[place], skip_special_tokens=True)
            cut += 1
        keys[first : first + len(block)] = [report_key(text) for text in read.values()]
    starts = np.concatenate([[0], np.cumsum([len(one) for one in ids])]).astype(np.int64)
    return Texts(np.concatenate(ids) if ids else np.zeros(0, np.int32), starts, keys, cut)


def _cut_off(tokenizer: Any, texts: list[str], found: list[list[int]], longest: int) -> list[int]:
    """Numbers of the texts of which `found` is not the whole."""
    full = [number for number, tokens in enumerate(found) if len(tokens) == longest]
    whole = user_ids(tokenizer, [texts[number] for number in full], truncation=False, verbose=False)
    return [number for number, tokens in zip(full, whole, strict=True) if len(tokens) > longest]


@dataclass(frozen=True)
class PairRows:
    """Images with their reports; what `PairEncoder` takes.

    Args:
        images: Each image once.
        image_of: Number of each pair's image, [N].
        texts: The reports, [N].
        pad: Token that fills a batch up.
        multiple: A batch is as long as a multiple of this holds its longest report; see `ReportRows`.
    """

    images: Images
    image_of: NDArray[np.int64]
    texts: Texts
    pad: int
    multiple: int = 1

    def __post_init__(self) -> None:
        if len(self.image_of) != len(self.texts):
            raise DataError(f"{len(self.image_of)} images stand beside {len(self.texts)} reports.")

    def __len__(self) -> int:
        return len(self.image_of)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest report."""
        return int(self.texts.lengths.max(initial=1))

    @property
    def key(self) -> str:
        """A hash of everything that is learnt: images and tokens."""
        digest = hashlib.blake2b(digest_size=12)
        for array in (self.texts.ids, self.texts.starts, self.texts.keys, self.image_of):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update(self.images.key.encode())
        return digest.hexdigest()

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """Images uint8 [B, H, W] (or [B, H, W, 3]), ids and mask [B, T], and the keys of image and report [B]."""
        chosen = np.asarray(rows, np.int64)
        starts = self.texts.starts[chosen]
        lengths = self.texts.starts[chosen + 1] - starts
        width = min(-(-int(lengths.max(initial=1)) // self.multiple) * self.multiple, self.longest)
        mask = np.arange(width)[None, :] < lengths[:, None]
        ids = np.full(mask.shape, self.pad, np.int64)
        inside = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        ids[mask] = self.texts.ids[np.repeat(starts, lengths) + inside]
        numbers = self.image_of[chosen]
        return {
            "images": torch.from_numpy(self.images[numbers]),
            "ids": torch.from_numpy(ids),
            "mask": torch.from_numpy(mask.astype(np.int64)),
            "image_keys": torch.from_numpy(numbers),
            "report_keys": torch.from_numpy(self.texts.keys[chosen]),
            ROWS: torch.from_numpy(chosen),
        }
