"""Natural corruptions of radiographs (exposure, noise, motion, artefacts), by name and severity.

A corruption is `function(image, severity, rng) -> image`. `corrupt` checks what goes in and comes out: the given image
is not changed, and the result has the same shape and lies in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.errors import ConfigError, short_repr
from cxrlab.core.image_codec import decode, encode_jpeg, to_uint8, to_unit
from cxrlab.core.randomness import generator
from cxrlab.core.registry import Registry
from cxrlab.data.phantom.render import LETTERS

ImageArray = NDArray[np.float32]
Corruption = Callable[[ImageArray, int, np.random.Generator], ImageArray]

SEVERITIES = (1, 2, 3, 4, 5)

CORRUPTIONS = Registry(
    "corruption",
    {
        "exposure": "cxrlab.attacks.corruptions:exposure",
        "low-dose": "cxrlab.attacks.corruptions:low_dose",
        "blur": "cxrlab.attacks.corruptions:blur",
        "rotation": "cxrlab.attacks.corruptions:rotation",
        "inversion": "cxrlab.attacks.corruptions:inversion",
        "collimation": "cxrlab.attacks.corruptions:collimation",
        "grid-lines": "cxrlab.attacks.corruptions:grid_lines",
        "marker": "cxrlab.attacks.corruptions:marker",
        "jpeg": "cxrlab.attacks.corruptions:jpeg",
        "pixelate": "cxrlab.attacks.corruptions:pixelate",
        "contrast": "cxrlab.attacks.corruptions:contrast",
        "gamma": "cxrlab.attacks.corruptions:gamma",
    },
)


def corrupt(name: str, image: ImageArray, severity: int, *, key: str, seed: int) -> ImageArray:
    """The corrupted image; a new float32 array of the same shape, in [0, 1].

    Args:
        name: A row of `CORRUPTIONS`.
        image: Float [H, W] or [H, W, 3] in [0, 1], white is 1.
        severity: 1 (hardly visible) to 5 (the image would be taken again).
        key: Name of the image, usually the study's id. The same key gets the same random numbers at every severity, so
            that severity is a dose.
        seed: The run's seed.
    """
    change: Corruption = CORRUPTIONS.load(name)
    if isinstance(severity, bool) or severity not in SEVERITIES:
        raise ConfigError(f"{short_repr(severity)} is not a severity of '{name}'; give a whole number from 1 to 5.")
    grey, colour = image.ndim == 2, image.ndim == 3 and image.shape[-1] == 3
    if not (grey or colour) or 0 in image.shape or not np.issubdtype(image.dtype, np.floating):
        raise ValueError(f"an image is float [H, W] or [H, W, 3], not {image.dtype} {list(image.shape)}")
    if not (image.min() >= 0.0 and image.max() <= 1.0):
        raise ValueError("an image has values in [0, 1]; this one has others or NaN")
    clean = np.array(image, dtype=np.float32, order="C")
    corrupted = change(clean, int(severity), generator(seed, "corruption", name, key))
    if corrupted.shape != clean.shape:
        raise ValueError(f"corruption '{name}' changed the shape {list(clean.shape)} to {list(corrupted.shape)}")
    return np.clip(corrupted, 0.0, 1.0).astype(np.float32, copy=False)


def short_side(image: ImageArray) -> int:
    """Pixels of the shorter side; sizes of artefacts are shares of it."""
    height, width = image.shape[:2]
    return min(int(height), int(width))


def each_channel(image: ImageArray, change: Callable[[ImageArray], ImageArray]) -> ImageArray:
    """Apply the same change to every channel [H, W] of an image."""
    if image.ndim == 2:
        return change(image)
    return np.stack([change(image[..., channel]) for channel in range(image.shape[-1])], axis=-1)


def over(image: ImageArray, field: ImageArray) -> ImageArray:
    """A field [H, W] in a shape that broadcasts over the channels of the image."""
    return field if image.ndim == 2 else field[..., None]


def resized(field: ImageArray, height: int, width: int, how: Image.Resampling) -> ImageArray:
    """A field [h, w] resized to [height, width]."""
    return np.asarray(Image.fromarray(field).resize((width, height), how), dtype=np.float32)


def random_sign(rng: np.random.Generator) -> float:
    """-1 or 1 with equal probability."""
    return 1.0 if rng.random() < 0.5 else -1.0


# Path of the movement as a share of the shorter side: on an image of 35 cm from 1 mm (a quick breath at a short
# exposure) to 12 mm, which blurs vessels and the edge of the heart.
PATHS = (0.003, 0.007, 0.013, 0.022, 0.035)

# Degrees. Up to 2 is usual for bedside images; from about 15 the image is obviously wrong.
DEGREES = (2.0, 4.0, 7.0, 11.0, 16.0)

# Mean width of the dark border as a share of the side. The first stays outside the chest, the third reaches the soft
# tissue of the flanks, the last cuts off outer ribs, an apex or a costophrenic angle.
BORDERS = (0.015, 0.03, 0.055, 0.085, 0.125)
UNEVEN = (0.4, 1.6)  # width of one of the four borders against the mean
SOFT = 0.004  # half-shadow of the collimator's edge, as a share of the side


def blur(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Motion blur along a straight path in a random direction."""
    kernel = _path_kernel(PATHS[severity - 1] * short_side(image), float(rng.uniform(0.0, math.pi)))
    return each_channel(image, lambda channel: _convolved(channel, kernel))


