"""Features of images for detectors: the vector of an encoder, and image statistics; computed once and kept."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.files import read_bytes, sha256_of, write_bytes
from cxrlab.core.image_codec import decode, to_uint8, to_unit
from cxrlab.core.randomness import generator
from cxrlab.core.terminal import track
from cxrlab.data.card import CARD
from cxrlab.data.corpus import Corpus, load_corpus
from cxrlab.data.images import fit, grey_image
from cxrlab.data.views import selected_image
from cxrlab.extraction.detection.base import QueryFeatures, Traffic, Vector
from cxrlab.extraction.query_ledger import LEDGER, read_ledger
from cxrlab.extraction.records import PICTURES

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image
    from cxrlab.data.images import ImageArray
    from cxrlab.extraction.records import Pixels
    from cxrlab.models.load_settings import LoadSettings

NONE, PIXELS = "none", "pixels"
_SMALL = 12  # side of the images that `pixels` takes as vectors


class ImageEncoder(Protocol):
    """The half of an `Embedder` that detectors need."""

    @property
    def name(self) -> str:
        """Of the encoder."""
        ...

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Vectors [N, D] of length 1 for images [H, W] in [0, 1]."""
        ...


class PixelEncoder:
    """An encoder without weights: the image at 12 × 12 pixels minus its mean, at length 1."""

    name = PIXELS

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Vectors [N, 144]; zeros for a uniform image."""
        rows = np.stack([fit(image, _SMALL).reshape(-1) for image in images])
        rows = rows - rows.mean(axis=1, keepdims=True)
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(np.divide(rows, length, out=np.zeros_like(rows), where=length > 1e-6), np.float32)


def open_encoder(name: str, loading: LoadSettings) -> ImageEncoder | None:
    """The encoder of this name: none, pixels, or a contrastive one; see `models.model_registry.load_encoder`."""
    if name == NONE:
        return None
    if name == PIXELS:
        return PixelEncoder()
    from cxrlab.models.model_registry import load_encoder

    return load_encoder(name, loading)


def measure(pictures: Sequence[Pixels], encoder: ImageEncoder | None) -> list[QueryFeatures]:
    """The features of images, uint8 [H, W] each; vectors that are not finite are a `DataError`."""
    if encoder is None:
        vectors: Vector = np.zeros((len(pictures), 0))
    else:
        vectors = np.asarray(encoder.embed_images([to_unit(pixels) for pixels in pictures]), np.float64)
        if not np.isfinite(vectors).all():
            raise DataError(
                f"'{encoder.name}' gives vectors that are not finite: its weights are broken, or the number format is "
                "too small for them (try --loading.dtype float32)."
            )
    # Rounded as in the files, so that a live image has the same numbers as in a stored stream.
    statistics = [image_statistics(pixels).astype(np.float32).astype(np.float64) for pixels in pictures]
    return [QueryFeatures(*row) for row in zip(vectors, statistics, strict=True)]


def load_traffic(
    images: Sequence[StreamImage], encoder: ImageEncoder | None, store: Path, batch_size: int, label: str
) -> Traffic:
    """The stream of some images; measured once and kept as two .npy files in the folder `store`.

    Files are named after encoder and images. An image that was sent several times is measured once.
    """
    names = "\n".join([_identity(encoder), *NAMES, *(f"{image.source} {image.key}" for image in images)])
    stem = hashlib.blake2b(names.encode(), digest_size=8).hexdigest()
    files = store / f"{stem}_features.npy", store / f"{stem}_statistics.npy"
    if not all(file.is_file() for file in files):
        first = {image.key: image for image in images}
        measured: dict[str, QueryFeatures] = {}
        keys = list(first)
        batches = [keys[start : start + batch_size] for start in range(0, len(keys), batch_size)]
        for batch in track(batches, label, len(keys), size=len):
            measured |= zip(batch, measure([first[key].load() for key in batch], encoder), strict=True)
        rows = [measured[image.key] for image in images]
        for file, values in zip(
            files, ([row.features for row in rows], [row.image_statistics for row in rows]), strict=True
        ):
            target = io.BytesIO()
            np.save(target, np.stack(values).astype(np.float32), allow_pickle=False)
            write_bytes(file, target.getvalue())
    features, statistics = (_read_rows(file, len(images)) for file in files)
    return Traffic(tuple(image.key for image in images), tuple(image.account for image in images), features, statistics)


def _identity(encoder: ImageEncoder | None) -> str:
    """Identifies an encoder by name and weights, since a folder may be trained again."""
    model = getattr(encoder, "model", None)
    if encoder is None or model is None:
        return encoder.name if encoder else NONE
    from cxrlab.training.run_folder import weights_key

    return f"{encoder.name} {weights_key(model)}"


def _read_rows(file: Path, rows: int) -> Vector:
    try:
        found = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file} cannot be read ({error}); delete it and run again.") from None
    if found.ndim != 2 or len(found) != rows or (file.stem.endswith("statistics") and found.shape[1] != len(NAMES)):
        raise DataError(f"{file} holds {found.shape} numbers where {rows} rows were expected; delete it and run again.")
    return np.asarray(found, np.float64)


Row = NDArray[np.float64]

SIDE = 128  # of the square in which images are measured
_COARSE = 8  # cells per side of the layout
_BLOCK = 8  # pixels per side of the parts in which the quietest grain is searched
_TINY = 1e-4  # a fortieth of a grey level: logarithms of a uniform image stay finite
_BLACK, _WHITE = 8 / 255, 247 / 255

TONES = ("border", "corners", "mirror", "spine", "mean", "spread", "low", "middle", "high", "black", "white")
LAYOUT = tuple(f"cell{row}{column}" for row in range(_COARSE) for column in range(_COARSE))
GRAIN = ("residual", "quiet", "laplace", "fine", "neighbours")
NAMES = (*TONES, *LAYOUT, *GRAIN)


def image_statistics(pixels: Pixels) -> Row:
    """The statistics of one image, uint8 [H, W], in the order of `NAMES`; finite also for a uniform image."""
    image = fit(to_unit(pixels), SIDE)
    return np.concatenate([tones(image), layout(image), grain(image)])


def columns(names: tuple[str, ...]) -> list[int]:
    """Places of these statistics in a row of image statistics."""
    return [NAMES.index(name) for name in names]


def tones(image: ImageArray) -> Row:
    """Brightness by place, `TONES`: a chest image is dark around, bright in the middle, and nearly its mirror.

    `image` is [S, S] in [0, 1], S divisible by 32. `black` and `white` are square roots of the shares of such pixels.
    """
    small = _means(image, 32)
    edge = np.concatenate([small[0], small[-1], small[:, 0], small[:, -1]])
    corners = np.concatenate([small[:4, :4].ravel(), small[:4, -4:].ravel()])
    lungs = np.concatenate([small[9:20, 6:12].ravel(), small[9:20, 20:26].ravel()])
    spine = small[9:20, 14:18].mean() - lungs.mean()
    low, middle, high = np.quantile(image, (0.05, 0.5, 0.95))
    # Roots of shares: most images have next to nothing wholly black or white, and a few have much.
    shares = (float((image < _BLACK).mean()) ** 0.5, float((image > _WHITE).mean()) ** 0.5)
    whole = (float(image.mean()), float(image.std()), float(low), float(middle), float(high), *shares)
    return np.array([edge.mean(), corners.mean(), _correlation(small, small[:, ::-1]), spine, *whole])


def layout(image: ImageArray) -> Row:
    """8 × 8 mean tones, each in standard deviations from the mean of the image; zeros for a uniform one."""
    coarse = _means(image, _COARSE)
    spread = coarse.std()
    return np.zeros(coarse.size) if spread < _TINY else ((coarse - coarse.mean()) / spread).ravel()


def grain(image: ImageArray) -> Row:
    """Fine texture without the image's shapes, `GRAIN`.

    `residual` is the mean distance of a pixel from the median of its 3 × 3 neighbours, `quiet` the same in the calmest
    tenth of the image, `laplace` the mean of |4 x - neighbours| inside, `fine` the share of the spectrum (without the
    mean) whose frequency along either axis is above half of the highest, all four as natural logarithms. `neighbours`
    is the correlation of the residual with that of the next pixel, down and across, which noise of single pixels
    lowers; 1 if there is no residual.
    """
    side, padded = image.shape[0], np.pad(image, 1, mode="edge")
    around = [padded[row : row + side, column : column + side] for row in range(3) for column in range(3)]
    rest = image.astype(np.float64) - np.asarray(np.partition(np.stack(around), 4, axis=0)[4], np.float64)
    size = np.abs(rest)
    calm = np.quantile(_means(size, side // _BLOCK), 0.1)
    laplace = 4 * image[1:-1, 1:-1] - image[:-2, 1:-1] - image[2:, 1:-1] - image[1:-1, :-2] - image[1:-1, 2:]
    energy = np.abs(np.fft.rfft2(image - image.mean())) ** 2
    down, across = np.abs(np.fft.fftfreq(side)) > 0.25, np.fft.rfftfreq(image.shape[1]) > 0.25
    total = float(energy.sum())
    fine = float(energy[down[:, None] | across[None, :]].sum()) / total if total > _TINY else 0.0
    amounts = np.array([size.mean(), calm, np.abs(laplace).mean(), fine])
    ways = (rest[1:], rest[:-1]), (rest[:, 1:], rest[:, :-1])
    beside = np.mean([_correlation(*way, even=1.0) for way in ways])
    return np.array([*np.log(amounts + _TINY), beside])


def _means(image: NDArray[np.floating], parts: int) -> Row:
    """Means over parts × parts equal squares."""
    step = image.shape[0] // parts
    return np.asarray(image.reshape(parts, step, parts, step).mean(axis=(1, 3)), np.float64)


def _correlation(one: NDArray[np.floating], two: NDArray[np.floating], even: float = 0.0) -> float:
    """Pearson's correlation of two arrays of one shape; `even` if either is constant."""
    a, b = one - one.mean(), two - two.mean()
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size > _TINY else even


