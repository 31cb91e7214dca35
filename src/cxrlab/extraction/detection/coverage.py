"""How much of the space of images has an account been to? An honest one stays where images lie; a copier goes about.

After B4B (Dubiński and others, 2023), which meters how much of an encoder's space an account has covered. Cells are the
sides of random planes. Their places are drawn wider than benign images spread, so that there are cells to be found that
benign images never touch.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cxrlab.extraction.detection.base import Detector
from cxrlab.extraction.detection.traffic import Asked, Traffic, Vector, drawn_accounts

_WIDE = 3.0  # planes lie up to so many standard deviations of benign images from their mean
_FIRST = 10  # images before which every account has touched nearly as many cells as images
_LEAST_SPREAD = 0.5  # half a cell: no benign account is so alike that less could tell


class Coverage(Detector):
    """The score is how many cells an account has touched above the mean of benign ones of as many images.

    It is given in standard deviations of benign accounts. An account that stays in fewer cells than benign ones has a
    score below 0 and is not caught.
    """

    name: ClassVar[str] = "coverage"

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Lay the planes, and learn how the number of touched cells grows in benign accounts."""
        settings, width = self.settings, benign.features.shape[1]
        self.normals = rng.standard_normal((width, settings.planes))
        along = benign.features @ self.normals
        self.places = along.mean(axis=0) + rng.uniform(-_WIDE, _WIDE, settings.planes) * along.std(axis=0)
        cells = self.cells(benign.features)
        drawn = drawn_accounts(len(benign), settings.account_queries, settings.accounts, rng)
        grown = np.stack([_touched(cells[places]) for places in drawn])
        self.expected, self.spread = grown.mean(axis=0), np.maximum(grown.std(axis=0), _LEAST_SPREAD)

    def cells(self, features: Vector) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The number of the cell of each image, [N, D] to [N]."""
        sides = (features @ self.normals > self.places).astype(np.int64)
        return np.asarray(sides @ (np.int64(1) << np.arange(self.settings.planes, dtype=np.int64)))

    def start(self) -> Visited:
        """No cell touched yet."""
        return Visited(self)


class Visited:
    """The cells that one account has touched.

    Args:
        detector: Tells the cell of an image, and what is expected.
    """

    def __init__(self, detector: Coverage) -> None:
        self._detector, self._images = detector, 0
        self._cells: set[int] = set()

    def see(self, asked: Asked) -> float:
        """Standard deviations above benign accounts after this image; not-a-number for the first few."""
        self._cells.add(int(self._detector.cells(asked.features[None])[0]))
        self._images += 1
        if self._images < _FIRST:
            return float("nan")
        place = self._images - 1
        return float((len(self._cells) - self._detector.expected[place]) / self._detector.spread[place])


def _touched(cells: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Vector:
    """How many different cells have been touched after each image, [N]."""
    new = np.zeros(len(cells))
    new[np.unique(cells, return_index=True)[1]] = 1
    return np.cumsum(new)
