"""The hash survives what saving does to a film, and tells different films apart."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cxrlab.data.config import PhantomConfig
from cxrlab.data.duplicates.perceptual_hash import NEAR_BITS, distance, hash_rows, perceptual_hash
from cxrlab.data.images import load_image
from cxrlab.data.phantom.corpus import make_phantom


def as_picture(film: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(film * 255).astype(np.uint8))


def jpeg(film: np.ndarray, quality: int) -> np.ndarray:
    data = io.BytesIO()
    as_picture(film).save(data, "JPEG", quality=quality)
    return np.asarray(Image.open(data), np.float32) / 255


def resized(film: np.ndarray, scale: float) -> np.ndarray:
    height, width = film.shape
    size = (round(width * scale), round(height * scale))
    return np.asarray(as_picture(film).resize(size, Image.Resampling.BICUBIC), np.float32) / 255


def cropped(film: np.ndarray, share: float) -> np.ndarray:
    top, left = (round(side * share / 2) for side in film.shape)
    return film[top : film.shape[0] - top, left : film.shape[1] - left]


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "jpeg 75": lambda film: jpeg(film, 75),
    "jpeg 30": lambda film: jpeg(film, 30),
    "half": lambda film: resized(film, 0.5),
    "double": lambda film: resized(film, 2.0),
    "brighter": lambda film: film**0.8,
    "darker": lambda film: film**1.3,
    "crop of 1 %": lambda film: cropped(film, 0.01),
}


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    corpus = make_phantom(
        PhantomConfig(n=24, size=192, seed=11, masks=False, workers=1), tmp_path_factory.mktemp("phantom") / "c"
    )
    return [corpus.image(study) for study in corpus]


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_film_is_found_again(films: list[np.ndarray], change: str) -> None:
    moved = [distance(perceptual_hash(film), perceptual_hash(CHANGES[change](film))) for film in films]
    assert max(moved) <= NEAR_BITS


def test_most_films_are_found_after_a_crop_of_two_per_cent(films: list[np.ndarray]) -> None:
    moved = [distance(perceptual_hash(film), perceptual_hash(cropped(film, 0.02))) for film in films]
    assert np.mean(np.array(moved) <= NEAR_BITS) >= 0.8


def test_films_of_different_patients_are_apart(films: list[np.ndarray]) -> None:
    hashes = [perceptual_hash(film) for film in films]
    apart = [distance(one, other) for k, one in enumerate(hashes) for other in hashes[:k]]
    assert min(apart) > NEAR_BITS


def test_a_mirrored_or_negative_film_is_another_one(films: list[np.ndarray]) -> None:
    """Mirroring flips every wave of odd number across, a negative flips all: at least half of the bits."""
    for film in films[:5]:
        assert distance(perceptual_hash(film), perceptual_hash(film[:, ::-1])) > 64
        assert distance(perceptual_hash(film), perceptual_hash(1 - film)) > 250


def test_a_flat_film_has_no_bits() -> None:
    for grey in (0.0, 0.3, 1.0):
        assert perceptual_hash(np.full((50, 70), grey, np.float32)) == 0


def test_a_single_wave_sets_its_bit_alone() -> None:
    """A film that is wave 3 down times wave 5 across has one positive strength: row 3, column 5, counted from 1."""
    down, across = (np.cos(np.pi * k * (2 * np.arange(64) + 1) / 128) for k in (3, 5))
    film = (0.5 + 0.5 * np.outer(down, across)).astype(np.float32)
    assert perceptual_hash(film) == 1 << (255 - (2 * 16 + 4))


def test_hashes_as_rows() -> None:
    assert hash_rows([0, (1 << 255) | 1]).tolist() == [[0] * 32, [128] + [0] * 30 + [1]]
    assert hash_rows([]).shape == (0, 32)


@pytest.mark.real_data
def test_real_films_are_told_apart_and_found_again(real_data: Path) -> None:
    """300 first films of IU X-ray: no two alike but true repeats, and every one found after it was saved again."""
    files = sorted((real_data / "iu_xray" / "images").glob("*/0.jpg"))[:300]
    films = [load_image(file) for file in files]
    hashes = [perceptual_hash(film) for film in films]
    apart = [distance(one, other) for k, one in enumerate(hashes) for other in hashes[:k]]
    assert sum(value <= NEAR_BITS for value in apart) <= 1
    for film, value in zip(films[:50], hashes, strict=False):
        assert distance(value, perceptual_hash(jpeg(film, 50))) <= NEAR_BITS
        assert distance(value, perceptual_hash(resized(film, 0.5))) <= NEAR_BITS
