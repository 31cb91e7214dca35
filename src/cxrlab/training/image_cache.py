"""Training images in 8 bits as the image processor resizes and crops them, decoded once into a cache or at each use.

At inference images keep their full depth; the two differ by rounding, by at most about one grey level of 255.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cxrlab.core.atomic_folders import FolderBusy, Lock, lock_folder
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import make_folder, os_error, private_opener, read_json, write_json
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.json_values import dumps
from cxrlab.core.terminal import track
from cxrlab.data.images import grey_image, load_image, load_rgb, read_picture
from cxrlab.data.parallel import ordered_map

Pixels = NDArray[np.uint8]

_BLOCK = 32  # images per task of a worker
_FORMAT = 1  # to be raised when the same image gives other bytes


@dataclass(frozen=True)
class ImageFile:
    """Path of an image, and whether its colours are kept."""

    path: Path
    rgb: bool = False


@dataclass(frozen=True)
class Images:
    """The images of a training, by number.

    Args:
        files: Their files.
        processor: Image processor of the vision encoder.
        key: Hash of everything that their bytes depend on.
        side: Height and width after the processor, in pixels.
        colour: Whether any image has colour; all are then kept in colour.
        store: The decoded images; None when each is decoded at each use.
    """

    files: tuple[ImageFile, ...]
    processor: Any
    key: str
    side: tuple[int, int]
    colour: bool = False
    store: NDArray[np.generic] | None = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, numbers: Sequence[int] | NDArray[np.int64]) -> Pixels:
        """Images of these numbers: [B, H, W], or [B, H, W, 3] where any image of the training has colour."""
        if self.store is not None:
            return np.asarray(self.store[np.asarray(numbers, np.int64)], np.uint8)
        return np.stack([prepared(self.files[number], self.processor, self.colour) for number in numbers])


def open_images(
    files: Sequence[ImageFile],
    processor: Any,
    folder: Path,
    *,
    cache: str = "auto",
    most_gb: float = 40.0,
) -> Images:
    """The images, decoded on every core into a cache under `folder` where `cache` is on.

    Args:
        files: Their files.
        processor: Image processor of the vision encoder.
        folder: Folder of caches; runs may share it.
        cache: auto (up to `most_gb`), on or off.
        most_gb: Largest cache that auto makes, in 10^9 bytes.

    Raises:
        DataError: When images are missing or, where they are decoded now, unreadable, with the count and the first.
    """
    key, side = images_key(files, processor), output_side(processor) if files else (0, 0)
    colour = any(file.rgb for file in files)
    store = ArrayStore(folder / f"images-{key}", (len(files), *side, *((3,) if colour else ())), np.uint8)
    images = Images(tuple(files), processor, key, side, colour)
    if not files or not fits(store, cache, most_gb):
        return images
    store.fill(lambda start: _decode(images, start))
    return replace(images, store=store.read())


def read_image(file: ImageFile) -> NDArray[np.float32]:
    """The whole image in [0, 1], [H, W] or [H, W, 3]."""
    return load_rgb(file.path) if file.rgb else load_image(file.path)


def distinct(files: Sequence[ImageFile]) -> tuple[list[ImageFile], NDArray[np.int64]]:
    """The distinct images, and the number of each image in the list: an image with two texts is one image."""
    numbers: dict[ImageFile, int] = {}
    of = np.array([numbers.setdefault(file, len(numbers)) for file in files], np.int64)
    return list(numbers), of


def numbers_of_images(samples: Sequence[Sequence[ImageFile]]) -> tuple[list[ImageFile], NDArray[np.int64]]:
    """The distinct images, and the numbers of the images of each sample, [N, K] with -1 after the last; K is at least 1."""
    files, flat = distinct([file for images in samples for file in images])
    counts = np.array([len(images) for images in samples], np.int64)
    numbers = np.full((len(samples), max(1, int(counts.max(initial=0)))), -1, np.int64)
    numbers[np.arange(numbers.shape[1]) < counts[:, None]] = flat
    return files, numbers


def images_key(files: Sequence[ImageFile], processor: Any) -> str:
    """A hash of path, size and modification time of every image, and of the processor's settings."""
    digest = hashlib.blake2b(digest_size=12)
    settings = {name: value for name, value in sorted(processor.to_dict().items()) if "mean" not in name}
    digest.update(f"{_FORMAT} {dumps({k: str(v) for k, v in settings.items()})}".encode())
    missing: list[Path] = []
    folders: dict[Path, Path] = {}  # a folder is resolved once: images are many and their folders few
    for file in files:
        try:
            found = os.stat(file.path)
        except OSError:
            missing.append(file.path)
            continue
        parent = file.path.parent
        place = folders[parent] if parent in folders else folders.setdefault(parent, parent.resolve())
        digest.update(f"{place}/{file.path.name}\0{file.rgb}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    if missing:
        raise DataError(
            f"{len(missing):,} of {len(files):,} images are not on disk (for example {missing[0]}); restore them, or "
            "import the corpus again without them."
        )
    return digest.hexdigest()


def prepared(file: ImageFile, processor: Any, colour: bool) -> Pixels:
    """One image after the processor: [H, W], or [H, W, 3] in colour."""
    if file.rgb:
        image = to_uint8(load_rgb(file.path))
    else:
        stored = read_picture(file.path)  # 8-bit grey needs no conversion
        image = stored if stored.dtype == np.uint8 and stored.ndim == 2 else to_uint8(grey_image(stored))
    shaped = shape(image, processor)
    return shaped if colour else shaped[..., 0]


def shape(image: Pixels, processor: Any) -> Pixels:
    """Resize and crop an 8-bit image [H, W] or [H, W, 3] as the processor does: [H', W', 3], still 8 bits."""
    three = image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2)
    given = processor(
        images=three, do_rescale=False, do_normalize=False, input_data_format="channels_last", return_tensors="np"
    )["pixel_values"]
    pixels = np.asarray(given)
    if pixels.ndim != 4 or pixels.shape[:2] != (1, 3):
        raise ConfigError(
            f"{type(processor).__name__} gives images of shape {list(pixels.shape)}; training needs one array per image, "
            "[1, 3, H, W]."
        )
    whole = pixels[0].transpose(1, 2, 0)
    return whole if whole.dtype == np.uint8 else np.asarray(np.clip(np.rint(whole), 0, 255), np.uint8)


