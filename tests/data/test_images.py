"""Any picture file becomes float32 in [0, 1]; shapes are kept; what is broken is refused by name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from dicom_images import write_image
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import encode_png
from cxrlab.data.images import as_uint8, fit, image_size, load_image, load_rgb

GREY = np.random.default_rng(0).integers(0, 256, (30, 20), dtype=np.uint8)


def png(path: Path, array: np.ndarray) -> Path:
    path.write_bytes(encode_png(array))
    return path


def test_eight_bits(tmp_path: Path) -> None:
    """Exactly the stored value over 255."""
    image = load_image(png(tmp_path / "a.png", GREY))
    assert image.dtype == np.float32 and np.array_equal(image, GREY.astype(np.float32) / np.float32(255))


def test_the_name_does_not_decide_the_format(tmp_path: Path) -> None:
    """A JPEG named .png and a PNG without an ending are read by what they are."""
    Image.fromarray(GREY).save(tmp_path / "a.jpg")
    os.rename(tmp_path / "a.jpg", tmp_path / "a.png")
    assert load_image(tmp_path / "a.png").shape == (30, 20)
    assert np.array_equal(load_image(png(tmp_path / "image", GREY)), load_image(png(tmp_path / "image.png", GREY)))


@pytest.mark.parametrize(
    ("brightest", "most"), [(65535, 65535), (40000, 65535), (4095, 4095), (3000, 4095), (1023, 1023)]
)
def test_sixteen_bits_are_scaled_by_their_true_depth(tmp_path: Path, brightest: int, most: int) -> None:
    """A 12-bit image stored unscaled in 16 bits must not come out sixteen times too dark."""
    array = np.linspace(0, brightest, 600).astype(np.uint16).reshape(30, 20)
    assert np.isclose(load_image(png(tmp_path / "a.png", array)).max(), brightest / most, atol=1e-6)


def test_colour_becomes_luminance_and_stays_colour_where_requested(tmp_path: Path) -> None:
    """Green weighs 0.587; a grey file has three equal channels."""
    green = np.zeros((4, 4, 3), np.uint8)
    green[..., 1] = 255
    path = png(tmp_path / "green.png", green)
    assert np.allclose(load_image(path), 0.587, atol=1e-6)
    assert np.array_equal(load_rgb(path), green / np.float32(255))
    grey = load_rgb(png(tmp_path / "grey.png", GREY), size=10)
    assert grey.shape == (10, 10, 3) and np.array_equal(grey[..., 0], grey[..., 2])


def test_a_one_bit_picture(tmp_path: Path) -> None:
    """Scanned pages and masks are pictures too."""
    assert load_image(png(tmp_path / "m.png", GREY > 127)).max() == 1.0


@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (7, 500), (16, 16), (1, 1)])
def test_fit_keeps_the_aspect_and_centres(shape: tuple[int, int]) -> None:
    """A white picture becomes a white box of the same proportions in the middle of a black square."""
    square = fit(np.ones(shape, np.float32), 64)
    rows, columns = np.where(square > 0.5)
    height, width = np.ptp(rows) + 1, np.ptp(columns) + 1
    longest = max(shape)
    assert (height, width) == tuple(max(1, round(side * 64 / longest)) for side in shape)
    assert abs((rows.min() + rows.max()) - 63) <= 1 and abs((columns.min() + columns.max()) - 63) <= 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 90))
def test_fit_never_leaves_the_range(height: int, width: int, size: int) -> None:
    """A filter with negative weights would overshoot at edges and break the budget of a perturbation."""
    image = (np.random.default_rng(height * width).random((height, width)) > 0.5).astype(np.float32)
    square = fit(image, size)
    assert square.shape == (size, size) and square.min() >= 0.0 and square.max() <= 1.0
    narrow = fit(0.25 + 0.5 * image, size)
    shown = narrow[narrow > 0]
    assert shown.min() > 0.2499 and shown.max() < 0.7501


def test_shrinking_averages() -> None:
    """A checkerboard shrunk eightfold is mid-grey; picking single pixels would give black or white."""
    board = (np.indices((256, 256)).sum(0) % 2).astype(np.float32)
    assert np.abs(fit(board, 32) - 0.5).max() < 0.02


def test_colour_is_fitted_channel_by_channel() -> None:
    """Each channel of a fitted colour picture is the fitted channel."""
    colour = np.random.default_rng(1).random((20, 30, 3)).astype(np.float32)
    for channel in range(3):
        assert np.array_equal(fit(colour, 12)[..., channel], fit(np.ascontiguousarray(colour[..., channel]), 12))


def test_a_picture_that_fits_is_untouched() -> None:
    """No resampling, no copy."""
    image = np.random.default_rng(0).random((32, 32)).astype(np.float32)
    assert fit(image, 32) is image


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, a folder, empty, text named .png, cut at several places."""
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("patient is well")
    data = encode_png(GREY)
    for cut in (4, 30, len(data) // 2, len(data) - 1):
        (tmp_path / f"cut{cut}.png").write_bytes(data[:cut])
    names = ["none.png", ".", "empty.png", "text.png", *(p.name for p in tmp_path.glob("cut*"))]
    for name in names:
        with pytest.raises(DataError) as caught:
            load_image(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_the_same_picture_has_one_plain_form() -> None:
    """Grey as 8 bits, as three equal channels or as 16 bits unscaled; colour stays colour; another image differs."""
    grey = np.array([[0, 7], [128, 255]], np.uint8)
    same = [grey, np.repeat(grey[..., None], 3, axis=2), grey.astype(np.uint16) * 257, grey.astype(np.float32) / 255]
    assert all(np.array_equal(as_uint8(picture), grey) for picture in same)
    assert as_uint8(grey > 100).tolist() == [[0, 0], [255, 255]]
    colour = np.dstack([grey, grey, 255 - grey])
    assert np.array_equal(as_uint8(colour), colour)


def test_the_size_comes_from_the_header(tmp_path: Path) -> None:
    """PNG, JPEG, a JPEG whose size stands behind 200 KB of notes, and DICOM; what is no image is refused."""
    grey = Image.fromarray(np.zeros((30, 50), np.uint8))
    grey.save(tmp_path / "a.png")
    grey.save(tmp_path / "b.jpg")
    notes = b"".join(b"\xff\xfe" + (60_002).to_bytes(2, "big") + bytes(60_000) for _ in range(4))
    plain = (tmp_path / "b.jpg").read_bytes()
    (tmp_path / "c.jpg").write_bytes(plain[:2] + notes + plain[2:])
    write_image(tmp_path / "d.dcm", 30, 50)
    for name in ("a.png", "b.jpg", "c.jpg", "d.dcm"):
        assert image_size(tmp_path / name) == load_image(tmp_path / name).shape == (30, 50)
    (tmp_path / "e.png").write_text("words")
    for name in ("e.png", "missing.png"):
        with pytest.raises(DataError, match=name):
            image_size(tmp_path / name)
