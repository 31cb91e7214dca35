"""How unlike a picture and a report are by a contrastive encoder: a guide for moving pictures that needs no surrogate.

An extra of ours. The paper moves pictures by the surrogate's loss, and a surrogate that was told one bland report knows
no finding to move them towards. Whoever has the victim's encoder has, as a rule, the texts' half of its encoder too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cxrlab.core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from cxrlab.models.dual_encoder import DualEncoder


class Likeness:
    """An encoder with the one method of a surrogate that moving pictures needs.

    Args:
        encoder: Of images and texts; reports longer than it reads are cut, as everywhere.
    """

    def __init__(self, encoder: DualEncoder) -> None:
        if not encoder.pixels.differentiable:
            raise ConfigError(f"{encoder.name} cannot guide pictures, since no gradient reaches them: "
                              f"{encoder.pixels.reason}")  # fmt: skip
        encoder.model.requires_grad_(False)
        self._encoder = encoder

    @property
    def device(self) -> Any:
        """Where the encoder is."""
        return self._encoder.device

    def losses(self, images: Tensor, reports: Sequence[str], indications: Sequence[str | None]) -> Tensor:
        """1 − cosine of each picture and its report [B], 0 to 2; differentiable to the pixels.

        Args:
            images: [B, 1, H, W] float32 in [0, 1].
            reports: One for each.
            indications: Of no use here.
        """
        import torch

        with torch.no_grad():
            wanted = self._encoder.text_vectors(reports)
        return 1.0 - (self._encoder.image_vectors(images[:, 0]) * wanted).sum(dim=1)
