"""Films as the tower takes them, 8 bits a pixel: decoded once into a file, or each time anew, with the same bytes.

A film goes through the checkpoint's own image processor, which resizes and crops 8-bit pictures. At
inference films keep their full depth; the two differ by rounding, at most about one grey level of 255
(none where an 8-bit film already has the tower's size).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.codec import to_uint8
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.json_form import dumps
from cxrlab.core.progress import track
from cxrlab.data.images import load_image, load_rgb
from cxrlab.data.parallel import ordered_map
from cxrlab.training.array_store import ArrayStore, fits

Pixels = NDArray[np.uint8]

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
        store: The decoded films; None when each is decoded anew.
    """

    files: tuple[FilmFile, ...]
    processor: Any
    key: str
    side: tuple[int, int]
    store: NDArray[np.generic] | None = None

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, numbers: Sequence[int] | NDArray[np.int64]) -> Pixels:
        """Films of these numbers: [B, H, W], or [B, H, W, 3] where any film of the training has colour."""
        if self.store is not None:
            return np.asarray(self.store[np.asarray(numbers, np.int64)], np.uint8)
        colour = any(file.rgb for file in self.files)
        return np.stack([prepared(self.files[number], self.processor, colour) for number in numbers])


def open_films(
    files: Sequence[FilmFile],
    processor: Any,
    folder: Path,
    *,
    cache: str = "auto",
    most_gb: float = 40.0,
    workers: int = 0,
) -> Films:
    """The films, decoded into a store under `folder` where `cache` asks for it.

    Args:
        files: Where they stand.
        processor: Image processor of the tower.
        folder: Where stores stand; may be shared between runs.
        cache: auto, on or off.
        most_gb: Largest store that auto makes.
        workers: Processes that decode; 0 uses every core.

    Raises:
        DataError: When any film is missing or, where they are decoded now, unreadable, with the count and the first.
    """
    key, side = films_key(files, processor), output_side(processor) if files else (0, 0)
    colour = any(file.rgb for file in files)
    store = ArrayStore(folder / f"films-{key}", (len(files), *side, *((3,) if colour else ())), np.uint8)
    films = Films(tuple(files), processor, key, side)
    if not files or not fits(store, cache, most_gb):
        return films
    store.fill(lambda start: _decoded(films, start, colour, workers))
    return Films(films.files, processor, key, side, store.read())


def films_key(files: Sequence[FilmFile], processor: Any) -> str:
    """A hash over path, size and time of change of every film, and how the processor shapes them."""
    digest = hashlib.blake2b(digest_size=12)
    settings = {name: value for name, value in sorted(processor.to_dict().items()) if "mean" not in name}
    digest.update(f"{_FORMAT} {dumps({k: str(v) for k, v in settings.items()})}".encode())
    missing: list[Path] = []
    for file in files:
        try:
            found = os.stat(file.path)
        except OSError:
            missing.append(file.path)
            continue
        digest.update(f"{file.path.resolve()}\0{file.rgb}\0{found.st_size}\0{found.st_mtime_ns}\n".encode())
    if missing:
        raise DataError(
            f"{len(missing):,} of {len(files):,} films are not on disk (for example {missing[0]}); bring them back, or "
            "make the corpus anew without them."
        )
    return digest.hexdigest()


def prepared(file: FilmFile, processor: Any, colour: bool) -> Pixels:
    """One film as the processor shapes it: [H, W], or [H, W, 3] where colour is kept."""
    film = to_uint8(load_rgb(file.path) if file.rgb else load_image(file.path))
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
    return np.asarray(np.clip(np.rint(pixels[0]), 0, 255), np.uint8).transpose(1, 2, 0)


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


def _decoded(films: Films, start: int, colour: bool, workers: int) -> Iterator[Pixels]:
    """Film after film from `start` on; unreadable ones are counted to the end and then raised."""
    read = partial(_try, processor=films.processor, colour=colour)
    broken: list[str] = []
    left = films.files[start:]
    for film in track(ordered_map(read, left, workers), "decoding films", total=len(left)):
        if isinstance(film, str):
            broken.append(film)
        elif not broken:
            yield film[None]
    if broken:
        raise DataError(
            f"{len(broken):,} of {len(films):,} films cannot be read (for example: {broken[0]}) Mend or remove them; "
            "`cxrlab data check` lists all defects of a corpus."
        )


def _try(file: FilmFile, processor: Any, colour: bool) -> Pixels | str:
    try:
        return prepared(file, processor, colour)
    except DataError as error:
        return str(error)
