"""Is this a chest radiograph at all? Its distance from benign images, by layout, tones and the vector of an encoder."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cxrlab.extraction.detection.base import Detector
from cxrlab.extraction.detection.looks import LAYOUT, TONES, columns
from cxrlab.extraction.detection.traffic import Asked, Traffic, Vector

# Five grey levels of 255: a number that benign images hardly change in must not decide alone.
_LEAST_SPREAD = 0.02


class ChestGate(Detector):
    """The score is Mahalanobis' distance from the mean benign image, over the root of the number of dimensions.

    Layout and tones carry most of it. Vectors of an encoder are added where there are any: one that has seen nothing
    but chests places other pictures among them.
    """

    name: ClassVar[str] = "chest-gate"
    per_image: ClassVar[bool] = True
    sees_features: ClassVar[bool] = False

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Mean, spread and correlations of benign images."""
        self._columns = columns((*TONES, *LAYOUT))
        rows = np.stack([self._row(asked) for asked in benign])
        self.mean, self.spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), _LEAST_SPREAD)
        scaled = (rows - self.mean) / self.spread
        related = scaled.T @ scaled / len(scaled)
        # Correlations of few images are mostly chance: the fewer there are for each number, the less they count.
        images, numbers = scaled.shape
        mixed = (images * related + numbers * np.eye(numbers)) / (images + numbers)
        self.inverse = np.linalg.inv(mixed) / numbers

    def start(self) -> ChestGate:
        """Images are judged one by one, so that there is no state."""
        return self

    def see(self, asked: Asked) -> float:
        """The distance of this image, about 1 for a benign one."""
        scaled = (self._row(asked) - self.mean) / self.spread
        return float(np.sqrt(scaled @ self.inverse @ scaled))

    def _row(self, asked: Asked) -> Vector:
        return np.concatenate([asked.looks[self._columns], asked.features])
