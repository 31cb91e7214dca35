"""Pictures to what detectors see of them: the vector of an encoder, and plain statistics; computed once and kept."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.files import write_bytes
from cxrlab.core.image_codec import to_unit
from cxrlab.core.terminal import track
from cxrlab.data.images import fit
from cxrlab.extraction.detection.looks import NAMES, looks_of
from cxrlab.extraction.detection.traffic import Asked, Traffic, Vector

if TYPE_CHECKING:
    from cxrlab.core.protocols import Image
    from cxrlab.extraction.detection.sources import Shot
    from cxrlab.extraction.records import Pixels
    from cxrlab.models.load_settings import LoadSettings

NONE, PIXELS = "none", "pixels"
_SMALL = 12  # side of the pictures that `pixels` takes as vectors


class SeesImages(Protocol):
    """The half of an `Embedder` that detectors need."""

    @property
    def name(self) -> str:
        """Which encoder."""
        ...

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Vectors [N, D] of length 1 for images [H, W] in [0, 1]."""
        ...


class SmallPictures:
    """An encoder without weights: the image at 12 × 12 pixels, its mean taken away, at length 1."""

    name = PIXELS

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Vectors [N, 144]; zeros for an even picture."""
        rows = np.stack([fit(image, _SMALL).reshape(-1) for image in images])
        rows = rows - rows.mean(axis=1, keepdims=True)
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(np.divide(rows, length, out=np.zeros_like(rows), where=length > 1e-6), np.float32)


def open_encoder(name: str, loading: LoadSettings) -> SeesImages | None:
    """The encoder of this name: none, pixels, or a contrastive one; see `models.names.load_encoder`."""
    if name == NONE:
        return None
    if name == PIXELS:
        return SmallPictures()
    from cxrlab.models.names import load_encoder

    return load_encoder(name, loading)


def measure(pictures: Sequence[Pixels], encoder: SeesImages | None) -> list[Asked]:
    """What detectors see of some pictures, uint8 [H, W] each.

    A picture for which the encoder gives no numbers is a `DataError`: an image that passes for want of a number would
    be a hole in the fence.
    """
    if encoder is None:
        vectors: Vector = np.zeros((len(pictures), 0))
    else:
        vectors = np.asarray(encoder.embed_images([to_unit(pixels) for pixels in pictures]), np.float64)
        if not np.isfinite(vectors).all():
            raise DataError(
                f"'{encoder.name}' gives no numbers for a picture: its weights are broken, or the number format is too "
                "small for them (try --loading.dtype float32)."
            )
    # Rounded as in the files, so that an image seen live has the very numbers that it has in a stored stream.
    looks = [looks_of(pixels).astype(np.float32).astype(np.float64) for pixels in pictures]
    return [Asked(*row) for row in zip(vectors, looks, strict=True)]


def traffic_of(shots: Sequence[Shot], encoder: SeesImages | None, store: Path, batch_size: int, label: str) -> Traffic:
    """The stream of some pictures; measured once and kept as two .npy files in a folder.

    Args:
        shots: Pictures in order.
        encoder: None does without vectors.
        store: The folder; files are named after encoder and pictures, so that none is read for other ones.
        batch_size: Pictures at once.
        label: For the progress.
    """
    names = "\n".join([_identity(encoder), *(f"{shot.source} {shot.key}" for shot in shots)])
    stem = hashlib.blake2b(names.encode(), digest_size=8).hexdigest()
    files = store / f"{stem}_features.npy", store / f"{stem}_looks.npy"
    if not all(file.is_file() for file in files):
        features, looks = _measured(shots, encoder, batch_size, label)
        for file, rows in zip(files, (features, looks), strict=True):
            write_bytes(file, _bytes_of(rows.astype(np.float32)))
    features, looks = (_stored(file, len(shots)) for file in files)
    return Traffic(tuple(shot.key for shot in shots), tuple(shot.account for shot in shots), features, looks)


def _identity(encoder: SeesImages | None) -> str:
    """Stands for the numbers that an encoder gives: its weights too, since a folder may be trained anew."""
    model = getattr(encoder, "model", None)
    if encoder is None or model is None:
        return encoder.name if encoder else NONE
    from cxrlab.training.fingerprint import weights_key

    return f"{encoder.name} {weights_key(model)}"


def _measured(shots: Sequence[Shot], encoder: SeesImages | None, batch_size: int, label: str) -> tuple[Vector, Vector]:
    """Features [N, D] and looks [N, K]; a picture that was asked several times is measured once."""
    first = {shot.key: shot for shot in shots}
    seen: dict[str, Asked] = {}
    keys = list(first)
    batches = [keys[start : start + batch_size] for start in range(0, len(keys), batch_size)]
    for batch in track(batches, label, len(keys), size=len):
        seen |= zip(batch, measure([first[key].load() for key in batch], encoder), strict=True)
    rows = [seen[shot.key] for shot in shots]
    return np.stack([row.features for row in rows]), np.stack([row.looks for row in rows])


def _bytes_of(rows: NDArray[np.float32]) -> bytes:
    target = io.BytesIO()
    np.save(target, rows, allow_pickle=False)
    return target.getvalue()


def _stored(file: Path, rows: int) -> Vector:
    """Rows that are on disk, as they were kept; another number of them is a `DataError`."""
    try:
        found = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{file} cannot be read ({error}); delete it and run again.") from None
    if found.ndim != 2 or len(found) != rows or (file.stem.endswith("looks") and found.shape[1] != len(NAMES)):
        raise DataError(f"{file} holds {found.shape} numbers where {rows} rows were expected; delete it and run again.")
    return np.asarray(found, np.float64)
