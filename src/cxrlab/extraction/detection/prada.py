"""Are the distances between an account's images spread as those of benign accounts are?

The idea of PRADA (Juuti and others, 2019): honest images come at distances that are nearly normal, made-up ones do not.
Here the distance of an image is that to the nearest earlier one of the account in the space of an encoder; there are no
classes to keep apart. Whoever asks about natural pictures may well pass: their distances are nearly normal too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from cxrlab.extraction.detection.base import Detector
from cxrlab.extraction.detection.shapiro import shapiro_wilk
from cxrlab.extraction.detection.traffic import Asked, Traffic, Vector

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
