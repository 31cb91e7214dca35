"""Are the distances between an account's images spread as those of benign accounts are?

The idea of PRADA (Juuti and others, 2019): honest images come at distances that are nearly normal, made-up ones do not.
Here the distance of an image is that to the nearest earlier one of the account in the space of an encoder; there are no
classes to keep apart. Whoever asks about natural pictures may well pass: their distances are nearly normal too.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrlab.extraction.detection.base import Asked, Detector, Traffic, Vector, draw_accounts

if TYPE_CHECKING:
    from cxrlab.extraction.detection.config import DetectorSettings

_FARTHEST = 3.0  # standard deviations from the mean beyond which a distance is left out


class Prada(Detector):
    """The score is 1 - W of the distances, 0 where they are exactly normal."""

    name: ClassVar[str] = "prada"

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Nothing to learn: the threshold says how far from normal benign distances are."""

    def start(self) -> Distances:
        """No image yet."""
        return Distances(self.settings)


class Distances:
    """Distances of one account's images to the nearest earlier one.

    Args:
        settings: How many distances are waited for, and how many images an account has at most.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._least = settings.least
        self._images: list[Vector] = []
        self._distances: list[float] = []

    def see(self, asked: Asked) -> float:
        """1 - W after this image; not-a-number before `least` distances, and where all are the same."""
        if self._images:
            gaps = np.asarray(self._images) - asked.features
            self._distances.append(float(np.sqrt((gaps * gaps).sum(axis=1).min())))
        self._images.append(asked.features)
        if len(self._distances) < self._least:
            return float("nan")
        values = np.asarray(self._distances)
        kept = values[np.abs(values - values.mean()) <= _FARTHEST * values.std()]
        return 1.0 - shapiro_wilk(kept)


LEAST = 6  # below, the approximation has another form
# Royston (1995, Applied Statistics 44, algorithm AS R94): what the outermost two weights get above the plain ones,
# as polynomials in 1 / sqrt(n), powers 1 to 5.
_OUTER = (0.221157, -0.147981, -2.071190, 4.434685, -2.706056)
_NEXT = (0.042981, -0.293762, -1.752461, 5.682633, -3.582633)


def shapiro_wilk(values: ArrayLike) -> float:
    """W in (0, 1], near 1 for normal numbers; not-a-number for fewer than 6 numbers or when all are the same."""
    ordered = np.sort(np.asarray(values, np.float64))
    if len(ordered) < LEAST:
        return float("nan")
    around = ordered - ordered.mean()
    spread = float(around @ around)
    # Rounding alone spreads equal numbers by about their size times 1e-16.
    if spread <= len(ordered) * (1e-14 * float(np.abs(ordered).max())) ** 2:
        return float("nan")
    return min(1.0, float(_weights(len(ordered)) @ around) ** 2 / spread)


@cache
def _weights(n: int) -> NDArray[np.float64]:
    """Weights of the ordered numbers [n], of length 1 and antisymmetric."""
    normal = NormalDist()
    scores = np.array([normal.inv_cdf((rank - 0.375) / (n + 0.25)) for rank in range(1, n + 1)])
    square = float(scores @ scores)
    powers = (1 / n**0.5) ** np.arange(1, 6)
    outer = scores[-1] / square**0.5 + float(powers @ np.array(_OUTER))
    beside = scores[-2] / square**0.5 + float(powers @ np.array(_NEXT))
    left = (square - 2 * scores[-1] ** 2 - 2 * scores[-2] ** 2) / (1 - 2 * outer**2 - 2 * beside**2)
    weights = scores / left**0.5
    weights[[0, 1, -2, -1]] = -outer, -beside, beside, outer
    return np.asarray(weights)


_PAIRED = 1000  # benign images behind the median distance, at most: a million distances


class Mmd(Detector):
    """The score is MMD², unbiased, between the last `window` images of an account and benign images.

    The kernel is exp(-d² / 2 b²) with b the median distance of benign images.
    """

    name: ClassVar[str] = "mmd"

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Keep benign images to compare with, and take the bandwidth from them."""
        chosen = rng.permutation(len(benign))
        some = squared_distances(*(benign.features[chosen[:_PAIRED]],) * 2)
        between = some[np.triu_indices(len(some), 1)]
        # Images that are all the same have no distance; any width then gives the same kernel.
        self.width = float(np.median(between)) or 1.0
        self.reference = benign.features[chosen[: self.settings.reference]]
        among = self.kernel(self.reference, self.reference)
        self.within = float(among.sum() - np.trace(among)) / (len(among) * (len(among) - 1))

    def kernel(self, one: Vector, two: Vector) -> Vector:
        """Similarities of images [N, D] and [M, D], each in (0, 1]: [N, M]."""
        return np.exp(-squared_distances(one, two) / (2 * self.width))

    def start(self) -> Window:
        """An empty window."""
        return Window(self, self.settings.window)


class Window:
    """The last images of one account, with the sums that MMD² needs; a new image costs one row of similarities.

    Args:
        detector: Gives kernel and benign images.
        size: Images in the window.
    """

    def __init__(self, detector: Mmd, size: int) -> None:
        self._detector, self._size = detector, size
        self._images: deque[Vector] = deque(maxlen=size)
        self._to_benign: deque[float] = deque(maxlen=size)
        self._pairs = 0.0  # sum of similarities over pairs of images in the window, each pair once

    def see(self, asked: Asked) -> float:
        """MMD² of the window after this image; not-a-number until the window is full."""
        image = asked.features[None]
        if len(self._images) == self._size:
            first = self._images.popleft()
            self._pairs -= float(self._detector.kernel(first[None], np.asarray(self._images)).sum())
        if self._images:
            self._pairs += float(self._detector.kernel(image, np.asarray(self._images)).sum())
        self._images.append(asked.features)
        self._to_benign.append(float(self._detector.kernel(image, self._detector.reference).mean()))
        if len(self._images) < self._size:
            return float("nan")
        within = 2 * self._pairs / (self._size * (self._size - 1))
        return within + self._detector.within - 2 * float(np.mean(self._to_benign))


def squared_distances(one: Vector, two: Vector) -> Vector:
    """Squared distances of rows [N, D] and [M, D]: [N, M], never below 0."""
    found = (one * one).sum(axis=1)[:, None] + (two * two).sum(axis=1) - 2 * one @ two.T
    return np.asarray(np.maximum(found, 0.0))


_WIDE = 3.0  # planes lie up to so many standard deviations of benign images from their mean
_FIRST = 10  # images before which every account has touched nearly as many cells as images
_MIN_CELL_SPREAD = 0.5  # half a cell: no benign account is so alike that less could tell


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
        drawn = draw_accounts(len(benign), settings.account_queries, settings.accounts, rng)
        grown = np.stack([_touched(cells[places]) for places in drawn])
        self.expected, self.spread = grown.mean(axis=0), np.maximum(grown.std(axis=0), _MIN_CELL_SPREAD)

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
