"""Was something added to every pixel? The finest grain of an image against that of benign ones."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cxrlab.extraction.detection.base import Detector
from cxrlab.extraction.detection.looks import GRAIN, columns
from cxrlab.extraction.detection.traffic import Asked, Traffic

# Noise raises every measure of grain but the correlation of neighbours, which it lowers.
_WAY = np.array([-1.0 if name == "neighbours" else 1.0 for name in GRAIN])
_LEAST_SPREAD = 1e-6  # of a measure that is the same in all benign images


class Perturbation(Detector):
    """The score is the largest of the grain's measures, in standard deviations above the mean of benign images.

    An image smoother than benign ones is not flagged. A change as small as an image's own noise is not seen, and a
    picture with much fine texture is flagged although nobody changed it.
    """

    name: ClassVar[str] = "perturbation"
    per_image: ClassVar[bool] = True
    sees_features: ClassVar[bool] = False

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Mean and spread of the grain of benign images."""
        self._columns = columns(GRAIN)
        grain = benign.looks[:, self._columns]
        self.mean, self.spread = grain.mean(axis=0), np.maximum(grain.std(axis=0), _LEAST_SPREAD)

    def start(self) -> Perturbation:
        """Images are judged one by one, so that there is no state."""
        return self

    def see(self, asked: Asked) -> float:
        """How far the grain of this image exceeds that of benign ones."""
        return float((_WAY * (asked.looks[self._columns] - self.mean) / self.spread).max())