def sized_processor(processor: Any, wanted: int, image_size: int | None) -> Any:
    """The processor, or a new one for `image_size`; it must give the size that the vision encoder was made for."""
    from cxrlab.models.random_init import build_image_processor

    if image_size is not None:
        processor = build_image_processor(image_size)
    given = output_side(processor)
    if given != (wanted, wanted):  # some encoders would resample them silently, others fail on the first batch
        raise ConfigError(
            f"the image processor gives images of {given[0]} x {given[1]} pixels and the encoder was made for {wanted} x "
            f"{wanted}; set image_size={wanted} in `cxrlab train encoder` or `cxrlab train align`."
        )
    return processor


def output_side(processor: Any) -> tuple[int, int]:
    """Height and width after the processor, which must be the same for images of any size."""
    sides = {shape(np.zeros(one, np.uint8), processor).shape[:2] for one in ((64, 64), (64, 96), (96, 64))}
    if len(sides) != 1:
        given = ", ".join(f"{height} x {width}" for height, width in sorted(sides))
        raise ConfigError(
            f"{type(processor).__name__} gives different sizes to images of different shape ({given}); a vision "
            "encoder needs one size: set its crop_size or size."
        )
    return sides.pop()


def _decode(images: Images, start: int) -> Iterator[Pixels]:
    """Blocks of images from `start` on; unreadable ones are counted to the end and then raised."""
    broken: list[str] = []
    blocks = [images.files[first : first + _BLOCK] for first in range(start, len(images), _BLOCK)]
    read = partial(_read_block, processor=images.processor, colour=images.colour)
    decoded = ordered_map(read, blocks)
    for block, wrong in track(
        decoded, "decoding images", len(images) - start, size=lambda done: len(done[0]) + len(done[1])
    ):
        broken += wrong
        if not broken:
            yield block
    if broken:
        raise DataError(
            f"{len(broken):,} of {len(images):,} images cannot be read (for example: {broken[0]}) Repair or remove them; "
            "`cxrlab data check` lists all defects of a corpus."
        )


