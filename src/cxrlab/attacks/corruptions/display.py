"""Grey values gone wrong between detector and screen: exposure, inversion, contrast, gamma.

All four treat every pixel alike, wherever it stands, so the size of the image does not matter to them.
"""

from __future__ import annotations

import math

import numpy as np

from cxrlab.attacks.corruptions.image import ImageArray, either

# Image values are taken as the logarithm of what the detector counted: from black to white it counts e³, about 20
# times, less. A doubled dose then shifts the whole image by ln 2 / 3 of its range.
LOG_RANGE = 3.0

# Doublings or halvings of the dose. A quarter is within what an automatic exposure does from image to image; from one
# doubling on, guides for technicians advise to look whether the image must be repeated.
STOPS = (0.25, 0.5, 0.8, 1.2, 1.6)

# How far each value goes towards its opposite. Halfway every image is one even grey that nobody reads, and both sides
# of it are hard to read: the steps leave it out and pass from a paled image (contrast 0.4) to a pale negative (-0.5).
TURNED = (0.1, 0.2, 0.3, 0.75, 1.0)

# Share of the contrast that scattered rays leave: a thick patient without a grid loses about half.
CONTRAST_LEFT = (0.85, 0.72, 0.58, 0.45, 0.32)

# Exponents; screens that are set wrongly differ by about 1.2, and from 2 on the lungs or the mediastinum are lost.
GAMMAS = (1.15, 1.35, 1.65, 2.1, 2.8)


def exposure(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Too dark (overexposed) or too white (underexposed), with what leaves the window clipped."""
    shift = STOPS[severity - 1] * math.log(2.0) / LOG_RANGE
    shifted: ImageArray = image + np.float32(either(rng) * shift)
    return np.clip(shifted, 0.0, 1.0)


def inversion(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Black and white changing places, as when the photometric tag of a file is ignored; 5 is the full negative."""
    turned = np.float32(TURNED[severity - 1])
    if turned == 1.0:
        return np.float32(1.0) - image
    return image + turned * (np.float32(1.0) - np.float32(2.0) * image)


def contrast(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Paler about the mean of the image, which stays as bright as it was."""
    middle = np.float32(image.mean(dtype=np.float64))
    return middle + np.float32(CONTRAST_LEFT[severity - 1]) * (image - middle)


def gamma(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Middle greys too dark or too light, black and white as they were."""
    exponent = GAMMAS[severity - 1] ** either(rng)
    return np.power(image, np.float32(exponent))
