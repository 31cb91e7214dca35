"""What happens in front of the detector: a patient who moves or lies askew, a beam that is too narrow."""

from __future__ import annotations

import math

import numpy as np
from PIL import Image

from cxrlab.attacks.corruptions.image import ImageArray, each_channel, either, over, short_side

# Path of the movement as a share of the shorter side; on an image of 35 cm, 1 mm (a quick breath at a short exposure)
# to 12 mm, which makes vessels and the rim of the heart run together.
PATHS = (0.003, 0.007, 0.013, 0.022, 0.035)

# Degrees. Up to 2 is usual in bed; from about 15 on the image looks wrong at first sight.
DEGREES = (2.0, 4.0, 7.0, 11.0, 16.0)

# Mean width of the dark border as a share of the side. The first stays outside the chest, the third reaches the soft
# tissue of the flanks, the last cuts off outer ribs, an apex or an angle of the diaphragm.
BORDERS = (0.015, 0.03, 0.055, 0.085, 0.125)
UNEVEN = (0.4, 1.6)  # width of one of the four borders against the mean
SOFT = 0.004  # half-shadow of the collimator's edge, as a share of the side


def blur(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Moved during the exposure along a straight path, in a direction of the patient's own."""
    kernel = _path_kernel(PATHS[severity - 1] * short_side(image), float(rng.uniform(0.0, math.pi)))
    return each_channel(image, lambda channel: _convolved(channel, kernel))


def rotation(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Turned about the middle, clockwise or against it; the corners that come in are black."""
    angle = either(rng) * DEGREES[severity - 1]

    def turned(channel: ImageArray) -> ImageArray:
        return np.asarray(Image.fromarray(channel).rotate(angle, Image.Resampling.BILINEAR), dtype=np.float32)

    return each_channel(image, turned)


def collimation(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """A black border that closes in from all four sides, from some farther than from others."""
    top, bottom, left, right = BORDERS[severity - 1] * rng.uniform(*UNEVEN, 4)
    height, width = image.shape[:2]
    open_field = _opened(height, top, bottom)[:, None] * _opened(width, left, right)[None, :]
    return image * over(image, open_field)


def _path_kernel(path: float, angle: float) -> ImageArray:
    """Time spent at each pixel along a path (pixels, radians): [k, k], adding up to 1.

    Points between pixels are shared by their four neighbours, so that a path shorter than a pixel blurs as well.
    """
    reach = math.ceil(path / 2.0) + 1
    along = np.linspace(-0.5 * path, 0.5 * path, 4 * math.ceil(path) + 9)
    column, row = along * math.cos(angle) + reach, along * math.sin(angle) + reach
    left, top = np.floor(column).astype(np.int64), np.floor(row).astype(np.int64)
    right_share, low_share = column - left, row - top
    kernel = np.zeros((2 * reach + 1, 2 * reach + 1))
    np.add.at(kernel, (top, left), (1 - low_share) * (1 - right_share))
    np.add.at(kernel, (top, left + 1), (1 - low_share) * right_share)
    np.add.at(kernel, (top + 1, left), low_share * (1 - right_share))
    np.add.at(kernel, (top + 1, left + 1), low_share * right_share)
    weights: ImageArray = (kernel / kernel.sum()).astype(np.float32)
    return weights


def _convolved(channel: ImageArray, kernel: ImageArray) -> ImageArray:
    """Convolution through the Fourier plane; beyond its rim the image goes on as it ends."""
    reach = kernel.shape[0] // 2
    wide = np.pad(channel, reach, mode="edge")
    spectrum = np.fft.rfft2(wide) * np.fft.rfft2(kernel, s=wide.shape)
    full = np.fft.irfft2(spectrum, s=wide.shape)
    # The kernel's middle lies `reach` from its corner, which moves the image as far as the padding did, once more.
    return full[2 * reach :, 2 * reach :].astype(np.float32)


def _opened(length: int, first: float, last: float) -> ImageArray:
    """1 where the beam passes along one side, 0 in the shadow of both jaws, soft over their half-shadow."""
    at = (np.arange(length, dtype=np.float32) + np.float32(0.5)) / np.float32(length)
    soft = max(SOFT, 0.5 / length)  # no sharper than a pixel, so that a border of half a pixel is a half-dark one
    opening = np.clip((at - np.float32(first)) / np.float32(2.0 * soft) + np.float32(0.5), 0.0, 1.0)
    closing = np.clip((np.float32(1.0 - last) - at) / np.float32(2.0 * soft) + np.float32(0.5), 0.0, 1.0)
    passed: ImageArray = np.minimum(opening, closing).astype(np.float32)
    return passed
