"""Pictures that are no chest radiographs get a polite refusal instead of a report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cxrlab.extraction.defence.base import Defence

if TYPE_CHECKING:
    from cxrlab.extraction.records import Pixels


class Gate(Defence):
    """Answers what looks like a chest radiograph.

    A report on a cat would be untrue whatever it says, so a refusal harms nobody but the sender of a real image that
    is taken for none; that share is the benign cost.

    Args:
        is_chest_image: uint8 [H, W] → whether it is one; any callable.
    """

    name = "gate"
    refusal = "This picture was not recognised as a frontal radiograph; please check the upload and send it again."

    def __init__(self, is_chest_image: Callable[[Pixels], bool]) -> None:
        self.is_chest_image = is_chest_image

    def admits(self, asked: Pixels, account: str, number: int) -> bool:
        """Whether the callable takes it for a chest radiograph."""
        return bool(self.is_chest_image(asked))
