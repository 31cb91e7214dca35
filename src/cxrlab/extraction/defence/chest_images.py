"""Is this a chest radiograph? The detector of that name as a plain yes or no, one picture at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.extraction.detection.base import Detector
from cxrlab.extraction.detection.config import DetectorSettings
from cxrlab.extraction.detection.looks import looks_of
from cxrlab.extraction.detection.table import DETECTORS
from cxrlab.extraction.detection.traffic import Asked, Traffic

if TYPE_CHECKING:
    from cxrlab.extraction.records import Picture, Pixels

_NONE = np.zeros(0)  # no encoder: a gate has to answer before any model is asked


class ChestImages:
    """Says yes to what lies no farther from benign images than all but a stated share of them.

    Args:
        benign: Images that the detector is set on; too few for the bound are a `DataError` that gives the number.
        bound: Share of benign images that may get a no.
        seed: Decides which of them fit the detector and which set its threshold.
    """

    def __init__(self, benign: Sequence[Picture], *, bound: float, seed: int) -> None:
        detector: Detector = DETECTORS.load("chest-gate")(DetectorSettings(image_bound=bound))
        looks = np.stack([looks_of(picture.pixels) for picture in benign])
        keys = tuple(picture.key for picture in benign)
        try:
            detector.calibrate(Traffic(keys, keys, np.zeros((len(keys), 0)), looks), seed)
        except DataError as error:  # the bound of a gate has a name of its own
            raise DataError(str(error).replace("image_bound", "gate_bound")) from None
        self.detector, self.bound = detector, bound

    def __call__(self, pixels: Pixels) -> bool:
        """Whether uint8 [H, W] passes."""
        # An image is judged for itself, so that a new watch for each keeps no memory.
        return not self.detector.begin().see(Asked(_NONE, looks_of(pixels))).flagged
