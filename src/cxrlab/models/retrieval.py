"""The nearest image's report: a baseline that looks at the image and writes nothing of its own.

An image is shrunk to 16 × 16, freed of brightness and contrast, and compared in the 128 directions in
which the library's images differ most, each scaled to equal variance. That choice was measured on
phantoms: `experiments/retrieval_features.py`, figures in `experiments/LOG.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Picture

from cxrlab.core.errors import DataError
from cxrlab.core.protocols import Capabilities, Generated
from cxrlab.models.loading import Loading

Vectors = NDArray[np.float32]

THUMBNAIL, COMPONENTS = 16, 128
_BATCH = 256


@dataclass(frozen=True)
class Exemplar:
    """An image to look among: id and patient of its study, the image [H, W] in [0, 1], and its report."""

    id: str
    patient: str
    image: NDArray[np.float32]
    report: str


Library = Callable[[str], Iterable[Exemplar]]
"""Opens the corpus of this name and yields the images to look among."""


@dataclass(frozen=True)
class Index:
    """The images of a library as vectors.

    Args:
        mean: Mean description, [256].
        axes: Directions of largest variance, each divided by its standard deviation, [256, D]; D is at
            most 128 and less than the number of images.
        vectors: One row of length 1 an image, [N, D]; a row of zeros for an image of one single grey.
    """

    mean: Vectors
    axes: Vectors
    vectors: Vectors

    @classmethod
    def build(cls, descriptions: Vectors) -> Index:
        """Learn the directions from descriptions [N, 256] and place the images."""
        mean = np.asarray(descriptions.mean(axis=0, dtype=np.float64), np.float32)
        spread = np.cov(descriptions, rowvar=False, bias=True).astype(np.float64)
        variances, directions = np.linalg.eigh(spread)
        keep = np.argsort(variances)[::-1][: max(1, min(COMPONENTS, len(descriptions) - 1))]
        # Directions in which nothing varies would be blown up to pure rounding noise.
        keep = keep[variances[keep] > 1e-6 * max(variances[-1], 1e-12)]
        axes = np.asarray(directions[:, keep] / np.sqrt(variances[keep]), np.float32)
        return cls(mean, axes, _unit((descriptions - mean) @ axes))

    def nearest(self, descriptions: Vectors) -> tuple[NDArray[np.intp], Vectors]:
        """Row of the most similar image and the cosine in [-1, 1], for each of [B, 256]; ties go to the first."""
        cosines = _unit((descriptions - self.mean) @ self.axes) @ self.vectors.T
        rows = cosines.argmax(axis=1)
        return rows, cosines[np.arange(len(rows)), rows]


def describe(image: NDArray[np.float32]) -> Vectors:
    """An image [H, W] as 256 numbers of mean 0 and variance 1; all 0 for an image of one single grey.

    Of a picture [H, W, 3] the mean of its colours is taken. The image is padded to a square with black, so that its
    shape is kept.
    """
    image = image if image.ndim == 2 else image.mean(axis=2)
    height, width = image.shape
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    square = np.zeros((side, side), np.float32)
    square[top : top + height, left : left + width] = image
    # Pillow widens this filter when shrinking: each value is an average over the area it stands for.
    small = Picture.fromarray(square).resize((THUMBNAIL, THUMBNAIL), Picture.Resampling.BILINEAR)
    values = np.asarray(small, np.float32).ravel()
    values = values - values.mean()
    contrast = float(values.std())
    return values / np.float32(contrast) if contrast > 1e-6 else np.zeros_like(values)


class Retrieval:
    """Answers with the report of the most similar image of a library.

    Args:
        source: Name of the library, for messages.
        images: What to look among; read once, only descriptions (1 kB an image) and reports are kept.
    """

    USAGES = MappingProxyType(
        {"retrieval:CORPUS": "the report of the most similar image in the train split of the folder CORPUS"}
    )

    def __init__(self, source: str, images: Iterable[Exemplar]) -> None:
        self.source = source
        self.ids: list[str] = []
        self.reports: list[str] = []
        rows: list[Vectors] = []
        for image in images:
            self.ids.append(image.id)
            self.reports.append(image.report)
            rows.append(describe(image.image))
        if not rows:
            raise DataError(f"{source} holds no image with a findings text, so there is no report to answer with.")
        self.index = Index.build(np.stack(rows))

    @classmethod
    def load(cls, argument: str, library: Library, loading: Loading) -> Retrieval:
        """Index the images that the library gives for this corpus; it has no weights to load."""
        return cls(argument, library(argument))

    @property
    def name(self) -> str:
        """`retrieval:CORPUS`."""
        return f"retrieval:{self.source}"

    @property
    def capabilities(self) -> Capabilities:
        """Several images go through one matrix product."""
        return Capabilities(batch=True)

    def generate(self, images: Sequence[Vectors], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """The nearest image's report for each image, with its id and the similarity in `extra`."""
        answers: list[Generated] = []
        for start in range(0, len(images), _BATCH):
            batch = np.stack([describe(image) for image in images[start : start + _BATCH]])
            for row, cosine in zip(*self.index.nearest(batch), strict=True):
                extra = {"neighbour": self.ids[row], "similarity": round(float(cosine), 4)}
                answers.append(Generated(self.reports[row], extra=extra))
        return answers


def _unit(vectors: NDArray[np.floating]) -> Vectors:
    """Rows scaled to length 1; a row of zeros stays one."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
