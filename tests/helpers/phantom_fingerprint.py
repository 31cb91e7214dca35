"""A coarse fingerprint of the phantom renderer that is the same on every machine."""

from __future__ import annotations

import hashlib
import io

import numpy as np
from PIL import Image

from cxrlab.data.config import PhantomConfig
from cxrlab.data.phantom.corpus import DRAWING, draw_studies, patients_with_visits

CONFIG = PhantomConfig(n=12, size=64, seed=5)


def fingerprint() -> dict[str, object]:
    """The drawing number, mean grey of each image's quarters in hundredths, and a digest of truth and words."""
    drawn = [one for order in patients_with_visits(CONFIG) for one in draw_studies(CONFIG, order)]
    greys = []
    for one in drawn:
        image = np.asarray(Image.open(io.BytesIO(one.files[one.study.images[0].path]))) / 255
        quarters = image.reshape(2, 32, 2, 32).mean((1, 3)).ravel()
        greys.append([round(float(grey), 2) for grey in quarters])
    words = "\n".join(repr(one.study.to_json()) for one in drawn)
    return {"drawing": DRAWING, "greys": greys, "words": hashlib.sha256(words.encode()).hexdigest()}
