"""Baseline models: a constant report, retrieval of the nearest image's report, and scripted text answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Picture

from cxrlab.core.egress import Connection
from cxrlab.core.errors import DataError, UnknownName, did_you_mean
from cxrlab.core.files import sha256_of
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.model_interfaces import Capabilities, Generated
from cxrlab.models.load_settings import LoadSettings

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image

REPORTS = MappingProxyType(
    {
        "normal": (
            "The heart is normal in size. The mediastinal and hilar contours are unremarkable. The lungs are clear "
            "without consolidation, edema or nodule. There is no pleural effusion or pneumothorax. "
            "No acute osseous abnormality is seen."
        ),
        "empty": "",
    }
)


class Stub:
    """Gives the same report of `REPORTS`, `normal` or `empty`, for every image."""

    USAGES = MappingProxyType(
        {"stub:normal": "the same normal report for every image", "stub:empty": "an empty report"}
    )

    def __init__(self, which: str) -> None:
        if which not in REPORTS:
            raise UnknownName(
                f"there is no stub '{which}'.{did_you_mean(which, REPORTS)} There are: {', '.join(self.USAGES)}."
            )
        self.which = which

    @classmethod
    def load(cls, argument: str, library: Library, loading: LoadSettings) -> Stub:
        """The stub of this name."""
        return cls(argument)

    @property
    def name(self) -> str:
        """`stub:normal`, `stub:empty`."""
        return f"stub:{self.which}"

    @property
    def collections(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def capabilities(self) -> Capabilities:
        """Batches, no gradients."""
        return Capabilities(batch=True)

    def generate(self, images: Sequence[Image], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """The constant report for each image."""
        return [Generated(REPORTS[self.which]) for _ in images]


Vectors = NDArray[np.float32]

THUMBNAIL, COMPONENTS = 16, 128
_BATCH = 256


@dataclass(frozen=True)
class Exemplar:
    """A library image: id and patient of its study, the image [H, W] in [0, 1], and its report."""

    id: str
    patient: str
    image: NDArray[np.float32]
    report: str


Library = Callable[[str], Iterable[Exemplar]]
"""Opens the corpus of this name and yields its images."""


@dataclass(frozen=True)
class Index:
    """The images of a library as whitened principal components."""

    mean: Vectors  # mean descriptor, [256]
    # Principal directions divided by their standard deviations, [256, D]; D is at most 128 and less than the number of
    # images.
    axes: Vectors
    vectors: Vectors  # one row of length 1 per image, [N, D]; zeros for an image of a single grey

    @classmethod
    def build(cls, descriptions: Vectors) -> Index:
        """Fit the components to descriptors [N, 256]."""
        mean = np.asarray(descriptions.mean(axis=0, dtype=np.float64), np.float32)
        spread = np.cov(descriptions, rowvar=False, bias=True).astype(np.float64)
        variances, directions = np.linalg.eigh(spread)
        keep = np.argsort(variances)[::-1][: max(1, min(COMPONENTS, len(descriptions) - 1))]
        # Directions without variance would be amplified rounding noise.
        keep = keep[variances[keep] > 1e-6 * max(variances[-1], 1e-12)]
        axes = np.asarray(directions[:, keep] / np.sqrt(variances[keep]), np.float32)
        return cls(mean, axes, _unit((descriptions - mean) @ axes))

    def nearest(self, descriptions: Vectors) -> tuple[NDArray[np.intp], Vectors]:
        """Row of the most similar image and the cosine, for each descriptor [B, 256]; ties go to the first."""
        cosines = _unit((descriptions - self.mean) @ self.axes) @ self.vectors.T
        rows = cosines.argmax(axis=1)
        return rows, cosines[np.arange(len(rows)), rows]


def describe(image: NDArray[np.float32]) -> Vectors:
    """Descriptor of an image [H, W] or [H, W, 3]: a 16 × 16 thumbnail of mean 0 and variance 1.

    The image is padded to a square with black; an image of a single grey gives zeros.
    """
    image = image if image.ndim == 2 else image.mean(axis=2)
    height, width = image.shape
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    square = np.zeros((side, side), np.float32)
    square[top : top + height, left : left + width] = image
    # Pillow antialiases: each value averages its area.
    small = Picture.fromarray(square).resize((THUMBNAIL, THUMBNAIL), Picture.Resampling.BILINEAR)
    values = np.asarray(small, np.float32).ravel()
    values = values - values.mean()
    contrast = float(values.std())
    return values / np.float32(contrast) if contrast > 1e-6 else np.zeros_like(values)


class Retrieval:
    """Gives the report of the most similar image of a library, of which only descriptors and reports are kept."""

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
            raise DataError(f"{source} holds no image with a findings text, so there is no report to retrieve.")
        self.index = Index.build(np.stack(rows))

    @classmethod
    def load(cls, argument: str, library: Library, loading: LoadSettings) -> Retrieval:
        """Index the images of this corpus."""
        return cls(argument, library(argument))

    @property
    def name(self) -> str:
        """`retrieval:CORPUS`."""
        return f"retrieval:{self.source}"

    @property
    def capabilities(self) -> Capabilities:
        """Batches, no gradients."""
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


_KEYS = ("contains", "sha256", "answer", "tokens")


class ScriptedTextModel:
    """Answers each prompt with the matching line of a JSONL file; without one, it raises.

    A line is `{"sha256": …, "answer": …}`, for the prompt of that hash, or `{"contains": …, "answer": …}`, for every
    prompt that contains the text; `tokens` optionally gives the token count. Hashes go before texts, earlier lines
    before later ones; `"contains": ""` matches every prompt.

    Attributes:
        fingerprint: Hash of the file.
    """

    USAGES = MappingProxyType({"scripted:FILE": "the answers of a JSONL file, by the prompt's content"})

    def __init__(self, file: str) -> None:
        self.file = file
        self._by_hash: dict[str, Generated] = {}
        self._by_text: list[tuple[str, Generated]] = []
        for number, values in read_jsonl(Path(file)):
            place = f"{file}:{number}"
            for key in values:
                if key not in _KEYS:
                    raise DataError(
                        f"{place} has an unknown key '{key}'.{did_you_mean(key, _KEYS)} Keys: {', '.join(_KEYS)}."
                    )
            contains, digest, answer, tokens = (values.get(key) for key in _KEYS)
            if not isinstance(answer, str):
                raise DataError(f"{place} needs a text 'answer'.")
            if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0):
                raise DataError(f"{place}: 'tokens' must be a whole number from 0.")
            if isinstance(digest, str) and contains is None:
                self._by_hash.setdefault(digest.lower(), Generated(answer, tokens=tokens))
            elif isinstance(contains, str) and digest is None:
                self._by_text.append((contains, Generated(answer, tokens=tokens)))
            else:
                raise DataError(f"{place} needs either a text 'contains' or a text 'sha256'.")
        self.fingerprint = sha256_of(file)

    @classmethod
    def load(
        cls, argument: str, connection: Connection | None = None, loading: LoadSettings | None = None
    ) -> ScriptedTextModel:
        """The model of this file."""
        return cls(argument)

    @property
    def name(self) -> str:
        """`scripted:FILE`."""
        return f"scripted:{self.file}"

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """The scripted answer to each prompt; `max_tokens` and `seed` have no effect."""
        return [self._answer(prompt) for prompt in prompts]

    def _answer(self, prompt: str) -> Generated:
        digest = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
        if digest in self._by_hash:
            return self._by_hash[digest]
        for text, answer in self._by_text:
            if text in prompt:
                return answer
        raise DataError(
            f"{self.file} has no answer to a prompt of {len(prompt):,} characters (sha256 {digest}); add a line for it."
        )
