"""Photon noise and grid lines."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cxrlab.attacks.corruptions import LINE_HEIGHTS, PHOTONS, ImageArray, corrupt


def flat(grey: float, size: int = 256) -> ImageArray:
    return np.full((size, size), grey, dtype=np.float32)


@pytest.mark.parametrize("grey", [0.3, 0.5, 0.7])
def test_the_noise_is_that_of_poisson_counts(grey: float) -> None:
    """N = 640 e^(-3v) photons arrive; the logarithm of a count has deviation 1/√N, and the image spans 3 of it."""
    noise = corrupt("low-dose", flat(grey), 3, key="s1", seed=0) - np.float32(grey)
    arrived = PHOTONS[2] * math.exp(-3.0 * grey)
    assert noise.std() == pytest.approx(1.0 / (3.0 * math.sqrt(arrived)), rel=0.05)
    assert abs(noise.mean()) < 0.25 * noise.std()


def test_it_agrees_with_counts_that_were_drawn() -> None:
    """The root of a count as a bell, against numpy's own Poisson numbers at 250 e^(-1.5) = 56 photons."""
    drawn = np.random.default_rng(0).poisson(PHOTONS[3] * math.exp(-1.5), 65536)
    images = 0.5 - np.log(np.maximum(drawn, 1) / (PHOTONS[3] * math.exp(-1.5))) / 3.0
    made = corrupt("low-dose", flat(0.5), 4, key="s1", seed=0)
    shares = [0.05, 0.25, 0.5, 0.75, 0.95]
    assert np.quantile(made, shares) == pytest.approx(np.quantile(images, shares), abs=0.006)


def test_a_smaller_image_has_as_many_photons_in_fewer_pixels() -> None:
    """Half as many pixels across, four times the photons in each, half the deviation; a larger image has no more."""
    small, usual, large = (float(corrupt("low-dose", flat(0.5, s), 2, key="a", seed=0).std()) for s in (128, 256, 600))
    assert small == pytest.approx(usual / 2, rel=0.05)
    assert large == pytest.approx(usual, rel=0.05)


def test_grid_lines_run_from_top_to_bottom_as_high_as_stated() -> None:
    """56 to 80 lines: the strongest wave along the width is one of these, and rows hardly differ along a column."""
    change = corrupt("grid-lines", flat(0.5), 3, key="s1", seed=0) - np.float32(0.5)
    assert float(change.max()) == pytest.approx(LINE_HEIGHTS[2], rel=0.01)
    strongest = np.abs(np.fft.rfft(change, axis=1)).mean(axis=0)[1:].argmax() + 1
    assert 55 <= strongest <= 81
    assert np.abs(np.diff(change, axis=0)).mean() < 0.1 * np.abs(np.diff(change, axis=1)).mean()


def test_grid_lines_are_lines_on_a_small_image_too() -> None:
    """On 24 pixels 60 lines would come out as a slow wave or as nothing; there are 9 to see instead."""
    change = corrupt("grid-lines", flat(0.5, 24), 3, key="s1", seed=0) - np.float32(0.5)
    assert 8 <= np.abs(np.fft.rfft(change[0]))[1:].argmax() + 1 <= 11
