"""The hash survives what saving does to an image, and tells different images apart."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cxrlab.data.config import PhantomConfig
from cxrlab.data.duplicates import NEAR_BITS, distance, hash_rows, perceptual_hash
from cxrlab.data.images import load_image
from cxrlab.data.phantom.corpus import make_phantom


def as_picture(image: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(image * 255).astype(np.uint8))


def jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    data = io.BytesIO()
    as_picture(image).save(data, "JPEG", quality=quality)
    return np.asarray(Image.open(data), np.float32) / 255


def resized(image: np.ndarray, scale: float) -> np.ndarray:
    height, width = image.shape
    size = (round(width * scale), round(height * scale))
    return np.asarray(as_picture(image).resize(size, Image.Resampling.BICUBIC), np.float32) / 255


def cropped(image: np.ndarray, share: float) -> np.ndarray:
    top, left = (round(side * share / 2) for side in image.shape)
    return image[top : image.shape[0] - top, left : image.shape[1] - left]


CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "jpeg 75": lambda image: jpeg(image, 75),
    "jpeg 30": lambda image: jpeg(image, 30),
    "half": lambda image: resized(image, 0.5),
    "double": lambda image: resized(image, 2.0),
    "brighter": lambda image: image**0.8,
    "darker": lambda image: image**1.3,
    "crop of 1 %": lambda image: cropped(image, 0.01),
}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    corpus = make_phantom(
        PhantomConfig(n=24, size=192, seed=11, masks=False, workers=1), tmp_path_factory.mktemp("phantom") / "c"
    )
    return [corpus.image(study) for study in corpus]


@pytest.mark.parametrize("change", CHANGES)
def test_the_same_image_is_found_again(images: list[np.ndarray], change: str) -> None:
    moved = [distance(perceptual_hash(image), perceptual_hash(CHANGES[change](image))) for image in images]
    assert max(moved) <= NEAR_BITS


def test_most_images_are_found_after_a_crop_of_two_per_cent(images: list[np.ndarray]) -> None:
    moved = [distance(perceptual_hash(image), perceptual_hash(cropped(image, 0.02))) for image in images]
    assert np.mean(np.array(moved) <= NEAR_BITS) >= 0.8


def test_images_of_different_patients_are_apart(images: list[np.ndarray]) -> None:
    hashes = [perceptual_hash(image) for image in images]
    apart = [distance(one, other) for k, one in enumerate(hashes) for other in hashes[:k]]
    assert min(apart) > NEAR_BITS


def test_a_mirrored_or_negative_image_is_another_one(images: list[np.ndarray]) -> None:
    """Mirroring flips every wave of odd number across, a negative flips all: at least half of the bits."""
    for image in images[:5]:
        assert distance(perceptual_hash(image), perceptual_hash(image[:, ::-1])) > 64
        assert distance(perceptual_hash(image), perceptual_hash(1 - image)) > 250


def test_a_flat_image_has_no_bits() -> None:
    for grey in (0.0, 0.3, 1.0):
        assert perceptual_hash(np.full((50, 70), grey, np.float32)) == 0


def test_a_single_wave_sets_its_bit_alone() -> None:
    """An image that is wave 3 down times wave 5 across has one positive strength: row 3, column 5, counted from 1."""
    down, across = (np.cos(np.pi * k * (2 * np.arange(64) + 1) / 128) for k in (3, 5))
    image = (0.5 + 0.5 * np.outer(down, across)).astype(np.float32)
    assert perceptual_hash(image) == 1 << (255 - (2 * 16 + 4))


def test_hashes_as_rows() -> None:
    assert hash_rows([0, (1 << 255) | 1]).tolist() == [[0] * 32, [128] + [0] * 30 + [1]]
    assert hash_rows([]).shape == (0, 32)


@pytest.mark.real_data
def test_real_images_are_distinguished_and_found_again(real_data: Path) -> None:
    """300 first images of IU X-ray: no two alike but true repeats, and every one found after it was saved again."""
    files = sorted((real_data / "iu_xray" / "images").glob("*/0.jpg"))[:300]
    images = [load_image(file) for file in files]
    hashes = [perceptual_hash(image) for image in images]
    apart = [distance(one, other) for k, one in enumerate(hashes) for other in hashes[:k]]
    assert sum(value <= NEAR_BITS for value in apart) <= 1
    for image, value in zip(images[:50], hashes, strict=False):
        assert distance(value, perceptual_hash(jpeg(image, 50))) <= NEAR_BITS
        assert distance(value, perceptual_hash(resized(image, 0.5))) <= NEAR_BITS
