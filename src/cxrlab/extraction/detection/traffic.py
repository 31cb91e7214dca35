"""Questions in the order in which they were asked, as detectors see them: vectors, plain statistics, accounts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Asked:
    """One question.

    Args:
        features: Vector of an image encoder [D]; D is 0 where none is used.
        looks: Plain statistics [K] in the order of `looks.NAMES`.
    """

    features: Vector
    looks: Vector


@dataclass(frozen=True, eq=False)
class Traffic:
    """A stream of questions.

    Args:
        keys: Name of each picture [N]; several questions may show the same one.
        accounts: Who asked [N].
        features: Vectors of an image encoder [N, D].
        looks: Plain statistics [N, K].
    """

    keys: tuple[str, ...]
    accounts: tuple[str, ...]
    features: Vector
    looks: Vector

    def __post_init__(self) -> None:
        rows = {len(self.keys), len(self.accounts), len(self.features), len(self.looks)}
        if len(rows) > 1 or self.features.ndim != 2 or self.looks.ndim != 2:
            raise ValueError(
                f"{len(self.keys)} keys, {len(self.accounts)} accounts, features {self.features.shape} and looks "
                f"{self.looks.shape} are not one stream"
            )

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[Asked]:
        return (Asked(*row) for row in zip(self.features, self.looks, strict=True))

    def take(self, indices: Sequence[int] | Indices) -> Traffic:
        """The questions at these places, in this order."""
        places = np.asarray(indices, np.intp)
        return Traffic(
            tuple(self.keys[place] for place in places),
            tuple(self.accounts[place] for place in places),
            self.features[places],
            self.looks[places],
        )

    def by_account(self) -> dict[str, list[int]]:
        """Places of each account's questions, accounts in the order of their first."""
        found: dict[str, list[int]] = {}
        for place, account in enumerate(self.accounts):
            found.setdefault(account, []).append(place)
        return found


def drawn_accounts(images: int, queries: int, accounts: int, rng: np.random.Generator) -> Iterator[Indices]:
    """Places of the images that each of `accounts` benign accounts asks about, [queries] each.

    Within an account no image is asked twice. All images are cut into accounts before any image serves in a second cut,
    so that the first images // queries accounts have nothing in common.
    """
    if not 1 <= queries <= images:
        raise ValueError(f"an account of {queries} queries cannot be drawn from {images} images")
    made = 0
    while made < accounts:
        order = rng.permutation(images)
        for start in range(0, images - queries + 1, queries):
            if made < accounts:
                yield order[start : start + queries]
                made += 1
