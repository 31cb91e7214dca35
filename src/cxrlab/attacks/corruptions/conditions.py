"""The corruptions by name, and the one way to apply them.

A corruption is `function(image, severity, rng) -> image` and has the idea alone. `corrupt` keeps the promises: the
image it was given stays as it is, and what comes back has the same shape and lies in [0, 1].
"""

from __future__ import annotations

import numpy as np

from cxrlab.attacks.corruptions.image import Corruption, ImageArray
from cxrlab.core.errors import ConfigError, shown
from cxrlab.core.randomness import generator
from cxrlab.core.tables import Table

SEVERITIES = (1, 2, 3, 4, 5)

CORRUPTIONS = Table(
    "corruption",
    {
        "exposure": "cxrlab.attacks.corruptions.display:exposure",
        "low-dose": "cxrlab.attacks.corruptions.detector:low_dose",
        "blur": "cxrlab.attacks.corruptions.positioning:blur",
        "rotation": "cxrlab.attacks.corruptions.positioning:rotation",
        "inversion": "cxrlab.attacks.corruptions.display:inversion",
        "collimation": "cxrlab.attacks.corruptions.positioning:collimation",
        "grid-lines": "cxrlab.attacks.corruptions.detector:grid_lines",
        "marker": "cxrlab.attacks.corruptions.delivery:marker",
        "jpeg": "cxrlab.attacks.corruptions.delivery:jpeg",
        "pixelate": "cxrlab.attacks.corruptions.delivery:pixelate",
        "contrast": "cxrlab.attacks.corruptions.display:contrast",
        "gamma": "cxrlab.attacks.corruptions.display:gamma",
    },
)


def corrupt(name: str, image: ImageArray, severity: int, *, key: str, seed: int) -> ImageArray:
    """The image with one blemish; a new float32 array of the same shape, in [0, 1].

    Args:
        name: A row of `CORRUPTIONS`.
        image: float32 [H, W] or [H, W, 3] in [0, 1], white is 1; it is not changed.
        severity: 1 (hardly visible) to 5 (the image would be taken again).
        key: What the image is called, usually the id of its study. The same key has the same luck (direction of a
            turn, field of noise) at every severity, so that severity is a dose.
        seed: The run's seed.
    """
    change: Corruption = CORRUPTIONS.load(name)
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise ConfigError(f"{shown(severity)} is no severity of '{name}'; give a whole number from 1 to 5.")
    clean = _checked(image)
    spoilt = change(clean, int(severity), generator(seed, "corruption", name, key))
    if spoilt.shape != clean.shape:
        raise ValueError(f"corruption '{name}' made {list(spoilt.shape)} of an image {list(clean.shape)}")
    return np.clip(spoilt, 0.0, 1.0).astype(np.float32, copy=False)


def _checked(image: ImageArray) -> ImageArray:
    """A copy that a corruption may write into; 0…255 and the like are refused, as they would be clipped to white."""
    grey, colour = image.ndim == 2, image.ndim == 3 and image.shape[-1] == 3
    if not (grey or colour) or 0 in image.shape or not np.issubdtype(image.dtype, np.floating):
        raise ValueError(f"an image is float [H, W] or [H, W, 3], not {image.dtype} {list(image.shape)}")
    if not (image.min() >= 0.0 and image.max() <= 1.0):
        raise ValueError("an image has values in [0, 1]; this one reaches outside or holds NaN")
    return np.array(image, dtype=np.float32, order="C")
