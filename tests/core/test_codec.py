"""Pictures as bytes: what goes in comes out, and what is damaged is refused by name."""

from __future__ import annotations

import io
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cxrlab.core import image_codec
from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import decode, encode_png, to_uint8, to_unit


def picture(kind: str, height: int = 23, width: int = 31) -> np.ndarray:
    rng = np.random.default_rng(3)
    if kind == "mask":
        return rng.random((height, width)) > 0.5
    if kind == "deep":
        return rng.integers(0, 65536, (height, width), dtype=np.uint16)
    return rng.integers(0, 256, (height, width) + ((3,) if kind == "colour" else ()), dtype=np.uint8)


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["grey", "colour", "deep", "mask"])
def test_png_returns_the_same_array(kind: str) -> None:
    """PNG is lossless, so type, shape and every pixel survive."""
    array = picture(kind)
    back = decode(encode_png(array), "x")
    assert back.dtype == array.dtype and np.array_equal(back, array)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["grey", "colour", "deep", "mask"]))
def test_every_shape_survives(height: int, width: int, kind: str) -> None:
    """Row padding of 1-bit pictures and single-pixel sides are the usual places to go wrong."""
    array = picture(kind, height, width)
    assert np.array_equal(decode(encode_png(array), "x"), array)


def test_encoding_is_deterministic_and_carries_no_time() -> None:
    """Two runs must give identical bytes; a tIME or tEXt chunk would break that."""
    array = picture("grey")
    assert encode_png(array) == encode_png(array.copy(order="F"))
    assert b"tIME" not in encode_png(array) and b"tEXt" not in encode_png(array)


def test_a_mask_takes_one_bit_a_pixel() -> None:
    """Header byte 24 of a PNG is the bit depth."""
    assert encode_png(picture("mask"))[24] == 1


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_cut_file_is_refused_by_name(kind: str, share: float) -> None:
    """An image that lost its end would otherwise be read with grey rows."""
    data = saved(Image.fromarray(picture("grey", 200, 200)), kind)
    with pytest.raises(DataError, match=r"^images/a\.png "):
        decode(data[: int(len(data) * share)], "images/a.png")


@pytest.mark.parametrize("lost", [1, 4, 12, 13, 20])
def test_even_the_last_bytes_of_a_png_are_missed(lost: int) -> None:
    """The final chunk is twelve bytes and the data checksum stands before it."""
    data = encode_png(picture("grey"))
    with pytest.raises(DataError, match="cut short"):
        decode(data[:-lost], "a.png")


def test_a_flipped_bit_is_noticed() -> None:
    """Each chunk has a checksum; the picture library alone may decode a wrong image."""
    data = bytearray(encode_png(picture("grey")))
    data[len(data) // 2] ^= 4
    with pytest.raises(DataError, match="checksum"):
        decode(bytes(data), "a.png")


@pytest.mark.parametrize("data", [b"", b"not a picture at all", b"GIF89a" + bytes(40), image_codec.PNG_START])
def test_foreign_bytes_are_refused_by_name(data: bytes) -> None:
    """Text named .png, an empty file and other formats get a sentence, not a traceback."""
    with pytest.raises(DataError, match=r"^a\.png "):
        decode(data, "a.png")


def test_a_picture_bomb_is_refused_before_its_pixels_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes may claim billions of pixels; the header alone must be enough to refuse."""
    data = encode_png(np.zeros((40, 40), np.uint8))
    monkeypatch.setattr(image_codec, "MOST_PIXELS", 1000)
    with pytest.raises(DataError, match="claims 40 x 40 pixels, more than the 1,000 that are allowed"):
        decode(data, "a.png")
    huge = bytearray(data)
    huge[16:24] = (100_000).to_bytes(4, "big") * 2
    huge[29:33] = zlib.crc32(huge[12:29]).to_bytes(4, "big")
    with pytest.raises(DataError, match="claims more pixels than the 1,000 that are allowed"):
        image_codec.open_picture(bytes(huge), "a.png")


def test_palette_and_transparency() -> None:
    """A palette is looked up (index 1 is 200 here) and a clear pixel is black."""
    paletted = Image.fromarray(np.array([[0, 1]], np.uint8))
    paletted.putpalette([0, 0, 0, 200, 200, 200])
    assert decode(saved(paletted), "x").tolist() == [[0, 200]]
    clear = Image.fromarray(np.array([[[90, 60, 30, 255], [90, 60, 30, 0]]], np.uint8))
    assert decode(saved(clear), "x").tolist() == [[[90, 60, 30], [0, 0, 0]]]


def test_transparency_takes_little_more_memory_than_the_picture() -> None:
    """Some hundred kilobytes may claim 150 megapixels; worked on all at once they took ten times the result."""
    shown = np.random.default_rng(0).integers(0, 256, (1001, 900, 4), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(shown, "RGBA").save(stream, "PNG", compress_level=1)
    tracemalloc.start()
    found = decode(stream.getvalue(), "a.png")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    whole = shown.astype(np.uint16)
    assert np.array_equal(found, (whole[..., :3] * whole[..., 3:] + 127) // 255)
    assert peak < 4 * found.nbytes


def test_colour_spaces_of_jpeg() -> None:
    """CMYK becomes RGB; grey stays one channel."""
    assert decode(saved(Image.new("CMYK", (4, 3)), "JPEG"), "x").shape == (3, 4, 3)
    assert decode(saved(Image.new("L", (4, 3)), "JPEG"), "x").shape == (3, 4)


def test_an_exif_rotation_is_not_applied() -> None:
    """Radiographs are stored as shown; turning one by a stray tag would swap the patient's sides."""
    image = Image.new("L", (8, 4))
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode(saved(image, "JPEG", exif=exif), "x").shape == (4, 8)


def test_number_ranges() -> None:
    """0 and the largest value map to 0 and 1; halves round to the nearest even step; outside is clipped."""
    assert to_unit(np.array([0, 255], np.uint8)).tolist() == [0.0, 1.0]
    assert to_unit(np.array([0, 65535], np.uint16)).tolist() == [0.0, 1.0]
    assert to_unit(np.array([False, True])).tolist() == [0.0, 1.0]
    assert to_uint8(np.array([-1.0, 0.0, 0.5, 1.0, 2.0])).tolist() == [0, 0, 128, 255, 255]
    assert np.array_equal(to_uint8(to_unit(np.arange(256, dtype=np.uint8))), np.arange(256))


def test_what_cannot_be_a_picture_is_refused() -> None:
    """A wrong type here is a defect of the caller, so it is a ValueError."""
    for array in (np.zeros((2, 2)), np.zeros((2, 2, 4), np.uint8), np.zeros((0, 2), np.uint8), np.zeros(3, np.uint8)):
        with pytest.raises(ValueError, match="encode_png"):
            encode_png(array)
    with pytest.raises(ValueError, match="NaN"):
        to_uint8(np.array([np.nan]))
