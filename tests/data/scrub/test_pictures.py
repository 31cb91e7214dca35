"""PNG and JPEG files lose what they carry beside their pixels, and keep the pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import decode
from cxrlab.data.deidentify_image import clean_picture, identifying_parts, is_picture

GREY = np.add.outer(np.arange(40), np.arange(56)).astype(np.uint8)
COLOUR = np.stack([GREY, 255 - GREY, GREY // 2], axis=2)


def png(pixels: np.ndarray, *, notes: bool = False) -> bytes:
    info = PngImagePlugin.PngInfo()
    if notes:
        info.add_text("Patient", "SECRET")
        info.add_itxt("More", "SECRET")
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def jpeg(pixels: np.ndarray, *, notes: bool = False, **how: object) -> bytes:
    exif = Image.Exif()
    exif[0x010E] = "SECRET"
    buffer = io.BytesIO()
    more = {"exif": exif, "comment": b"SECRET", "icc_profile": b"SECRET"} if notes else {}
    Image.fromarray(pixels).save(buffer, "JPEG", **more, **how)
    return buffer.getvalue()


@pytest.mark.parametrize("pixels", [GREY, COLOUR, GREY.astype(np.uint16) * 256, GREY > 40], ids=["8", "rgb", "16", "1"])
def test_a_png_keeps_its_pixels_and_nothing_else(pixels: np.ndarray) -> None:
    """Text chunks go, every depth stays as it is."""
    data = png(pixels, notes=True)
    clean = clean_picture(data, "a.png")
    assert identifying_parts(data, "a.png") == ("tEXt", "iTXt") and identifying_parts(clean, "a.png") == ()
    assert b"SECRET" not in clean and (decode(clean, "a") == pixels).all()


@pytest.mark.parametrize("pixels", [GREY, COLOUR], ids=["grey", "rgb"])
@pytest.mark.parametrize("how", [{}, {"progressive": True}, {"subsampling": 0}], ids=["plain", "progressive", "4:4:4"])
def test_a_jpeg_keeps_what_it_shows(pixels: np.ndarray, how: dict[str, object]) -> None:
    """Notes go; coded again with its own tables the picture moves by steps of rounding."""
    data = jpeg(pixels, notes=True, **how)
    clean = clean_picture(data, "a.jpg")
    assert (
        set(identifying_parts(data, "a.jpg")) == {"EXIF", "comment", "APP2"} and identifying_parts(clean, "a.jpg") == ()
    )
    moved = np.abs(decode(clean, "a").astype(int) - decode(data, "a"))
    assert b"SECRET" not in clean and moved.mean() < 1 and moved.max() <= 9


SECRET_TABLE = b"\xff\xdb\x00\x43\x03" + (b"SECRET" * 11)[:64]
SECRET_CODES = b"\xff\xc4\x00\x19\x13" + bytes([0, 0, 0, 6, *[0] * 12]) + b"SECRET"


@pytest.mark.parametrize("where", ["table that nothing uses", "codes that nothing uses", "end of the coded pixels"])
def test_no_byte_of_an_old_stream_is_carried_along(where: str) -> None:
    """A decoder passes over all three, so they look like nothing."""
    plain = jpeg(GREY)
    table = {"table that nothing uses": SECRET_TABLE, "codes that nothing uses": SECRET_CODES}.get(where)
    data = plain[:2] + table + plain[2:] if table else plain[:-2] + b"SECRET" + plain[-2:]
    assert (decode(data, "a") == decode(plain, "a")).all() and b"SECRET" not in clean_picture(data, "a")


def test_a_jpeg_thumbnail_goes() -> None:
    """It would show what was blanked."""
    plain = jpeg(GREY)
    thumb = b"\xff\xe0" + (16 + 3 * 4).to_bytes(2, "big") + b"JFIF\0\x01\x01\0\0\x01\0\x01\x02\x02" + b"S" * 12
    data = plain[:2] + thumb + plain[2 + 18 :]
    assert identifying_parts(data, "a") == ("thumbnail",)
    clean = clean_picture(data, "a")
    assert (
        identifying_parts(clean, "a") == ()
        and b"SSSS" not in clean
        and (decode(clean, "a") == decode(plain, "a")).all()
    )


@pytest.mark.parametrize("data", [png(GREY), jpeg(GREY)], ids=["png", "jpeg"])
def test_what_follows_the_end_goes(data: bytes) -> None:
    """Some programs hang whole files there."""
    assert identifying_parts(data + b"SECRET", "a") == ("bytes after the end",)
    assert b"SECRET" not in clean_picture(data + b"SECRET", "a")


def test_other_pixels_change_a_jpeg_only_where_they_differ() -> None:
    """The same tables code the same blocks: far from the box pixels move by a step or two of rounding."""
    data = jpeg(GREY, quality=60)
    pixels = np.array(decode(data, "a"))
    pixels[:8, :8] = 0
    clean = decode(clean_picture(data, "a", pixels), "a").astype(int)
    far = np.abs(clean - decode(data, "a"))[16:, 16:]
    assert clean[:8, :8].max() < 25 and far.max() <= 2


def test_transparency_becomes_black() -> None:
    """What lies under fully transparent pixels is not carried along."""
    hidden = np.zeros((4, 4, 4), np.uint8)
    hidden[..., :3] = 200
    clean = decode(clean_picture(png(hidden), "a"), "a")
    assert clean.max() == 0


@pytest.mark.parametrize("cut", [30, 200, -40])
def test_a_cut_jpeg_is_refused(cut: int) -> None:
    """Nothing is passed on that was not read to its end."""
    with pytest.raises(DataError, match="a.jpg (is|has a) damaged"):
        clean_picture(jpeg(GREY)[:cut], "a.jpg")


def test_formats_are_recognised_by_content() -> None:
    """A name says nothing."""
    assert is_picture(png(GREY)) and is_picture(jpeg(GREY)) and not is_picture(b"GIF89a") and not is_picture(b"")
