"""Do the last few images come from where benign ones come from? The maximum mean discrepancy of a sliding window."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import numpy as np

from cxrlab.extraction.detection.base import Detector
from cxrlab.extraction.detection.traffic import Asked, Traffic, Vector

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