@dataclass(frozen=True)
class StreamImage:
    """A query image that is not loaded yet."""

    key: str
    account: str  # account that sent it
    source: str  # identifies the pixels together with the key: two corpora may give the same name to different images
    load: Callable[[], Pixels]  # loads it: uint8 [H, W]


def stream_images(folder: Path, *, split: str, n: int | None, seed: int) -> list[StreamImage]:
    """The images of a stream in the order of the queries: of the run folder of an extraction, or of a corpus."""
    if (folder / LEDGER).is_file():
        return ledger_images(folder)
    if (folder / CARD).is_file():
        return corpus_images(load_corpus(folder), (split,), n, seed, account=folder.name)
    raise DataError(f"{folder} holds neither the {LEDGER} of an extraction nor the {CARD} of a corpus; check the path.")


def ledger_images(run: Path) -> list[StreamImage]:
    """The images that an extraction sent to its victim, without those answered from its cache."""
    queries = [query for query in read_ledger(run / LEDGER) if not query.cached]
    if not queries:
        raise DataError(f"{run / LEDGER} holds no answered query; there is no query to analyse.")
    paths = [run / PICTURES / f"{query.sha256}.png" for query in queries]
    return [
        StreamImage(query.sha256, query.account, "sha256", partial(_stored_pixels, path))
        for query, path in zip(queries, paths, strict=True)
    ]


def corpus_images(
    corpus: Corpus, splits: Iterable[str], n: int | None, seed: int, account: str = "benign"
) -> list[StreamImage]:
    """The images of some splits, at most n, in an order that the seed decides; none at all is a `DataError`."""
    ids = [name for split in splits for name in corpus.ids(split)]
    if not ids:
        raise corpus.no_study_error(*splits)
    drawn = generator(seed, "detect", "films", *splits).permutation(len(ids))[:n]
    source = sha256_of(corpus.file)
    return [StreamImage(ids[place], account, source, partial(_corpus_pixels, corpus, ids[place])) for place in drawn]


def _stored_pixels(path: Path) -> Pixels:
    """An image that was sent, in grey: detectors look at its luminance."""
    found = decode(read_bytes(path), str(path))
    if found.dtype != np.uint8:
        raise DataError(f"{path} is not an 8-bit image, so no extraction wrote it.")
    return np.asarray(found, np.uint8) if found.ndim == 2 else to_uint8(grey_image(found))


def _corpus_pixels(corpus: Corpus, name: str) -> Pixels:
    """An image of a corpus in the 8 bits in which a client would send it; colour becomes grey."""
    study = corpus[name]
    return to_uint8(corpus.image(study, selected_image(study).number))
