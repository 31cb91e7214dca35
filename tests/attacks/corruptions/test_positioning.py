"""Movement, tilt and collimation."""

from __future__ import annotations

import numpy as np
import pytest

from cxrlab.attacks.corruptions import ImageArray, corrupt


def point(size: int = 201) -> ImageArray:
    """One white pixel in the middle."""
    image = np.zeros((size, size), dtype=np.float32)
    image[size // 2, size // 2] = 1.0
    return image


def test_blur_draws_a_point_out_into_a_line_of_the_stated_length() -> None:
    """3.5 % of 201 pixels are 7; a uniform path of 7 has the variance 7²/12 = 4.1 along it, and sharing adds little."""
    made = corrupt("blur", point(), 5, key="s1", seed=0)
    assert made.sum() == pytest.approx(1.0, abs=1e-4)
    rows, columns = np.indices(made.shape) - 100.0
    spread = np.cov(np.stack([rows.ravel(), columns.ravel()]), aweights=made.ravel(), bias=True)
    across, along = np.linalg.eigvalsh(spread)
    assert along == pytest.approx(7.035**2 / 12, abs=0.4)
    assert across < 0.4
    assert (made * rows).sum() == pytest.approx(0.0, abs=1e-3) == (made * columns).sum()


def test_blur_leaves_an_even_image_even_to_its_rim() -> None:
    image = np.full((60, 40), 0.7, dtype=np.float32)
    assert corrupt("blur", image, 5, key="s1", seed=0) == pytest.approx(image, abs=1e-5)


def test_rotation_carries_a_point_round_by_the_stated_degrees() -> None:
    """A spot 80 pixels right of the middle turns by 16°: 80 cos 16° = 76.9 across and 80 sin 16° = 22.1 up or down."""
    image = np.zeros((201, 201), dtype=np.float32)
    image[98:103, 178:183] = 1.0
    seen = set()
    for key in "abcdefgh":
        made = corrupt("rotation", image, 5, key=key, seed=0)
        rows, columns = np.indices(made.shape) - 100.0
        assert (made * columns).sum() / made.sum() == pytest.approx(76.9, abs=0.3)
        seen.add(round(float((made * rows).sum() / made.sum())))
    assert seen == {-22, 22}


def test_collimation_blackens_a_frame_and_nothing_inside_it() -> None:
    """At 3, borders are 0.4 to 1.6 times 5.5 % wide: the outer 2 % are black, all beyond 9.5 % is as it was."""
    image = np.full((200, 300), 0.8, dtype=np.float32)
    made = corrupt("collimation", image, 3, key="s1", seed=0)
    assert made[:3].max() == made[-3:].max() == made[:, :4].max() == made[:, -4:].max() == 0.0
    assert np.array_equal(made[19:-19, 29:-29], image[19:-19, 29:-29])
