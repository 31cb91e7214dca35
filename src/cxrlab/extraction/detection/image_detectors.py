"""Is this a chest radiograph at all? Its distance from benign images, by layout, tones and the vector of an encoder."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cxrlab.extraction.detection.base import Asked, Detector, Traffic, Vector
from cxrlab.extraction.detection.features import GRAIN, LAYOUT, TONES, columns

# Five grey levels of 255: a number that benign images hardly change in must not decide alone.
_MIN_TONE_SPREAD = 0.02


class ChestGate(Detector):
    """The score is Mahalanobis' distance from the mean benign image, over the root of the number of dimensions.

    Layout and tones carry most of it. Vectors of an encoder are added where there are any: one that has seen nothing
    but chests places other pictures among them.
    """

    name: ClassVar[str] = "chest-gate"
    per_image: ClassVar[bool] = True
    needs_encoder: ClassVar[bool] = False

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Mean, spread and correlations of benign images."""
        self._columns = columns((*TONES, *LAYOUT))
        rows = np.stack([self._row(asked) for asked in benign])
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

    def see(self, asked: Asked) -> float:
        """The distance of this image, about 1 for a benign one."""
        scaled = (self._row(asked) - self.mean) / self.spread
        return float(np.sqrt(scaled @ self.inverse @ scaled))

    def _row(self, asked: Asked) -> Vector:
        return np.concatenate([asked.looks[self._columns], asked.features])


# Noise raises every measure of grain but the correlation of neighbours, which it lowers.
_WAY = np.array([-1.0 if name == "neighbours" else 1.0 for name in GRAIN])
_MIN_GRAIN_SPREAD = 1e-6  # of a measure that is the same in all benign images


class Perturbation(Detector):
    """The score is the largest of the grain's measures, in standard deviations above the mean of benign images.

    An image smoother than benign ones is not flagged. A change as small as an image's own noise is not seen, and a
    picture with much fine texture is flagged although nobody changed it.
    """

    name: ClassVar[str] = "perturbation"
    per_image: ClassVar[bool] = True
    needs_encoder: ClassVar[bool] = False

    def fit(self, benign: Traffic, rng: np.random.Generator) -> None:
        """Mean and spread of the grain of benign images."""
        self._columns = columns(GRAIN)
        grain = benign.looks[:, self._columns]
        self.mean, self.spread = grain.mean(axis=0), np.maximum(grain.std(axis=0), _MIN_GRAIN_SPREAD)

    def start(self) -> Perturbation:
        """Images are judged one by one, so that there is no state."""
        return self

    def see(self, asked: Asked) -> float:
        """How far the grain of this image exceeds that of benign ones."""
        return float((_WAY * (asked.looks[self._columns] - self.mean) / self.spread).max())
