"""Image coordinates and the primitives drawn on them."""

from __future__ import annotations

import numpy as np
import pytest

from cxrlab.data.phantom.image_plane import (
    CURVE_Y,
    FIELD_MM,
    Frame,
    cloud,
    curve_index,
    ellipse_distance,
    resample,
    splat,
    step,
    stroke,
)


def test_pixels_invert_the_coordinate_fields() -> None:
    """The patient coordinate stored at a pixel must lead back to that pixel, turned and shifted or not."""
    frame = Frame(96, turn=7.0, shift=(5.0, -9.0), zoom=1.1)
    rows, cols = np.array([0, 10, 95, 50]), np.array([0, 80, 95, 3])
    col, row = frame.pixels(frame.x[rows, cols], frame.y[rows, cols])
    assert np.allclose(col, cols, atol=1e-3)
    assert np.allclose(row, rows, atol=1e-3)


def test_an_upright_image_spans_its_field() -> None:
    """Without turn, x runs from minus to plus half the field and y from 0 to the field, less half a pixel."""
    frame = Frame(100)
    half = FIELD_MM / 200
    assert frame.x[0, 0] == pytest.approx(-FIELD_MM / 2 + half)
    assert frame.x[0, -1] == pytest.approx(FIELD_MM / 2 - half)
    assert frame.y[0, 0] == pytest.approx(half, abs=1e-4)


def test_step_is_half_at_zero_and_saturates() -> None:
    """Smooth from 0 at -soft to 1 at +soft."""
    values = step(np.array([-9.0, -2.0, 0.0, 2.0, 9.0], dtype=np.float32), 2.0)
    assert values.tolist() == [0.0, 0.0, 0.5, 1.0, 1.0]


@pytest.mark.parametrize("size", [64, 128, 224, 512])
@pytest.mark.parametrize("width", [0.5, 2.0, 9.0])
def test_a_stroke_is_about_one_on_the_line_at_any_size(size: int, width: float) -> None:
    """A thin wire must not fade away on a small image, nor burn on a large one."""
    frame = Frame(size, turn=3.0)
    line = stroke(frame, np.array([[-60.0, 90.0], [10.0, 150.0], [50.0, 260.0]]), width)
    assert 0.6 <= float(line.delta.max()) <= 1.0
    assert line.delta.min() >= 0.0


def test_a_stroke_off_the_image_changes_nothing() -> None:
    """Tubes may run beyond the image; their outer part is simply not on it."""
    frame = Frame(64)
    line = stroke(frame, np.array([[900.0, 900.0], [950.0, 980.0]]), 3.0)
    assert float(np.abs(line.delta).sum()) == 0.0


def test_splat_keeps_the_weight_below_the_cut() -> None:
    """Points share their weight over neighbours: the sum is conserved when nothing is cut."""
    frame = Frame(64)
    patch = splat(frame, np.array([3.3, -20.0]), np.array([100.0, 200.2]), np.array([0.5, 0.25]), top=9.0)
    assert float(patch.delta.sum()) == pytest.approx(0.75, rel=1e-4)


def test_resample_keeps_both_ends_and_equal_steps() -> None:
    """A path of length 10 at spacing 1 has 11 points, one unit apart."""
    out = resample(np.array([[0.0, 0.0], [6.0, 0.0], [6.0, 4.0]]), 1.0)
    assert len(out) == 11
    assert out[0].tolist() == [0.0, 0.0] and out[-1].tolist() == [6.0, 4.0]
    assert np.allclose(np.hypot(*np.diff(out, axis=0).T), 1.0)


def test_ellipse_distance_is_one_on_the_rim() -> None:
    """At the end of each half axis, also when turned by a right angle."""
    x, y = np.array([5.0, 1.0], dtype=np.float32), np.array([2.0, 5.0], dtype=np.float32)
    assert np.allclose(ellipse_distance(x, y, (1.0, 2.0), (4.0, 3.0)), [1.0, 1.0])
    assert np.allclose(ellipse_distance(x, y, (1.0, 2.0), (3.0, 4.0), 90.0), [1.0, 1.0], atol=1e-5)


def test_curve_index_finds_the_nearest_half_millimetre_and_clips() -> None:
    """Beyond the table its end values hold."""
    at = curve_index(np.array([[0.0, 10.2, -1e4, 1e4]], dtype=np.float32), CURVE_Y)
    assert CURVE_Y[at[0, 0]] == 0.0
    assert abs(CURVE_Y[at[0, 1]] - 10.2) <= 0.25
    assert (at[0, 2], at[0, 3]) == (0, len(CURVE_Y) - 1)


def test_cloud_is_smooth_noise_of_its_generator() -> None:
    """Neighbouring pixels are alike; the same generator state gives the same field."""
    one = cloud(np.random.default_rng(1), (80, 60), 5.0)
    two = cloud(np.random.default_rng(1), (80, 60), 5.0)
    assert np.array_equal(one, two)
    assert np.abs(np.diff(one, axis=0)).mean() < 0.3 * one.std()
