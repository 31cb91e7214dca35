"""Films as the tower takes them, 8 bits a pixel: decoded once into a file, or each time anew, with the same bytes.

A film goes through the checkpoint's own image processor, which resizes and crops 8-bit pictures. At
inference films keep their full depth; the two differ by rounding, at most about one grey level of 255
(none where an 8-bit film already has the tower's size).
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
from cxrlab.data.images import grey_film, load_rgb, read_picture
from cxrlab.data.parallel import ordered_map
from cxrlab.training.array_store import ArrayStore, fits

Pixels = NDArray[np.uint8]

_BLOCK = 32  # films that a worker is given at once
_FORMAT = 1  # raised when the same film gives other bytes than before


@dataclass(frozen=True)
class FilmFile:
    """Where a film stands, and whether its colours are kept."""

    path: Path
    rgb: bool = False


@dataclass(frozen=True)
class Films:
    """The films of a training, by number.

    Args:
        files: Where they come from.
        processor: The image processor.
        key: Hash of everything that their bytes depend on.
        side: Height and width that the processor gives, in pixels.
        colour: Whether any film has colour; all are then kept in it.
        store: The decoded films; None when each is decoded anew.
    """

    files: tuple[FilmFile, ...]
    processor: Any
    key: str
    side: tuple[int, int]
    colour: bool = False
    store: NDArray[np.generic] | None = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, numbers: Sequence[int] | NDArray[np.int64]) -> Pixels:
        """Films of these numbers: [B, H, W], or [B, H, W, 3] where any film of the training has colour."""
        if self.store is not None:
            return np.asarray(self.store[np.asarray(numbers, np.int64)], np.uint8)
        return np.stack([prepared(self.files[number], self.processor, self.colour) for number in numbers])


def open_films(
    files: Sequence[FilmFile],
    processor: Any,
    folder: Path,
    *,
    cache: str = "auto",
    most_gb: float = 40.0,
) -> Films:
    """The films, decoded on every core into a store under `folder` where `cache` asks for it.

    Args:
        files: Where they stand.
        processor: Image processor of the tower.
        folder: Where stores stand; may be shared between runs.
        cache: auto, on or off.
        most_gb: Largest store that auto makes.

    Raises:
        DataError: When any film is missing or, where they are decoded now, unreadable, with the count and the first.
    """
    key, side = films_key(files, processor), output_side(processor) if files else (0, 0)
    colour = any(file.rgb for file in files)
    store = ArrayStore(folder / f"films-{key}", (len(files), *side, *((3,) if colour else ())), np.uint8)
    films = Films(tuple(files), processor, key, side, colour)
    if not files or not fits(store, cache, most_gb):
        return films
    store.fill(lambda start: _decoded(films, start))
    return replace(films, store=store.read())


def distinct(files: Sequence[FilmFile]) -> tuple[list[FilmFile], NDArray[np.int64]]:
    """Every film once, and the number of each one given: a film with two texts is one film."""
    numbers: dict[FilmFile, int] = {}
    of = np.array([numbers.setdefault(file, len(numbers)) for file in files], np.int64)
    return list(numbers), of


def films_key(files: Sequence[FilmFile], processor: Any) -> str:
    """A hash over path, size and time of change of every film, and how the processor shapes them."""
    digest = hashlib.blake2b(digest_size=12)
    settings = {name: value for name, value in sorted(processor.to_dict().items()) if "mean" not in name}
    digest.update(f"{_FORMAT} {dumps({k: str(v) for k, v in settings.items()})}".encode())
    missing: list[Path] = []
    folders: dict[Path, Path] = {}  # a folder is resolved once: films are many and their folders few
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
            f"{len(missing):,} of {len(files):,} films are not on disk (for example {missing[0]}); bring them back, or "
            "make the corpus anew without them."
        )
    return digest.hexdigest()


def prepared(file: FilmFile, processor: Any, colour: bool) -> Pixels:
    """One film as the processor shapes it: [H, W], or [H, W, 3] where colour is kept."""
    if file.rgb:
        film = to_uint8(load_rgb(file.path))
    else:
        stored = read_picture(file.path)  # 8 bits of grey are taken as they are; they would come back from floats
        film = stored if stored.dtype == np.uint8 and stored.ndim == 2 else to_uint8(grey_film(stored))
    shaped = shape(film, processor)
    return shaped if colour else shaped[..., 0]


def shape(film: Pixels, processor: Any) -> Pixels:
    """Resize and crop an 8-bit film [H, W] or [H, W, 3] as the processor does: [H', W', 3], still 8 bits."""
    three = film if film.ndim == 3 else np.repeat(film[..., None], 3, axis=2)
    given = processor(
        images=three, do_rescale=False, do_normalize=False, input_data_format="channels_last", return_tensors="np"
    )["pixel_values"]
    pixels = np.asarray(given)
    if pixels.ndim != 4 or pixels.shape[:2] != (1, 3):
        raise ConfigError(
            f"{type(processor).__name__} gives pictures of shape {list(pixels.shape)}; training takes towers with one "
            "square of pixels a film, [1, 3, H, W]."
        )
    whole = pixels[0].transpose(1, 2, 0)
    return whole if whole.dtype == np.uint8 else np.asarray(np.clip(np.rint(whole), 0, 255), np.uint8)


def output_side(processor: Any) -> tuple[int, int]:
    """Height and width that the processor gives to films, whatever theirs."""
    sides = {shape(np.zeros(one, np.uint8), processor).shape[:2] for one in ((64, 64), (64, 96), (96, 64))}
    if len(sides) != 1:
        given = ", ".join(f"{height} x {width}" for height, width in sorted(sides))
        raise ConfigError(
            f"{type(processor).__name__} gives films of other shape another size ({given}); a tower "
            "takes one size: set its crop_size or size."
        )
    return sides.pop()


def _decoded(films: Films, start: int) -> Iterator[Pixels]:
    """Blocks of films from `start` on; unreadable ones are counted to the end and then raised."""
    read = partial(_try, processor=films.processor, colour=films.colour)
    broken: list[str] = []
    blocks = [films.files[first : first + _BLOCK] for first in range(start, len(films), _BLOCK)]
    decoded = ordered_map(read, blocks)
    for block, wrong in track(
        decoded, "decoding images", len(films) - start, size=lambda done: len(done[0]) + len(done[1])
    ):
        broken += wrong
        if not broken:
            yield block
    if broken:
        raise DataError(
            f"{len(broken):,} of {len(films):,} films cannot be read (for example: {broken[0]}) Mend or remove them; "
            "`cxrlab data check` lists all defects of a corpus."
        )


def _try(files: Sequence[FilmFile], processor: Any, colour: bool) -> tuple[Pixels, list[str]]:
    """Films [K, …] of those that can be read, and what is wrong with the others."""
    found, broken = [], []
    for file in files:
        try:
            found.append(prepared(file, processor, colour))
        except DataError as error:
            broken.append(str(error))
    return np.stack(found) if found else np.zeros(0, np.uint8), broken
