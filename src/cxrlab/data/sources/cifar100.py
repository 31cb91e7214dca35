"""CIFAR-100: small colour photographs of a hundred classes, a pool of pictures without any chest.

Counts: 50,000 train, 10,000 test, 32 x 32 pixels; CIFAR-10 in its python form is read too.
Views: other.
Labels: none of ours; the caption is the name of the fine class.
Language: English class names.
Licence: research use; the photographs were gathered from the web and have no stated licence.
Citation: Krizhevsky, Learning multiple layers of features from tiny images, 2009.
Obtain: cifar-100-python.tar.gz from the author's page at the University of Toronto, unpacked; root is the folder with
    'meta', 'train' and 'test'.
Defects: the files are Python pickles, which may hold programs; anything but plain data is refused. A few test pictures
    repeat train pictures.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cxrlab.core.errors import ConfigError, DataError, short_repr
from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.bounded_reading import read_bounded
from cxrlab.data.config import ImportConfig
from cxrlab.data.importing import Imported, ImportPlan
from cxrlab.data.source_tables import chosen_layout
from cxrlab.data.sources.image_folder import Picture

_SIDE = 32


class Shot(NamedTuple):
    """A picture with its split and its number in it."""

    split: str
    number: int
    picture: Picture


def plan(config: ImportConfig) -> ImportPlan[Shot]:
    """Both splits, in the order of the files."""
    chosen_layout(config, ())
    cifar_pool(config.root)  # refuses a folder without CIFAR's files before anything is written
    shots = (
        Shot(split, number, picture)
        for split in ("train", "test")
        for number, picture in enumerate(cifar_pool(config.root, split))
    )
    return ImportPlan(items=shots, study_id=_study_id, read=read, total=None, layout="python", writes_images=True)


def read(shot: Shot) -> Imported:
    """One picture as a PNG file."""
    path = f"images/{_study_id(shot)}.png"
    study = Study(
        id=_study_id(shot),
        patient=_study_id(shot),
        images=(ImageFile(path, View.OTHER),),
        split=shot.split,
        caption=shot.picture.label.replace("_", " "),
        extra={"file": shot.picture.name},
    )
    return Imported(study, files={path: encode_png(shot.picture.image)})


def _study_id(shot: Shot) -> str:
    # By number: the file names of the pickles are not unique.
    return f"{shot.split}{shot.number:05d}"


def cifar_pool(path: str | Path, split: str = "train") -> Iterator[Picture]:
    """The pictures of CIFAR-100 (`train`, `test`, `meta`) or CIFAR-10 (`data_batch_1…5`, `test_batch`)."""
    folder = Path(path)
    if split not in ("train", "test"):
        raise ConfigError(f"'{split}' is not a split of CIFAR; choose train or test.")
    if (folder / "meta").is_file():
        batches, labels_key = [folder / split], b"fine_labels"
        names = _class_names(folder / "meta", b"fine_label_names")
    elif (folder / "batches.meta").is_file():
        batches = sorted(folder.glob("data_batch_*")) if split == "train" else [folder / "test_batch"]
        labels_key, names = b"labels", _class_names(folder / "batches.meta", b"label_names")
    else:
        raise DataError(f"{folder} is not an unpacked CIFAR folder: it has neither 'meta' nor 'batches.meta'.")
    if not batches:
        raise DataError(f"{folder} has no data_batch file; unpack the archive again.")
    return _pictures(batches, labels_key, names)


def _pictures(batches: list[Path], labels_key: bytes, names: list[str]) -> Iterator[Picture]:
    for path in batches:
        batch = load_plain_pickle(path)
        data = _field(batch, b"data", path)
        labels = _list(batch, labels_key, path, (int,), "whole numbers")
        files = _texts(batch, b"filenames", path)
        if not isinstance(data, np.ndarray) or data.shape[1:] != (3 * _SIDE * _SIDE,) or data.dtype != np.uint8:
            found = f"{data.dtype} {list(data.shape)}" if isinstance(data, np.ndarray) else f"a {type(data).__name__}"
            raise DataError(f"{path}: 'data' must be uint8 [N, 3072], not {found}; unpack the archive again.")
        if not len(data) == len(labels) == len(files):
            raise DataError(f"{path}: {len(data)} pictures, {len(labels)} labels and {len(files)} names do not match.")
        for row, label, file in zip(data, labels, files, strict=True):
            if not 0 <= label < len(names):
                raise DataError(f"{path}: label {label} has no name among the {len(names)} classes.")
            image = row.reshape(3, _SIDE, _SIDE).transpose(1, 2, 0).copy()
            yield Picture(file, image, names[label])


def _class_names(path: Path, key: bytes) -> list[str]:
    return _texts(load_plain_pickle(path), key, path)


def _field(batch: Mapping[bytes, Any], key: bytes, path: Path) -> Any:
    if key not in batch:
        raise DataError(f"{path} has no '{key.decode()}'; it is not a CIFAR file of the expected kind.")
    return batch[key]


def _texts(batch: Mapping[bytes, Any], key: bytes, path: Path) -> list[str]:
    values = _list(batch, key, path, (bytes, str), "texts")
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values]


def _list(batch: Mapping[bytes, Any], key: bytes, path: Path, kinds: tuple[type, ...], what: str) -> list[Any]:
    """A list of `batch` whose items are all of one of these kinds; True is not a whole number."""
    values = _field(batch, key, path)
    wrong = [value for value in values if type(value) not in kinds] if isinstance(values, list) else [values]
    if wrong:
        must = f"'{key.decode()}' must be a list of {what}"
        raise DataError(f"{path}: {must}, but holds {short_repr(wrong[0])}; unpack the archive again.")
    return list(values)


class _PlainUnpickler(pickle.Unpickler):
    """Rebuilds numpy arrays and plain containers; anything else in the file is refused before it runs."""

    _ALLOWED = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        if name == "encode":
            return _latin_bytes
        return super().find_class(module.replace("numpy.core", "numpy._core") if hasattr(np, "_core") else module, name)


def _latin_bytes(text: str, encoding: str) -> bytes:
    """How protocol 2 writes bytes; no other codec is let in."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the codec {encoding}")
    return text.encode("latin1")


def load_plain_pickle(path: Path) -> dict[bytes, Any]:
    """A dictionary from a pickle that holds data alone; a pickle with a program in it is refused unrun."""
    data = read_bounded(path)
    try:
        value = _PlainUnpickler(io.BytesIO(data), encoding="bytes").load()
    except pickle.UnpicklingError as error:
        if "asks for" in str(error):
            raise DataError(
                f"{path} is refused: {error}, which plain data never does; it may be harmful, fetch it from its source."
            ) from None
        raise DataError(f"{path} is damaged ({error}); unpack the archive again.") from None
    except Exception as error:  # a cut or scrambled pickle raises many kinds
        raise DataError(f"{path} is damaged or no pickle ({type(error).__name__}); unpack the archive again.") from None
    if not isinstance(value, dict):
        raise DataError(f"{path} holds a {type(value).__name__}, not a CIFAR dictionary; unpack the archive again.")
    return value