def rotation(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Rotated about the middle, clockwise or counterclockwise; the corners that come in are black."""
    angle = random_sign(rng) * DEGREES[severity - 1]

    def turned(channel: ImageArray) -> ImageArray:
        return np.asarray(Image.fromarray(channel).rotate(angle, Image.Resampling.BILINEAR), dtype=np.float32)

    return each_channel(image, turned)


def collimation(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """A black border on all four sides, wider on some than on others."""
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
    """Convolution by the Fourier transform; the edges of the image are repeated outwards."""
    reach = kernel.shape[0] // 2
    wide = np.pad(channel, reach, mode="edge")
    spectrum = np.fft.rfft2(wide) * np.fft.rfft2(kernel, s=wide.shape)
    full = np.fft.irfft2(spectrum, s=wide.shape)
    # The kernel's middle lies `reach` from its corner, which shifts the image by `reach` once more.
    return full[2 * reach :, 2 * reach :].astype(np.float32)


def _opened(length: int, first: float, last: float) -> ImageArray:
    """1 where the beam passes along one side, 0 in the shadow of both jaws, with a soft edge."""
    at = (np.arange(length, dtype=np.float32) + np.float32(0.5)) / np.float32(length)
    soft = max(SOFT, 0.5 / length)  # no sharper than a pixel, so that a border of half a pixel is a half-dark one
    opening = np.clip((at - np.float32(first)) / np.float32(2.0 * soft) + np.float32(0.5), 0.0, 1.0)
    closing = np.clip((np.float32(1.0 - last) - at) / np.float32(2.0 * soft) + np.float32(0.5), 0.0, 1.0)
    passed: ImageArray = np.minimum(opening, closing).astype(np.float32)
    return passed


# Photons are counted in cells of 1/256 of the shorter side, fine enough for mottle and the same for every image. An
# image with fewer pixels counts as many photons in fewer cells and has less noise per pixel: displayed at one size, a
# small and a large image are equally noisy.
CELLS = 256

# Photons per unattenuated cell. Each step has two fifths of the dose before it; the first gives a standard deviation
# of about 0.011 in middle grey, no more than a good image has, the last 0.07, and 0.15 in white.
PHOTONS = (4000.0, 1600.0, 640.0, 250.0, 100.0)

# Amplitude of the lines; 0.01 is visible on flat grey only, 0.1 covers small vessels.
LINE_HEIGHTS = (0.01, 0.02, 0.036, 0.06, 0.1)
LINES = (56.0, 80.0)  # across the width: coarse enough to survive the resizing to a model's input
LEAST_PERIOD = 2.5  # pixels; finer lines would alias
TILT = math.radians(3.0)  # a grid never lies quite straight


def low_dose(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Poisson noise of the photon counts behind each grey value, strongest in the white parts where few photons arrive."""
    height, width = image.shape[:2]
    share = min(1.0, CELLS / min(height, width))
    rows, columns = max(1, round(height * share)), max(1, round(width * share))
    field = rng.standard_normal((rows, columns), dtype=np.float32)  # in cells, enlarged to the pixels
    if (rows, columns) != (height, width):
        spread = resized(field, height, width, Image.Resampling.BICUBIC)
        field = spread / np.float32(spread.std())  # values between two cells are averages with too little variance
    cells = min(short_side(image), CELLS)
    unattenuated = PHOTONS[severity - 1] * (CELLS / cells) ** 2
    root = np.sqrt(np.float32(unattenuated)) * np.exp(np.float32(-0.5 * LOG_RANGE) * image)
    # The root of a Poisson count is approximately Gaussian, with standard deviation 1/2 around the root of its mean,
    # down to a few counts. One Gaussian field then serves every dose, which drawn counts could not.
    counted = np.maximum(root + np.float32(0.5) * over(image, field), np.float32(0.5))
    noisy: ImageArray = image - np.float32(2.0 / LOG_RANGE) * (np.log(counted) - np.log(root))
    return noisy


def grid_lines(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Fine parallel lines from a grid that does not move during the exposure."""
    height, width = image.shape[:2]
    lines = min(float(rng.uniform(*LINES)), width / LEAST_PERIOD)
    tilt, start = float(rng.uniform(-TILT, TILT)), float(rng.uniform(0.0, 2.0 * math.pi))
    across = np.arange(width, dtype=np.float32) * np.float32(math.cos(tilt))
    down = np.arange(height, dtype=np.float32) * np.float32(math.sin(tilt))
    phase = (across[None, :] + down[:, None]) * np.float32(2.0 * math.pi * lines / width)
    return image + np.float32(LINE_HEIGHTS[severity - 1]) * over(image, np.cos(phase + np.float32(start)))


# Image values are the logarithm of the detector's counts: white has e³, about 20 times, fewer than black. A doubled
# dose then shifts the whole image by ln 2 / 3 of its range.
LOG_RANGE = 3.0

# Doublings or halvings of the dose. A quarter is within the variation of automatic exposure; from one doubling on,
# guidelines advise technicians to check whether the image must be repeated.
STOPS = (0.25, 0.5, 0.8, 1.2, 1.6)

# Share of the way from each value to its opposite. Halfway every image is one flat grey: the steps go from a pale image
# (contrast 0.4) to a pale negative (-0.5) without it.
TURNED = (0.1, 0.2, 0.3, 0.75, 1.0)

# Share of the contrast that is left by scattered radiation: a thick patient without a grid loses about half.
CONTRAST_LEFT = (0.85, 0.72, 0.58, 0.45, 0.32)

# Exponents; badly set screens differ by about 1.2, and from 2 on the lungs or the mediastinum are lost.
GAMMAS = (1.15, 1.35, 1.65, 2.1, 2.8)


def exposure(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Too dark (overexposed) or too white (underexposed), clipped to [0, 1]."""
    shift = STOPS[severity - 1] * math.log(2.0) / LOG_RANGE
    shifted: ImageArray = image + np.float32(random_sign(rng) * shift)
    return np.clip(shifted, 0.0, 1.0)


def inversion(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Black and white exchanged, as when the photometric tag of a file is ignored; 5 is the full negative."""
    turned = np.float32(TURNED[severity - 1])
    if turned == 1.0:
        return np.float32(1.0) - image
    return image + turned * (np.float32(1.0) - np.float32(2.0) * image)


def contrast(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Lower contrast about the mean of the image, which stays as bright as it was."""
    middle = np.float32(image.mean(dtype=np.float64))
    return middle + np.float32(CONTRAST_LEFT[severity - 1]) * (image - middle)


def gamma(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Middle greys too dark or too light, black and white unchanged."""
    exponent = GAMMAS[severity - 1] ** random_sign(rng)
    return np.power(image, np.float32(exponent))


# Height of the stamp as a share of the shorter side: from small print in the corner to one that covers an apex or base.
STAMP_HEIGHTS = (0.03, 0.05, 0.075, 0.11, 0.15)
STAMP_GREY = 0.95  # lead letters are white, not quite the white of an overlay
STAMP_COLUMNS = 16  # columns of print beside the letter, which has 5
MARGIN = 0.03  # between the stamp and the rim of the image
INK_SIDE = 256  # least pixels of the shorter side on which print is drawn

# Coarseness of the JPEG quantisation in percent of the standard's table, for an image of 256 pixels. An image of 1024
# spreads the same detail over four times as many pixels, where it takes four times the coarseness to be lost.
COARSENESS = (50.0, 90.0, 150.0, 250.0, 420.0)
STANDARD_SIDE = 256
QUALITIES = (1, 95)

# Pixels left along the shorter side: from a thumbnail (128) to an image that keeps only the outlines of heart and lungs
# (36). An image with few pixels keeps these shares of them.
PIXELS_LEFT = (128, 96, 72, 52, 36)
SHARES_LEFT = (0.85, 0.75, 0.65, 0.55, 0.45)


def marker(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """A side letter with illegible print beside it, burned into a corner.

    The letter is right: a wrong one would change what the image shows, not its quality.
    """
    at_left, at_top = rng.random() < 0.5, rng.random() < 0.5
    stamp = _stamp("R" if at_left else "L", rng)
    # Print is drawn on a finer grid and averaged: on an image of few pixels it is a faint smear.
    finer = math.ceil(INK_SIDE / short_side(image))
    height, width = image.shape[0] * finer, image.shape[1] * finer
    tall = round(STAMP_HEIGHTS[severity - 1] * min(height, width))
    wide = round(tall * stamp.shape[1] / stamp.shape[0])
    margin = round(MARGIN * min(height, width))
    top = margin if at_top else height - margin - tall
    left = margin if at_left else width - margin - wide
    fine = np.zeros((height, width), dtype=np.float32)
    fine[top : top + tall, left : left + wide] = resized(stamp, tall, wide, Image.Resampling.BOX)
    ink: ImageArray = fine.reshape(image.shape[0], finer, image.shape[1], finer).mean(axis=(1, 3))
    missing = np.maximum(np.float32(STAMP_GREY) - image, np.float32(0.0))  # ink never darkens whiter pixels
    stamped: ImageArray = image + over(image, ink) * missing
    return stamped


def jpeg(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Compressed as 8-bit JPEG at the quality of `jpeg_quality`, and decoded."""
    data = encode_jpeg(to_uint8(image), jpeg_quality(short_side(image), severity))
    return to_unit(decode(data, "the compressed image"))


def jpeg_quality(side: int, severity: int) -> int:
    """JPEG's quality number, 1 to 95, for an image with a shorter side of that many pixels."""
    percent = COARSENESS[severity - 1] * side / STANDARD_SIDE
    # As in libjpeg: quality 50 is the standard's table, 100 %.
    quality = 5000.0 / percent if percent > 100.0 else 100.0 - 0.5 * percent
    return round(min(max(quality, QUALITIES[0]), QUALITIES[1]))


def pixelate(image: ImageArray, severity: int, rng: np.random.Generator) -> ImageArray:
    """Shrunk to few pixels and enlarged again as squares."""
    height, width = image.shape[:2]
    side = short_side(image)
    left = min(PIXELS_LEFT[severity - 1], SHARES_LEFT[severity - 1] * side) / side
    rows, columns = max(1, round(height * left)), max(1, round(width * left))

    def squared(channel: ImageArray) -> ImageArray:
        small = resized(channel, rows, columns, Image.Resampling.BOX)
        return resized(small, height, width, Image.Resampling.NEAREST)

    return each_channel(image, squared)


def _stamp(letter: str, rng: np.random.Generator) -> ImageArray:
    """Ink of the stamp, 0 or 1, fine enough to be shrunk evenly: a letter and three lines of dashes."""
    glyph = np.array([[float(bit) for bit in line] for line in LETTERS[letter]], dtype=np.float32)
    gap = np.zeros((len(glyph), 2), dtype=np.float32)
    writing = np.zeros((len(glyph), STAMP_COLUMNS), dtype=np.float32)
    for line in (0, 3, 6):
        length = int(rng.integers(STAMP_COLUMNS // 2, STAMP_COLUMNS + 1))
        writing[line, :length] = rng.random(length) < 0.7
    return np.hstack([glyph, gap, writing]).repeat(32, axis=0).repeat(32, axis=1)
