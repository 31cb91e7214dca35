"""Select the image of a study that a model receives, and classify images as frontal or lateral from their pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cxrlab.core.errors import DataError
from cxrlab.core.records import Study
from cxrlab.core.vocabulary import View
from cxrlab.data.corpus import Corpus
from cxrlab.data.images import ImageArray

# PA before AP: it is taken in the X-ray room at full breath and shows the heart in its true size.
FRONTAL = (View.PA, View.AP, View.FRONTAL)


def frontal_index(study: Study) -> int:
    """Index of the first PA image, else the first AP, else the first frontal one; a `DataError` without any."""
    for view in FRONTAL:
        for index, image in enumerate(study.images):
            if image.view is view:
                return index
    views = ", ".join("unknown" if image.view is None else image.view for image in study.images)
    has = f"only the views {views}" if views else "no image"
    state = " State the view of each image in studies.jsonl." if "unknown" in views else ""
    raise DataError(f"study '{study.id}' has {has}; a frontal image (PA, AP or frontal) is needed.{state}")


KEEP_COLOUR = "keep_colour"  # key of a study's extra values: true where its images are used in colour


def in_colour(study: Study) -> bool:
    """Whether the images of a study are used in colour: those of a caption, and those that are marked."""
    return study.caption is not None or study.extra.get(KEEP_COLOUR) is True


class SelectedImage(NamedTuple):
    """The number of an image among those of its study, and whether it is shown in colour."""

    number: int
    colour: bool


def selected_image(study: Study) -> SelectedImage:
    """The image that training and evaluation use: the frontal one, or the first for a caption; see `in_colour`."""
    if study.caption is None:
        return SelectedImage(frontal_index(study), in_colour(study))
    if not study.images:
        raise DataError(f"study '{study.id}' has a caption and no image.")
    return SelectedImage(0, colour=True)


def load_selected_image(corpus: Corpus, study: Study, size: int | None = None) -> ImageArray:
    """The image [H, W], or [H, W, 3] in colour, in [0, 1]; fitted into size × size where one is given."""
    number, colour = selected_image(study)
    return (corpus.rgb if colour else corpus.image)(study, number, size)


SIDE = 48
# A line of pixels is border where its brightest and darkest differ by less than this: 3 of 255 grey levels.
_EVEN = 3 / 255
# An image is blank where nine tenths of it lie within this: 7 of 255 grey levels. It is noise where the differences of
# neighbours have more than this share of the variance that those of independent pixels have.
_BLANK, _NOISE = 7 / 255, 0.3
# The axis of symmetry is looked for up to this far from the middle, in columns of the small picture.
_FARTHEST_AXIS = 7
# Rows between the clavicles and the diaphragm, where the lungs lie in both views.
_LUNG_ROWS = slice(12, 34)
# Half the width of the spine, and where the lungs lie beside it, in columns from the axis.
_SPINE, _LUNG = 2, slice(7, 11)
# An image is as likely frontal as lateral when mirror correlation and bright spine add up to this; a step of
# `_WIDTH` changes the odds by a factor of e.
_EVEN_ODDS, _WIDTH = 0.95, 0.09
# Two images of one study are nearly always one of each view: odds of e² to 1 are needed for another result.
_ONE_OF_EACH = 2.0


class ViewGuess(NamedTuple):
    """A view classified from pixels; `confidence` is its probability, 0.5 to 1 (0.5 where the image shows nothing)."""

    view: View
    confidence: float


def classify_views(images: Sequence[ImageArray]) -> tuple[ViewGuess, ...]:
    """The views of all images of one study, [H, W] in [0, 1] each.

    Two images are classified together, since usually one is frontal and one lateral; any other number one by one.
    """
    odds = [log_odds(image) for image in images]
    if len(odds) == 2 and odds[0] is not None and odds[1] is not None:
        both, one, other, neither = odds[0] + odds[1], odds[0] + _ONE_OF_EACH, odds[1] + _ONE_OF_EACH, 0.0
        odds = [
            float(np.logaddexp(both, one) - np.logaddexp(other, neither)),
            float(np.logaddexp(both, other) - np.logaddexp(one, neither)),
        ]
    guesses: list[ViewGuess] = []
    for value in odds:
        if value is None:
            guesses.append(ViewGuess(View.OTHER, 0.5))
        else:
            confidence = 1.0 / (1.0 + math.exp(-min(abs(value), 30.0)))
            guesses.append(ViewGuess(View.FRONTAL if value > 0 else View.LATERAL, round(confidence, 3)))
    return tuple(guesses)


def log_odds(image: ImageArray) -> float | None:
    """Natural logarithm of P(frontal) / P(lateral) of one image, [H, W] in [0, 1]; None where it shows nothing.

    Two signs of a frontal view are added: it mirrors itself about an axis, and the spine on that axis is brighter than
    the lungs beside it.
    """
    # Cut away even lines at the edges (padding, collimation); twice, for a frame around a frame.
    for _ in range(2):
        rows = np.flatnonzero(image.max(axis=1) - image.min(axis=1) > _EVEN)
        columns = np.flatnonzero(image.max(axis=0) - image.min(axis=0) > _EVEN)
        if not rows.size or not columns.size:
            return None
        image = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    # Shrink to SIDE × SIDE means over equal parts; an image with fewer pixels repeats some.
    small = image.astype(np.float64)
    for dimension in (0, 1):
        edges = np.linspace(0, small.shape[dimension], SIDE + 1).astype(int)
        counts = np.maximum(np.diff(edges), 1).reshape((-1, 1) if dimension == 0 else (1, -1))
        small = np.add.reduceat(small, edges[:-1], axis=dimension) / counts
    # Blank, or noise, in which neighbours have little in common along one direction or both.
    low, high = np.quantile(small, (0.05, 0.95))
    steps = max(np.diff(small, axis=0).var(), np.diff(small, axis=1).var())
    if not (high - low > _BLANK and steps < _NOISE * 2 * small.var()):
        return None
    # Ranks: each pixel's share of darker pixels, 0 to 1, ties shared evenly; smoothed over 3 × 3.
    values = np.sort(small, axis=None)
    places = np.searchsorted(values, small, "left") + np.searchsorted(values, small, "right")
    padded = np.pad(places / (2.0 * small.size), 1, mode="edge")
    parts = [padded[row : row + SIDE, column : column + SIDE] for row in range(3) for column in range(3)]
    ranks = np.asarray(np.mean(parts, axis=0))
    # In every view the abdomen is brighter than the air beside the neck; else the image is inverted.
    if ranks[38:, 14:34].mean() < min(ranks[:6, :6].mean(), ranks[:6, -6:].mean()):
        ranks = 1.0 - ranks
    # The column about which the image mirrors itself best, and the correlation with its mirror image there.
    axis, symmetry = SIDE / 2, -1.0
    for twice in range(-2 * _FARTHEST_AXIS, 2 * _FARTHEST_AXIS + 1):
        part = ranks[:, max(0, twice) : min(SIDE, SIDE + twice)]
        part = part - part.mean()
        spread = float((part * part).sum())
        correlation = float((part * part[:, ::-1]).sum()) / spread if spread else 0.0
        if correlation > symmetry:
            axis, symmetry = (SIDE + twice) / 2, correlation
    # How much brighter the axis is than the brighter of its two sides, -1 to 1, at the height of the lungs.
    profile = ranks[_LUNG_ROWS].mean(axis=0)
    before, after = math.floor(axis), math.ceil(axis)  # both, so that the mirrored image gives the same
    left = profile[before - _LUNG.stop : before - _LUNG.start]
    right = profile[after + _LUNG.start : after + _LUNG.stop]
    spine = profile[before - _SPINE : after + _SPINE]
    bright_spine = float(spine.mean() - max(left.mean(), right.mean()))
    return (symmetry + bright_spine - _EVEN_ODDS) / _WIDTH
