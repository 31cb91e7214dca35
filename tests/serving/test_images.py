"""Pictures from strangers: what is an image comes through as it is, what is a trap is refused by its header."""

from __future__ import annotations

import base64
import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from dicom_images import write_image
from PIL import Image
from serving_models import image_of, url_of
from tables import every_row

from cxrlab.core.image_codec import encode_jpeg, encode_png
from cxrlab.data.images import as_uint8, load_image, read_picture
from cxrlab.serving.config import Limits
from cxrlab.serving.errors import ApiError
from cxrlab.serving.images import check_picture, decode_picture, picture_bytes

IMAGE = image_of(3, 24)
LIMITS = Limits()


def shown(data: bytes, limits: Limits = LIMITS) -> Any:
    return decode_picture(check_picture(data, limits))


def saved(picture: Image.Image, kind: str, **settings: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **settings)
    return stream.getvalue()


def claimed_png(width: int, height: int, content: bytes = b"") -> bytes:
    """A PNG that claims a size and holds hardly anything."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("prefix", ["data:image/png;base64,", "data:;base64,", "data:image/png;charset=x;base64,", ""])
def test_a_image_comes_through_pixel_by_pixel(prefix: str) -> None:
    text = prefix + base64.b64encode(encode_png(IMAGE)).decode()
    assert np.array_equal(shown(picture_bytes(text)), IMAGE)


def test_it_is_what_a_model_on_this_machine_would_see(tmp_path: Path) -> None:
    """8-bit images give the very numbers that `load_image` gives; deeper ones are rounded to 8 bits."""
    for name, data in (("grey.png", encode_png(IMAGE)), ("image.jpg", encode_jpeg(IMAGE))):
        (tmp_path / name).write_bytes(data)
        assert np.array_equal(shown(data) / np.float32(255), load_image(tmp_path / name)), name
    assert np.array_equal(shown(encode_png(np.repeat(IMAGE[..., None], 3, 2))), IMAGE), "three equal channels are one"
    deep = encode_png(IMAGE.astype(np.uint16) * 16)  # twelve bits
    (tmp_path / "deep.png").write_bytes(deep)
    found = shown(deep)
    assert found.dtype == np.uint8 and np.array_equal(found, as_uint8(read_picture(tmp_path / "deep.png")))
    assert np.abs(found / 255 - load_image(tmp_path / "deep.png")).max() <= 0.5 / 255 + 1e-6


@pytest.mark.parametrize("mode", ["1", "P", "LA", "RGBA", "RGB"])
def test_every_mode_becomes_one_grey_image(mode: str) -> None:
    assert shown(saved(Image.fromarray(IMAGE).convert(mode), "PNG")).shape == IMAGE.shape


def test_colour_becomes_luminance() -> None:
    colour = np.zeros((4, 4, 3), np.uint8)
    colour[..., 1] = 255
    assert (shown(encode_png(colour)) == 150).all()  # 0.587 × 255 = 149.7


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1/image.png",
        "https://example.org/image.png",
        "file:///etc/passwd",
        "ftp://x/y",
        " HTTP://x/y",
        "data:image/png,abc",
        "data:image/png;base64,@@@@",
        "data:image/png;base64,AAA",
        "data:image/png;base64,",
        "data:image/png;base64, AAAA",
        "not base64 at all!",
        "../../etc/passwd",
        "ＡＡＡＡ",
        "javascript:alert(1)",
    ],
)
def test_what_is_no_base64_is_refused_and_nothing_is_fetched(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the server went out"))
    with pytest.raises(ApiError) as caught:
        check_picture(picture_bytes(text), LIMITS)
    assert caught.value.status == 400 and text not in caught.value.message


@pytest.mark.parametrize(("width", "height", "status"), [(5001, 5000, 413), (60_000, 60_000, 400), (2**31 - 1, 1, 400)])
def test_a_bomb_is_refused_by_its_header(width: int, height: int, status: int) -> None:
    with pytest.raises(ApiError) as caught:
        check_picture(claimed_png(width, height), LIMITS)
    assert caught.value.status == status and f"{LIMITS.pixels:,}"[:3] in caught.value.message or status == 400


def test_the_largest_allowed_size_passes_the_header() -> None:
    assert check_picture(claimed_png(5000, 5000), LIMITS).pixels == 25_000_000


def many_scans(count: int) -> bytes:
    """A progressive JPEG with its scans repeated."""
    data = saved(Image.fromarray(image_of(1, 64)), "JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    return data[:start] + data[start:-2] * count + b"\xff\xd9"


def test_a_jpeg_of_very_many_scans_is_refused() -> None:
    assert shown(saved(Image.fromarray(image_of(1, 64)), "JPEG", progressive=True)).shape == (64, 64)
    with pytest.raises(ApiError, match="too_large") as caught:
        check_picture(many_scans(500), LIMITS)
    assert "32 scans" in caught.value.message


def animated() -> bytes:
    frames = [Image.fromarray(image_of(n)) for n in range(3)]
    return saved(frames[0], "PNG", save_all=True, append_images=frames[1:])


@every_row(
    ("data", "words"),
    [
        (encode_png(IMAGE)[:-30], "cut short"),
        (encode_jpeg(image_of(1, 64))[:400], "damaged or cut short"),
        (b"GIF89a" + bytes(50), "not a readable PNG or JPEG"),
        (saved(Image.fromarray(IMAGE), "BMP"), "not a readable PNG or JPEG"),
        (saved(Image.fromarray(IMAGE), "TIFF"), "not a readable PNG or JPEG"),
        (b"%PDF-1.7", "not a readable PNG or JPEG"),
        (claimed_png(100, 100), "damaged or cut short"),
        (claimed_png(0, 5), ""),
        (animated(), "animation"),
    ],
    ids=["cut png", "cut jpeg", "gif", "bmp", "tiff", "pdf", "empty png", "no width", "animated"],
)
def test_what_is_no_whole_image_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        shown(data)
    assert caught.value.status == 400 and words in caught.value.message


def dicom(tmp_path: Path, change: Any = None, **elements: object) -> bytes:
    write_image(tmp_path / "image.dcm", 24, 24, **elements)
    image = pydicom.dcmread(tmp_path / "image.dcm")
    image.PixelData = IMAGE.tobytes()
    if change is not None:
        change(image)
    image.save_as(tmp_path / "image.dcm", enforce_file_format=True)
    return (tmp_path / "image.dcm").read_bytes()


def test_a_plain_dicom_image_is_taken(tmp_path: Path) -> None:
    data = dicom(tmp_path)
    assert np.array_equal(shown(data), IMAGE)
    assert np.array_equal(shown(data + bytes(5000)), IMAGE), "what follows the pixels is not read"


def test_dicom_that_could_hide_more_is_refused(tmp_path: Path) -> None:
    def compressed(image: Any) -> None:
        image.compress(pydicom.uid.RLELossless)

    def long_header(image: Any) -> None:
        image.add_new(0x00091001, "OB", bytes(300_000))

    def too_many(image: Any) -> None:
        image.Rows = image.Columns = 6000

    def no_pixels(image: Any) -> None:
        del image.PixelData

    def deflated(image: Any) -> None:
        image.file_meta.TransferSyntaxUID = pydicom.uid.DeflatedExplicitVRLittleEndian

    for change, words in (
        (compressed, "compressed"),
        (deflated, "compressed"),
        (long_header, "262,144 bytes before"),
        (too_many, "6000 x 6000"),
        (no_pixels, "without pixels"),
    ):
        with pytest.raises(ApiError) as caught:
            check_picture(dicom(tmp_path, change), LIMITS)
        assert caught.value.status == 400 and words in caught.value.message, change


def test_dicom_damaged_at_any_place_is_a_sentence(tmp_path: Path) -> None:
    """Every eighth byte changed in turn, and every length cut: an image or a refusal, never another exception."""
    data = dicom(tmp_path, PatientName="DOE^JANE")
    warnings.simplefilter("error")  # the parser's warnings quote the patient's name, and must reach nobody
    for place in range(128, len(data), 8):
        for damaged in (data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :], data[:place]):
            try:
                shown(damaged)
            except ApiError as refusal:
                assert refusal.status in (400, 413)


def test_the_url_of_the_helper_is_read() -> None:
    assert np.array_equal(shown(picture_bytes(url_of(IMAGE))), IMAGE)
