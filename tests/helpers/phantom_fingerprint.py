"""A coarse fingerprint of the phantom renderer that is the same on every machine."""

from __future__ import annotations

import hashlib
import io

import numpy as np
from PIL import Image

from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus_writer import NewStudy
from cxrlab.data.phantom.corpus import DRAWING, LATERAL_DRAWING, draw_studies, patients_with_visits

CONFIG = PhantomConfig(n=12, size=64, seed=5)


LATERAL = PhantomConfig(n=12, size=64, seed=5, lateral=True, hidden=0.5)


def fingerprint() -> dict[str, object]:
    """The drawing number, mean grey of each image's quarters in hundredths, and a digest of truth and words."""
    drawn = _drawn(CONFIG)
    words = "\n".join(repr(one.study.to_json()) for one in drawn)
    return {"drawing": DRAWING, "greys": _greys(drawn, 0), "words": hashlib.sha256(words.encode()).hexdigest()}


def lateral_fingerprint() -> dict[str, object]:
    """The number of the lateral drawing, and the mean grey of each lateral image's quarters in hundredths."""
    return {"lateral_drawing": LATERAL_DRAWING, "greys": _greys(_drawn(LATERAL), 1)}


def _drawn(config: PhantomConfig) -> list[NewStudy]:
    return [one for order in patients_with_visits(config) for one in draw_studies(config, order)]


def _greys(drawn: list[NewStudy], index: int) -> list[list[float]]:
    greys = []
    for one in drawn:
        image = np.asarray(Image.open(io.BytesIO(one.files[one.study.images[index].path]))) / 255
        quarters = image.reshape(2, 32, 2, 32).mean((1, 3)).ravel()
        greys.append([round(float(grey), 2) for grey in quarters])
    return greys
