"""What an attacker wants: a number for each image that rises as he comes nearer, and a verdict whether he is there.

An objective knows its images by their rows: row 3 has the report, question or label of the fourth image that the
objective was made for. An attack hands over images with the rows that they stand for, so that images which are done can
leave the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class Objective(ABC):
    """One aim for a batch of images.

    Attributes:
        name: In one word, for conditions and pages (`report`, `answers`).
        gradients: Whether `losses` can be differentiated with respect to the images.
        scores: Whether `losses` tells more than the answer's words do; False where only reports come back.
        flat_at_clean: Whether the gradient is 0 at every clean image, so that whoever follows it has to begin beside
            it.
    """

    name: str = ""
    gradients: bool = True
    scores: bool = True
    flat_at_clean: bool = False

    @abstractmethod
    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """One number an image [B], higher is nearer to the aim; images do not influence each other.

        Args:
            images: [B, C, H, W] float32 in [0, 1].
            rows: Which images of the objective they are.
        """

    @abstractmethod
    def broken(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Whether the aim is reached, by what the model answers to these images; [B] bool."""

    def reached(self, losses: Tensor, rows: Sequence[int]) -> Tensor | None:
        """Whether losses [B] tell that the aim is reached, [B] bool; None where only an answer tells."""
        return None
