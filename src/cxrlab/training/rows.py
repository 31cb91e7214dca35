"""What the engine asks of the data of a stage."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

ITEMS, ROWS = "items", "rows"


class Rows(Protocol):
    """What is learnt: any batch of rows at once."""

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """The batch of these rows, by the names of the module's arguments.

        `items` is what the sum is divided by. `rows`, where images are varied, are the rows of the images; the module
        is given `seeds` in their place, another for each row and step.
        """
        ...
