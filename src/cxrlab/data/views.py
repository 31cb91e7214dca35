"""The view of an image: which image of a study a model receives, and frontal or lateral told from the pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.records import Study
from cxrlab.core.vocabulary import View
from cxrlab.data.corpus import Corpus
from cxrlab.data.images import ImageArray

# PA before AP: it is taken in the X-ray room at full breath and shows the heart in its true size.
FRONTAL = (View.PA, View.AP, View.FRONTAL)


def frontal_index(study: Study) -> int:
    """Index of the frontal image: the first PA, else the first AP, else the first of unknown direction.

    A study without any is a `DataError`: a lateral image would be read as a frontal one without a word. An image whose
    view is unknown may be lateral, so it does not count.
    """
    for view in FRONTAL:
        for index, image in enumerate(study.images):
            if image.view is view:
                return index
    views = ", ".join("unknown" if image.view is None else image.view for image in study.images)
    has = f"only the views {views}" if views else "no image"
    state = " State the view of each image in studies.jsonl." if "unknown" in views else ""
    raise DataError(f"study '{study.id}' has {has}; a frontal image (PA, AP or frontal) is needed.{state}")


class SelectedImage(NamedTuple):
    """The number of an image among those of its study, and whether it is shown in colour."""

    number: int
    colour: bool


def selected_image(study: Study) -> SelectedImage:
    """What training and evaluation alike show of a study: the frontal image in grey, of a caption its picture in colour.

    A `DataError` where there is neither.
    """
    if study.caption is None:
        return SelectedImage(frontal_index(study), colour=False)
    if not study.images:
        raise DataError(f"study '{study.id}' has a caption and no image.")
    return SelectedImage(0, colour=True)


def load_selected_image(corpus: Corpus, study: Study, size: int | None = None) -> ImageArray:
    """The image [H, W], or the picture of a caption [H, W, 3], in [0, 1]; fitted into size × size where one is given."""
    number, colour = selected_image(study)
    return (corpus.rgb if colour else corpus.image)(study, number, size)


Small = NDArray[np.float64]

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
# Two images of one study are nearly always one of each view: it takes e² to 1 to believe otherwise.
_ONE_OF_EACH = 2.0


class ViewGuess(NamedTuple):
    """A view told from pixels.

    Args:
        confidence: Probability of that view, 0.5 to 1; 0.5 where the image shows nothing.
    """

    view: View
    confidence: float


def classify_views(images: Sequence[ImageArray]) -> tuple[ViewGuess, ...]:
    """The views of all images of one study, [H, W] in [0, 1] each.

    Exactly two images are judged together, as most often one is frontal and one lateral; each of more, or
    of one, is judged alone.
    """
    odds = [log_odds(image) for image in images]
    if len(odds) == 2 and None not in odds:
        odds = list(_together(*(one for one in odds if one is not None)))
    return tuple(map(_guess, odds))


def log_odds(image: ImageArray) -> float | None:
    """Natural logarithm of P(frontal) / P(lateral) of one image, [H, W] in [0, 1]; None where it shows nothing."""
    inside = _without_border(image)
    if inside is None:
        return None
    small = _small(inside)
    if not _shows_something(small):
        return None
    ranks = _upright_tones(_ranks(small))
    axis, symmetry = _mirror_axis(ranks)
    return (symmetry + _bright_spine(ranks, axis) - _EVEN_ODDS) / _WIDTH


def _together(first: float, second: float) -> tuple[float, float]:
    """Log-odds of each of two images, given the other and how seldom both have the same view."""
    both, one, other, neither = first + second, first + _ONE_OF_EACH, second + _ONE_OF_EACH, 0.0
    return (
        float(np.logaddexp(both, one) - np.logaddexp(other, neither)),
        float(np.logaddexp(both, other) - np.logaddexp(one, neither)),
    )


def _guess(odds: float | None) -> ViewGuess:
    if odds is None:
        return ViewGuess(View.OTHER, 0.5)
    confidence = 1.0 / (1.0 + math.exp(-min(abs(odds), 30.0)))
    return ViewGuess(View.FRONTAL if odds > 0 else View.LATERAL, round(confidence, 3))


def _without_border(image: ImageArray) -> ImageArray | None:
    """The image without even lines at its four edges, as padding and collimation leave them; None when all is even."""
    for _ in range(2):  # a frame around a frame: the second is seen when the first is gone
        rows = np.flatnonzero(image.max(axis=1) - image.min(axis=1) > _EVEN)
        columns = np.flatnonzero(image.max(axis=0) - image.min(axis=0) > _EVEN)
        if not rows.size or not columns.size:
            return None
        image = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return image


def _small(image: ImageArray) -> Small:
    """SIDE × SIDE means over equal parts of the image; an image with fewer pixels repeats some."""
    small = image.astype(np.float64)
    for axis in (0, 1):
        edges = np.linspace(0, small.shape[axis], SIDE + 1).astype(int)
        counts = np.maximum(np.diff(edges), 1).reshape((-1, 1) if axis == 0 else (1, -1))
        small = np.add.reduceat(small, edges[:-1], axis=axis) / counts
    return small


def _shows_something(small: Small) -> bool:
    """False for a blank image and for noise, in which neighbours have little in common along one direction or both."""
    low, high = np.quantile(small, (0.05, 0.95))
    steps = max(np.diff(small, axis=0).var(), np.diff(small, axis=1).var())
    return bool(high - low > _BLANK and steps < _NOISE * 2 * small.var())


def _ranks(small: Small) -> Small:
    """Each pixel's share of darker pixels, 0 to 1, ties shared evenly; smoothed over 3 × 3."""
    values = np.sort(small, axis=None)
    places = np.searchsorted(values, small, "left") + np.searchsorted(values, small, "right")
    padded = np.pad(places / (2.0 * small.size), 1, mode="edge")
    parts = [padded[row : row + SIDE, column : column + SIDE] for row in range(3) for column in range(3)]
    return np.asarray(np.mean(parts, axis=0))


def _upright_tones(ranks: Small) -> Small:
    """Bone bright: the belly is brighter than the air beside the neck in every view; else the image is inverted."""
    belly = ranks[38:, 14:34].mean()
    beside_the_neck = min(ranks[:6, :6].mean(), ranks[:6, -6:].mean())
    return ranks if belly >= beside_the_neck else 1.0 - ranks


def _mirror_axis(ranks: Small) -> tuple[float, float]:
    """The column about which the picture mirrors itself best, and the correlation with its mirror picture there."""
    best = (SIDE / 2, -1.0)
    for twice in range(-2 * _FARTHEST_AXIS, 2 * _FARTHEST_AXIS + 1):
        part = ranks[:, max(0, twice) : min(SIDE, SIDE + twice)]
        part = part - part.mean()
        spread = float((part * part).sum())
        correlation = float((part * part[:, ::-1]).sum()) / spread if spread else 0.0
        if correlation > best[1]:
            best = ((SIDE + twice) / 2, correlation)
    return best


def _bright_spine(ranks: Small, axis: float) -> float:
    """How much brighter the axis is than the brighter of the two sides, -1 to 1, at the height of the lungs."""
    profile = ranks[_LUNG_ROWS].mean(axis=0)
    before, after = math.floor(axis), math.ceil(axis)  # both, so that the mirrored image comes out the same
    left = profile[before - _LUNG.stop : before - _LUNG.start]
    right = profile[after + _LUNG.start : after + _LUNG.stop]
    spine = profile[before - _SPINE : after + _SPINE]
    return float(spine.mean() - max(left.mean(), right.mean()))
