"""Grey values gone wrong: each against a number worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cxrlab.attacks.corruptions import ImageArray, corrupt


def spoilt(name: str, image: ImageArray, severity: int, key: str = "s1") -> ImageArray:
    return corrupt(name, image, severity, key=key, seed=7)


def greys(*values: float) -> ImageArray:
    return np.array([values], dtype=np.float32)


def test_full_inversion_is_the_negative() -> None:
    image = np.linspace(0.0, 1.0, 64, dtype=np.float32).reshape(8, 8)
    assert np.array_equal(spoilt("inversion", image, 5), np.float32(1.0) - image)


def test_inversion_takes_its_share_of_the_way_and_never_stops_halfway() -> None:
    """A tenth of the way from black to white is 0.1; at one half every value would be the same grey."""
    assert spoilt("inversion", greys(0.0, 1.0), 1) == pytest.approx(greys(0.1, 0.9))
    spans = [float(np.ptp(spoilt("inversion", greys(0.0, 1.0), severity))) for severity in (1, 2, 3, 4, 5)]
    assert min(spans) == pytest.approx(0.4)


def test_exposure_shifts_by_the_logarithm_of_the_dose_and_clips() -> None:
    """1.2 doublings move an image by 1.2 × ln 2 / 3 = 0.277, one way or the other, and what leaves the window is lost."""
    shifts = {round(float(spoilt("exposure", greys(0.5), 4, key)[0, 0]) - 0.5, 3) for key in "abcdefghij"}
    assert shifts == {-0.277, 0.277}
    for key in "abcdefghij":
        low, high = spoilt("exposure", greys(0.1, 0.9), 5, key)[0]
        assert low == 0.0 or high == 1.0


def test_contrast_pales_about_the_mean() -> None:
    """A share of 0.32 of ±0.4 about 0.5 is left: 0.372 and 0.628."""
    assert spoilt("contrast", greys(0.1, 0.9), 5) == pytest.approx(greys(0.372, 0.628))


def test_gamma_bends_the_middle_and_holds_both_ends() -> None:
    """0.25 to the power of 2.1 is 0.054, to that of 1 / 2.1 it is 0.517."""
    seen = {round(float(spoilt("gamma", greys(0.25), 4, key)[0, 0]), 3) for key in "abcdefghij"}
    assert seen == {0.054, 0.517}
    assert np.array_equal(spoilt("gamma", greys(0.0, 1.0), 5), greys(0.0, 1.0))
