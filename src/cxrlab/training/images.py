"""Images as the encoder takes them, 8 bits a pixel: decoded once into a file, or each time anew, with the same bytes.

An image goes through the checkpoint's own image processor, which resizes and crops 8-bit pictures. At
inference images keep their full depth; the two differ by rounding, at most about one grey level of 255
(none where an 8-bit image already has the vision encoder's size).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.codec import to_uint8
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.json_form import dumps
from cxrlab.core.progress import track
from cxrlab.data.images import grey_image, load_rgb, read_picture
from cxrlab.data.parallel import ordered_map
from cxrlab.training.array_store import ArrayStore, fits

Pixels = NDArray[np.uint8]

_BLOCK = 32  # images that a worker is given at once
_FORMAT = 1  # raised when the same image gives other bytes than before


@dataclass(frozen=True)
class ImageFile:
    """Where an image stands, and whether its colours are kept."""

    path: Path
    rgb: bool = False


@dataclass(frozen=True)
class Images:
    """The images of a training, by number.

    Args:
        files: Where they come from.
        processor: The image processor.
        key: Hash of everything that their bytes depend on.
        side: Height and width that the processor gives, in pixels.
        colour: Whether any image has colour; all are then kept in it.
        store: The decoded images; None when each is decoded anew.
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
    """The images, decoded on every core into a store under `folder` where `cache` asks for it.

    Args:
        files: Where they stand.
        processor: Image processor of the vision encoder.
        folder: Where stores stand; may be shared between runs.
        cache: auto, on or off.
        most_gb: Largest store that auto makes.

    Raises:
        DataError: When any image is missing or, where they are decoded now, unreadable, with the count and the first.
    """
    key, side = images_key(files, processor), output_side(processor) if files else (0, 0)
    colour = any(file.rgb for file in files)
    store = ArrayStore(folder / f"images-{key}", (len(files), *side, *((3,) if colour else ())), np.uint8)
    images = Images(tuple(files), processor, key, side, colour)
    if not files or not fits(store, cache, most_gb):
        return images
    store.fill(lambda start: _decoded(images, start))
    return replace(images, store=store.read())


def distinct(files: Sequence[ImageFile]) -> tuple[list[ImageFile], NDArray[np.int64]]:
    """Every image once, and the number of each one given: an image with two texts is one image."""
    numbers: dict[ImageFile, int] = {}
    of = np.array([numbers.setdefault(file, len(numbers)) for file in files], np.int64)
    return list(numbers), of


def images_key(files: Sequence[ImageFile], processor: Any) -> str:
    """A hash over path, size and time of change of every image, and how the processor shapes them."""
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
            f"{len(missing):,} of {len(files):,} images are not on disk (for example {missing[0]}); bring them back, or "
            "make the corpus anew without them."
        )
    return digest.hexdigest()


def prepared(file: ImageFile, processor: Any, colour: bool) -> Pixels:
    """One image as the processor shapes it: [H, W], or [H, W, 3] where colour is kept."""
    if file.rgb:
        image = to_uint8(load_rgb(file.path))
    else:
        stored = read_picture(file.path)  # 8 bits of grey are taken as they are; they would come back from floats
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
            f"{type(processor).__name__} gives pictures of shape {list(pixels.shape)}; training takes encoders with one "
            "square of pixels an image, [1, 3, H, W]."
        )
    whole = pixels[0].transpose(1, 2, 0)
    return whole if whole.dtype == np.uint8 else np.asarray(np.clip(np.rint(whole), 0, 255), np.uint8)


def output_side(processor: Any) -> tuple[int, int]:
    """Height and width that the processor gives to images, whatever theirs."""
    sides = {shape(np.zeros(one, np.uint8), processor).shape[:2] for one in ((64, 64), (64, 96), (96, 64))}
    if len(sides) != 1:
        given = ", ".join(f"{height} x {width}" for height, width in sorted(sides))
        raise ConfigError(
            f"{type(processor).__name__} gives images of other shape another size ({given}); a vision encoder "
            "takes one size: set its crop_size or size."
        )
    return sides.pop()


def _decoded(images: Images, start: int) -> Iterator[Pixels]:
    """Blocks of images from `start` on; unreadable ones are counted to the end and then raised."""
    read = partial(_try, processor=images.processor, colour=images.colour)
    broken: list[str] = []
    blocks = [images.files[first : first + _BLOCK] for first in range(start, len(images), _BLOCK)]
    decoded = ordered_map(read, blocks)
    for block, wrong in track(
        decoded, "decoding images", len(images) - start, size=lambda done: len(done[0]) + len(done[1])
    ):
        broken += wrong
        if not broken:
            yield block
    if broken:
        raise DataError(
            f"{len(broken):,} of {len(images):,} images cannot be read (for example: {broken[0]}) Mend or remove them; "
            "`cxrlab data check` lists all defects of a corpus."
        )


def _try(files: Sequence[ImageFile], processor: Any, colour: bool) -> tuple[Pixels, list[str]]:
    """Images [K, …] of those that can be read, and what is wrong with the others."""
    found, broken = [], []
    for file in files:
        try:
            found.append(prepared(file, processor, colour))
        except DataError as error:
            broken.append(str(error))
    return np.stack(found) if found else np.zeros(0, np.uint8), broken
