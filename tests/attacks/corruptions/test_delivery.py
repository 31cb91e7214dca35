"""Burned-in marks, JPEG and too few pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from cxrlab.attacks.corruptions import SEVERITIES, ImageArray, corrupt, jpeg_quality


def noise(*shape: int) -> ImageArray:
    return np.random.default_rng(1).random(shape, dtype=np.float32)


@pytest.mark.parametrize("shape", [(48, 64), (48, 64, 3)])
def test_jpeg_is_a_round_trip_through_a_jpeg_file(shape: tuple[int, ...]) -> None:
    """48 pixels at severity 5 take 420 × 48 / 256 = 79 % coarseness, which is quality 61."""
    image = noise(*shape)
    stream = io.BytesIO()
    Image.fromarray(np.rint(image * 255).astype(np.uint8)).save(stream, "JPEG", quality=61)
    with Image.open(stream) as opened:
        expected = np.asarray(opened) / 255.0
    assert corrupt("jpeg", image, 5, key="s1", seed=0) == pytest.approx(expected, abs=1e-6)


def test_jpeg_quality_falls_with_severity_and_with_size() -> None:
    """For 256 pixels: 100 - 50/2, 100 - 90/2, 5000/150, 5000/250, 5000/420; a wide image has the limit 1."""
    assert [jpeg_quality(256, severity) for severity in SEVERITIES] == [75, 55, 33, 20, 12]
    assert [jpeg_quality(side, 3) for side in (16, 64, 1024, 100_000)] == [95, 81, 8, 1]


def test_pixelate_keeps_means_of_squares() -> None:
    """360 pixels at severity 5 keep 36: squares of 10, each the mean of what was there."""
    image = noise(360, 360)
    means = image.reshape(36, 10, 36, 10).mean(axis=(1, 3))
    made = corrupt("pixelate", image, 5, key="s1", seed=0)
    assert made == pytest.approx(means.repeat(10, 0).repeat(10, 1), abs=1e-5)


def test_the_marker_whitens_one_corner_and_names_its_side() -> None:
    """The patient's left is on the right of the image. An L has no ink right of its stem at the top, an R has."""
    corners = set()
    for key in "abcdefghijkl":
        ink = corrupt("marker", np.zeros((400, 400), dtype=np.float32), 5, key=key, seed=0) > 0.5
        rows, columns = np.nonzero(ink)
        low, left = rows.min() > 200, columns.max() < 210
        corners.add((low, left))
        assert low or rows.max() < 200
        assert left or columns.min() > 190
        # The stamp is 60 pixels high, its letter 5 of 7 units wide; half a unit below the top is its first row.
        first = ink[rows.min() + 4, columns.min() : columns.min() + 43]
        assert first.mean() > 0.7 if left else first.mean() < 0.3
    assert len(corners) == 4


def test_the_marker_never_darkens_and_leaves_most_of_the_image_alone() -> None:
    image = noise(128, 96)
    change = corrupt("marker", image, 5, key="s1", seed=0) - image
    assert change.min() >= 0.0 and (change == 0).mean() > 0.9
