"""Regions where an attack may change pixels: `all`, `patch:…`, `border:…`, `off-lungs`, `off-findings`.

Regions are given in shares of the image, so that one name works for images of every size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import ConfigError, DataError, UnknownName, did_you_mean

KINDS = ("all", "patch", "border", "off-lungs", "off-findings")
_FORMS = "all, patch:LEFT,TOP,RIGHT,BOTTOM, border:SHARE, off-lungs, off-findings"
MOST_BORDER = 0.5  # of the shorter side: such a border covers the whole image

# Middle (x, y) and half axes (x, y) of the lung field on the left of the image, in shares of width and height; the
# other one is its mirror image. Fitted to phantoms of both presets, deep and shallow breaths, with room to spare.
LUNG_MIDDLE = (0.31, 0.51)
LUNG_AXES = (0.27, 0.44)

GROWTH = 0.02  # of the width: a rim around each finding counts as part of it

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Region:
    """A parsed region name."""

    kind: str  # One of `KINDS`
    # Left, top, right and bottom of a patch, the share of a border, nothing for the others
    numbers: tuple[float, ...] = ()


def parse_region(name: str) -> Region:
    """The region with this name; anything else is a `ConfigError`.

    >>> parse_region("border:0.1")
    Region(kind='border', numbers=(0.1,))
    """
    kind, colon, rest = name.partition(":")
    if kind not in KINDS:
        raise UnknownName(f"'{name}' is not a region.{did_you_mean(kind, KINDS)} There are: {_FORMS}.")
    if kind == "patch":
        numbers = _numbers(rest)
        if len(numbers) != 4 or not all(0.0 <= number <= 1.0 for number in numbers):
            raise ConfigError(
                f"'{name}' is not a patch; give left, top, right and bottom in shares of the image from 0 to 1, "
                "such as 'patch:0,0,0.2,0.2'."
            )
        left, top, right, bottom = numbers
        if not (left < right and top < bottom):
            raise ConfigError(f"'{name}' has no pixel; left must be smaller than right, and top than bottom.")
        return Region(kind, numbers)
    if kind == "border":
        numbers = _numbers(rest)
        if len(numbers) != 1 or not 0.0 < numbers[0] <= MOST_BORDER:
            raise ConfigError(
                f"'{name}' is not a border; give its width as a share of the shorter side, above 0 and up to "
                f"{MOST_BORDER:g}, such as 'border:0.05'."
            )
        return Region(kind, numbers)
    if colon:
        raise ConfigError(f"'{name}' has something after the colon; write '{kind}' alone.")
    return Region(kind)


def region_mask(
    name: str, shape: tuple[int, int], finding_masks: Sequence[NDArray[np.generic]] = ()
) -> NDArray[np.float32]:
    """1 where pixels may be changed and 0 elsewhere, [H, W] float32; at least one pixel is 1.

    `off-lungs` is a fixed stencil and not a segmentation: everything outside two ellipses, wide enough for the lungs of an
    upright frontal image. `off-findings` is everything outside the given masks, which are grown by 2 % of the width.

    Args:
        name: See `parse_region`.
        shape: Height and width in pixels.
        finding_masks: Masks of findings, each [H, W], inside where not 0; used by `off-findings` only.
    """
    region = parse_region(name)
    height, width = shape
    if region.kind == "patch":
        left, top, right, bottom = region.numbers
        mask = np.zeros((height, width), dtype=np.bool_)
        mask[round(top * height) : round(bottom * height), round(left * width) : round(right * width)] = True
    elif region.kind == "border":
        wide = round(region.numbers[0] * min(height, width))
        mask = np.ones((height, width), dtype=np.bool_)
        mask[wide : height - wide, wide : width - wide] = False
    elif region.kind == "off-lungs":
        across = (np.arange(width) + 0.5) / width
        down = ((np.arange(height) + 0.5) / height - LUNG_MIDDLE[1]) / LUNG_AXES[1]
        # Folded at the midline, both lungs lie on the left one.
        folded = (np.minimum(across, 1.0 - across) - LUNG_MIDDLE[0]) / LUNG_AXES[0]
        mask = folded[None, :] ** 2 + down[:, None] ** 2 > 1.0
    elif region.kind == "off-findings":
        mask = _off_findings(finding_masks, height, width)
    else:
        mask = np.ones((height, width), dtype=np.bool_)
    if not mask.any():
        image = f"an image of {width} x {height} pixels"
        if region.kind == "off-findings":
            raise DataError(f"'{name}' leaves no pixel of {image}, which findings cover; choose another region.")
        raise ConfigError(f"'{name}' has no pixel of {image}; make it larger or choose another region.")
    return mask.astype(np.float32)


def _numbers(text: str) -> tuple[float, ...]:
    """Numbers between commas; nothing when one of them is not a number."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        return ()


def _off_findings(masks: Sequence[NDArray[np.generic]], height: int, width: int) -> Mask:
    """Every pixel more than `GROWTH` away from the findings."""
    found = np.zeros((height, width), dtype=np.bool_)
    for mask in masks:
        if mask.shape != (height, width):
            raise DataError(
                f"A finding's mask has {list(mask.shape)} pixels and its image {[height, width]}; "
                "resize the mask to the size of the image."
            )
        found |= mask != 0
    # An empty mask would let an attack change every pixel.
    if not found.any():
        raise DataError(
            "Region 'off-findings' needs masks of findings, and this image has none; take studies with masks, or another "
            "--region."
        )
    return ~_dilate(found, GROWTH * width)


def _dilate(mask: Mask, radius: float) -> Mask:
    """Every pixel within `radius` pixels of one in the mask."""
    height, width = mask.shape
    reach = int(radius)
    # Differences of cumulative counts show whether any pixel of a stretch of a row is in the mask.
    counts = np.pad(np.cumsum(mask, axis=1, dtype=np.int32), ((0, 0), (1, 0)))
    columns = np.arange(width)
    grown = mask.copy()
    for away in range(min(reach, height - 1) + 1):
        half = int((radius**2 - away**2) ** 0.5)
        ends, starts = np.minimum(columns + half + 1, width), np.maximum(columns - half, 0)
        wide = counts[:, ends] > counts[:, starts]
        grown[: height - away] |= wide[away:]
        grown[away:] |= wide[: height - away]
    return grown
