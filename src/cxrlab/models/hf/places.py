"""Where the reports stand in a right-padded batch of tokens; it depends on words alone, so it is found out once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class ReportPlaces:
    """What is read off the last `count` positions of a batch [B, L], T being the longest report.

    Args:
        count: Positions whose logits are needed, the last one included: that which tells the first token of a report,
            and all after it.
        order: [B, T], place of each report token among the last `count` - 1 positions; any place where padded.
        mask: [B, T] bool, True for tokens of the report.
        ids: [B, T], token ids; 0 where padded.
    """

    count: int
    order: Tensor
    mask: Tensor
    ids: Tensor

    @classmethod
    def of(cls, ids: Tensor, report_mask: Tensor) -> ReportPlaces:
        """From token ids [B, L] and where they are the report's own, [B, L] bool."""
        import torch

        counts = report_mask.sum(dim=1)
        if not bool((counts > 0).all()):
            raise DataError("a report without a token has no log-probability; give every image a report.")
        # Logits at position p tell token p + 1.
        first = int(report_mask.int().argmax(dim=1).min()) - 1
        told = report_mask[:, first + 1 :]
        # Each report to the left edge.
        order = torch.argsort(told.int(), dim=1, descending=True, stable=True)[:, : int(counts.max())]
        mask = told.gather(1, order)
        return cls(
            report_mask.shape[1] - first, order, mask, torch.where(mask, ids[:, first + 1 :].gather(1, order), 0)
        )

    def to(self, device: Any) -> ReportPlaces:
        """The same on another device."""
        return ReportPlaces(self.count, self.order.to(device), self.mask.to(device), self.ids.to(device))
