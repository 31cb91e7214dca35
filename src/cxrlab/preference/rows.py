"""Twins in batches: two reports for one image and one prompt, the image given once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cxrlab.training.feature_store import Features
from cxrlab.training.images import Images
from cxrlab.training.rows import ITEMS
from cxrlab.training.tokens import ReportRows


@dataclass(frozen=True, eq=False)
class TwinRows:
    """N twins; what `PreferenceLoss` takes.

    The first of a pair is the chosen report and the second the rejected one. Without pairs the first is the
    report that was judged and the second a report of another study, by which KTO sees how far the model has moved.

    Args:
        reports: 2 N rows without images: rows 2 i and 2 i + 1 are the twins of item i.
        images: Of the rows; None when features stand in for them, or nothing is run yet.
        features: Of the frozen vision encoder for every image.
        reference: log π_ref of both reports, float32 [N, 2]; None where none is needed or known yet.
        desirable: Whether the first report is a good one, [N]; None for pairs.
    """

    reports: ReportRows
    images: Images | None = None
    features: Features | None = None
    reference: NDArray[np.float32] | None = None
    desirable: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.reports) // 2

    @property
    def key(self) -> str:
        """A hash of everything that is learnt: tokens, images, and which reports are good."""
        digest = hashlib.blake2b(self.reports.key.encode(), digest_size=12)
        digest.update(str(self.images.key if self.images is not None else None).encode())
        if self.desirable is not None:
            digest.update(self.desirable.tobytes())
        return digest.hexdigest()

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of the longer twin of each item, [N]."""
        return np.asarray(self.reports.lengths.reshape(-1, 2).max(axis=1))

    def __getitems__(self, items: list[int]) -> dict[str, Tensor]:
        """One batch: of pairs the first reports, then the second ones; without pairs the second apart, `strange_…`."""
        chosen = np.asarray(items, np.int64)
        if self.desirable is None:
            batch = self._texts(np.concatenate([2 * chosen, 2 * chosen + 1]))
        else:
            batch = self._texts(2 * chosen)
            batch |= {f"strange_{name}": value for name, value in self._texts(2 * chosen + 1).items()}
            batch["desirable"] = torch.from_numpy(self.desirable[chosen])
        if self.reference is not None:
            batch["reference"] = torch.from_numpy(np.array(self.reference[chosen]))
        numbers = self.reports.image_of[2 * chosen]
        if self.features is not None:
            batch["features"] = self.features[numbers]
        elif self.images is not None:
            batch["images"] = torch.from_numpy(self.images[numbers])
        batch[ITEMS] = torch.tensor([len(chosen)])
        return batch

    def _texts(self, rows: NDArray[np.int64]) -> dict[str, Tensor]:
        batch = self.reports.__getitems__(rows.tolist())
        del batch[ITEMS]
        return batch
