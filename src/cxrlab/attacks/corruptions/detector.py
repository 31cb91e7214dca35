"""What the detector adds: the noise of too few photons, and the shadow of the anti-scatter grid."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from cxrlab.attacks.corruptions.display import LOG_RANGE
from cxrlab.attacks.corruptions.image import ImageArray, over, resized, short_side

# Photons are counted in cells of 1/256 of the shorter side: fine enough for the grain that readers call mottle, and
# the same for every image. An image with fewer pixels counts as many photons in fewer cells and so has less noise a
# pixel: seen at one size, a small and a large image are equally noisy.
CELLS = 256

# Photons in a cell where nothing stands in the beam. Each step is two fifths of the dose before it; the first gives a
# deviation of about 0.011 in middle grey, no more than a good image has of its own, the last 0.07, and 0.15 in white.
PHOTONS = (4000.0, 1600.0, 640.0, 250.0, 100.0)

# Height of the lines from the middle to the crest; 0.01 is seen on flat grey only, 0.1 covers small vessels.
LINE_HEIGHTS = (0.01, 0.02, 0.036, 0.06, 0.1)
LINES = (56.0, 80.0)  # across the width: coarse enough to outlive the shrinking to what a model sees
LEAST_PERIOD = 2.5  # pixels; finer lines would turn into other, slower waves
TILT = math.radians(3.0)  # a grid never lies quite straight


def low_dose(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Poisson noise of the counts behind each grey value: the white parts, where few photons arrive, suffer most."""
    field = _noise_field(rng, *image.shape[:2])
    cells = min(short_side(image), CELLS)
    unattenuated = PHOTONS[severity - 1] * (CELLS / cells) ** 2
    root = np.sqrt(np.float32(unattenuated)) * np.exp(np.float32(-0.5 * LOG_RANGE) * image)
    # The root of a Poisson count is a bell of deviation 1/2 around the root of its mean, to a good approximation
    # down to a few counts. One field of bells then serves every dose, which drawn counts could not.
    counted = np.maximum(root + np.float32(0.5) * over(image, field), np.float32(0.5))
    noisy: ImageArray = image - np.float32(2.0 / LOG_RANGE) * (np.log(counted) - np.log(root))
    return noisy


def grid_lines(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Fine parallel lines from a grid that stands still during the exposure."""
    height, width = image.shape[:2]
    lines = min(float(rng.uniform(*LINES)), width / LEAST_PERIOD)
    tilt, start = float(rng.uniform(-TILT, TILT)), float(rng.uniform(0.0, 2.0 * math.pi))
    across = np.arange(width, dtype=np.float32) * np.float32(math.cos(tilt))
    down = np.arange(height, dtype=np.float32) * np.float32(math.sin(tilt))
    phase = (across[None, :] + down[:, None]) * np.float32(2.0 * math.pi * lines / width)
    return image + np.float32(LINE_HEIGHTS[severity - 1]) * over(image, np.cos(phase + np.float32(start)))


def _noise_field(rng: np.random.Generator, height: int, width: int) -> ImageArray:
    """Bells of deviation 1, drawn in cells and spread over the pixels of an image that has more of them."""
    share = min(1.0, CELLS / min(height, width))
    rows, columns = max(1, round(height * share)), max(1, round(width * share))
    field = rng.standard_normal((rows, columns), dtype=np.float32)
    if (rows, columns) == (height, width):
        return field
    spread = resized(field, height, width, Image.Resampling.BICUBIC)
    # Values between two cells are averages and would be too calm.
    return spread / np.float32(spread.std())
