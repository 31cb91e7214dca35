"""The detectors: PRADA, MMD and coverage judge an account, the chest gate and the perturbation detector single images.

A new detector is one subclass of `Detector` here and one row of `base.DETECTORS`.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrlab.extraction.detection.base import Detector, QueryFeatures, Traffic, Vector, draw_accounts
from cxrlab.extraction.detection.features import GRAIN, LAYOUT, TONES, columns

if TYPE_CHECKING:
    from cxrlab.extraction.detection.config import DetectorSettings

_FARTHEST = 3.0  # standard deviations from the mean beyond which a distance is left out


class Prada(Detector):
    """PRADA (Juuti and others, 2019): benign images come at nearly normal distances, made-up ones do not.

    The score is 1 - W (Shapiro-Wilk) of the distances, 0 if they are exactly normal. The distance of an image is that
    to the nearest earlier one of the account in the space of an encoder; there are no classes to keep apart. Natural
    images may pass: their distances are nearly normal too.
    """

    name: ClassVar[str] = "prada"

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Nothing to learn: the threshold measures how far from normal benign distances are."""

    def start(self) -> Distances:
        """No image yet."""
        return Distances(self.settings)


class Distances:
    """Distances of one account's images to the nearest earlier one."""

    def __init__(self, settings: DetectorSettings) -> None:
        self._least = settings.least
        self._images: list[Vector] = []
        self._distances: list[float] = []

    def update(self, query: QueryFeatures) -> float:
        """1 - W after this image; not-a-number before `least` distances, and if all are the same."""
        if self._images:
            gaps = np.asarray(self._images) - query.features
            self._distances.append(float(np.sqrt((gaps * gaps).sum(axis=1).min())))
        self._images.append(query.features)
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
    """W in (0, 1], near 1 for normal numbers; not-a-number for fewer than 6 numbers or if all are the same."""
    ordered = np.sort(np.asarray(values, np.float64))
    if len(ordered) < LEAST:
        return float("nan")
    around = ordered - ordered.mean()
    spread = float(around @ around)
    # Rounding alone spreads equal numbers by about their size times 1e-16.
    if spread <= len(ordered) * (1e-14 * float(np.abs(ordered).max())) ** 2:
        return float("nan")
    return min(1.0, float(_shapiro_weights(len(ordered)) @ around) ** 2 / spread)


@cache
def _shapiro_weights(n: int) -> NDArray[np.float64]:
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
    """The last images of one account, with the sums that MMD² needs; a new image costs one row of similarities."""

    def __init__(self, detector: Mmd, size: int) -> None:
        self._detector, self._size = detector, size
        self._images: deque[Vector] = deque(maxlen=size)
        self._to_benign: deque[float] = deque(maxlen=size)
        self._pairs = 0.0  # sum of similarities over pairs of images in the window, each pair once

    def update(self, query: QueryFeatures) -> float:
        """MMD² of the window after this image; not-a-number until the window is full."""
        image = query.features[None]
        if len(self._images) == self._size:
            first = self._images.popleft()
            self._pairs -= float(self._detector.kernel(first[None], np.asarray(self._images)).sum())
        if self._images:
            self._pairs += float(self._detector.kernel(image, np.asarray(self._images)).sum())
        self._images.append(query.features)
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
_MIN_CELL_SPREAD = 0.5  # half a cell: no benign account is so alike that less could matter


class Coverage(Detector):
    """The score is how many cells an account has touched above the mean of benign ones of as many images.

    It is given in standard deviations of benign accounts. An account that stays in fewer cells than benign ones has a
    score below 0 and is not detected.
    """

    name: ClassVar[str] = "coverage"

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Draw the planes, and learn how the number of touched cells grows in benign accounts."""
        settings, width = self.settings, benign.features.shape[1]
        self.normals = rng.standard_normal((width, settings.planes))
        along = benign.features @ self.normals
        self.places = along.mean(axis=0) + rng.uniform(-_WIDE, _WIDE, settings.planes) * along.std(axis=0)
        cells = self.cells(benign.features)
        grown = []
        for places in draw_accounts(len(benign), settings.account_queries, settings.accounts, rng):
            new = np.zeros(len(places))
            new[np.unique(cells[places], return_index=True)[1]] = 1
            grown.append(np.cumsum(new))
        self.expected = np.mean(grown, axis=0)
        self.spread = np.maximum(np.std(grown, axis=0), _MIN_CELL_SPREAD)

    def cells(self, features: Vector) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The number of the cell of each image, [N, D] to [N]."""
        sides = (features @ self.normals > self.places).astype(np.int64)
        return np.asarray(sides @ (np.int64(1) << np.arange(self.settings.planes, dtype=np.int64)))

    def start(self) -> CoveredCells:
        """No cell touched yet."""
        return CoveredCells(self)