def _read_block(files: Sequence[ImageFile], processor: Any, colour: bool) -> tuple[Pixels, list[str]]:
    """The readable images [K, …], and the errors of the others."""
    found, broken = [], []
    for file in files:
        try:
            found.append(prepared(file, processor, colour))
        except DataError as error:
            broken.append(str(error))
    return np.stack(found) if found else np.zeros(0, np.uint8), broken


_ROWS, _STATE = "rows.bin", "state.json"
_CHUNK = 1 << 28  # bytes between two records of the progress


@dataclass(frozen=True)
class ArrayStore:
    """An array on disk in a folder of its own, filled row by row and resumable."""

    folder: Path
    shape: tuple[int, ...]
    dtype: DTypeLike

    @property
    def bytes(self) -> int:
        """Size on disk."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @property
    def done(self) -> int:
        """Rows written so far."""
        file = self.folder / _STATE
        if not file.is_file() or not (self.folder / _ROWS).is_file():
            return 0
        state = read_json(file)
        fits = state["shape"] == list(self.shape) and state["dtype"] == np.dtype(self.dtype).name
        return int(state["done"]) if fits and (self.folder / _ROWS).stat().st_size == self.bytes else 0

    def fill(self, rows: Callable[[int], Iterator[NDArray[np.generic]]]) -> None:
        """Compute the missing rows with `rows`: number of the first one → it and all that follow, as arrays [K, …]."""
        make_folder(self.folder)
        with _lock_when_free(self.folder):
            start = self.done
            if start == self.shape[0]:
                return
            array = self._allocate(start)
            noted = start
            for block in rows(start):
                array[start : start + len(block)] = block
                start += len(block)
                if (start - noted) * self.bytes // self.shape[0] >= _CHUNK:
                    self._note(array, start)
                    noted = start
            if start != self.shape[0]:
                raise ValueError(f"{start} rows were given for a store of {self.shape[0]}")
            self._note(array, start)

    def read(self) -> NDArray[np.generic]:
        """The whole array, read-only and not in memory."""
        return np.memmap(self.folder / _ROWS, np.dtype(self.dtype), "r", shape=self.shape)

    def _allocate(self, start: int) -> np.memmap[tuple[int, ...], np.dtype[np.generic]]:
        file = self.folder / _ROWS
        free = shutil.disk_usage(self.folder).free
        try:
            if start == 0 and free < self.bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            with open(file, "r+b" if start else "w+b", opener=private_opener) as stream:
                # All space at once: a disk that is full later would end the process at a write into the memory map.
                reserve = getattr(os, "posix_fallocate", lambda handle, _, size: os.ftruncate(handle, size))
                reserve(stream.fileno(), 0, self.bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise os_error(error, file) from error
            file.unlink(missing_ok=True)
            raise RunError(
                f"the cache in {self.folder} needs {self.bytes / 1e9:.1f} GB and the disk has {free / 1e9:.1f} GB "
                "left; choose another folder with cache, or turn the cache off."
            ) from None
        return np.memmap(file, np.dtype(self.dtype), "r+", shape=self.shape)

    def _note(self, array: np.memmap[tuple[int, ...], np.dtype[np.generic]], done: int) -> None:
        array.flush()
        state = {"shape": list(self.shape), "dtype": np.dtype(self.dtype).name, "done": done}
        write_json(self.folder / _STATE, state)


def _lock_when_free(folder: Path) -> Lock:
    """The lock of the folder; a run that fills the same cache is waited for, since it computes the same rows."""
    with suppress(FolderBusy):
        return lock_folder(folder)
    for _ in track(count(), f"waiting for another run, which is filling {folder}"):
        with suppress(FolderBusy):
            return lock_folder(folder)  # waits for a second itself
    raise AssertionError("counting does not end")


def fits(store: ArrayStore, wanted: str, most_gb: float) -> bool:
    """Whether to use a store: `wanted` is on, off, or auto (up to `most_gb` in 10^9 bytes)."""
    return wanted == "on" or (wanted == "auto" and store.bytes <= most_gb * 1e9)