class CoveredCells:
    """The cells that one account has touched."""

    def __init__(self, detector: Coverage) -> None:
        self._detector, self._images = detector, 0
        self._cells: set[int] = set()

    def update(self, query: QueryFeatures) -> float:
        """Standard deviations above benign accounts after this image; not-a-number for the first few."""
        self._cells.add(int(self._detector.cells(query.features[None])[0]))
        self._images += 1
        if self._images < _FIRST:
            return float("nan")
        place = self._images - 1
        return float((len(self._cells) - self._detector.expected[place]) / self._detector.spread[place])


# Five grey levels of 255: a number that benign images hardly change in must not decide alone.
_MIN_TONE_SPREAD = 0.02


class ChestGate(Detector):
    """The score is Mahalanobis' distance from the mean benign image, over the root of the number of dimensions.

    Layout and tones carry most of it. Vectors of an encoder are added where there are any: one that has seen nothing
    but chests places other images among them.
    """

    name: ClassVar[str] = "chest-gate"
    per_image: ClassVar[bool] = True
    needs_encoder: ClassVar[bool] = False

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Mean, spread and correlations of benign images."""
        self._columns = columns((*TONES, *LAYOUT))
        rows = np.stack([self._row(query) for query in benign])
        self.mean, self.spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), _MIN_TONE_SPREAD)
        scaled = (rows - self.mean) / self.spread
        related = scaled.T @ scaled / len(scaled)
        # Correlations of few images are mostly chance: the fewer there are for each number, the less they count.
        images, numbers = scaled.shape
        mixed = (images * related + numbers * np.eye(numbers)) / (images + numbers)
        self.inverse = np.linalg.inv(mixed) / numbers

    def start(self) -> ChestGate:
        """Images are judged one by one, so that there is no state."""
        return self

    def update(self, query: QueryFeatures) -> float:
        """The distance of this image, about 1 for a benign one."""
        scaled = (self._row(query) - self.mean) / self.spread
        return float(np.sqrt(scaled @ self.inverse @ scaled))

    def _row(self, query: QueryFeatures) -> Vector:
        return np.concatenate([query.image_statistics[self._columns], query.features])


# Noise raises every measure of grain but the correlation of neighbours, which it lowers.
_WAY = np.array([-1.0 if name == "neighbours" else 1.0 for name in GRAIN])
_MIN_GRAIN_SPREAD = 1e-6  # of a measure that is the same in all benign images


class Perturbation(Detector):
    """The score is the largest of the grain's measures, in standard deviations above the mean of benign images.

    An image smoother than benign ones is not flagged. A change as small as an image's own noise is not seen, and an
    image with much fine texture is flagged although it was not perturbed.
    """

    name: ClassVar[str] = "perturbation"
    per_image: ClassVar[bool] = True
    needs_encoder: ClassVar[bool] = False

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Mean and spread of the grain of benign images."""
        self._columns = columns(GRAIN)
        grain = benign.image_statistics[:, self._columns]
        self.mean, self.spread = grain.mean(axis=0), np.maximum(grain.std(axis=0), _MIN_GRAIN_SPREAD)

    def start(self) -> Perturbation:
        """Images are judged one by one, so that there is no state."""
        return self

    def update(self, query: QueryFeatures) -> float:
        """How far the grain of this image exceeds that of benign ones."""
        return float((_WAY * (query.image_statistics[self._columns] - self.mean) / self.spread).max())
