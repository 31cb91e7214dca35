"""From the text of a picture to an image of 8 bits, with everything that could burst the memory refused by its header.

No address is ever fetched: a picture comes within the request or not at all.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import PNG_START, decode, open_picture, to_uint8
from cxrlab.data.images import as_uint8, decode_dicom, grey_image, is_dicom
from cxrlab.serving.config import Limits
from cxrlab.serving.errors import ApiError, invalid, too_large

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.uint8]

NAME = "the picture"
_DATA_URL = re.compile(r"data:(?P<kind>[\w.+-]{1,40}/[\w.+-]{1,40})?(?P<more>(?:;[\w.=+-]{1,60}){0,4}),", re.ASCII)
_ELSEWHERE = re.compile(r"\s*[a-z][a-z0-9+.-]{0,20}:", re.IGNORECASE)
_SCAN = b"\xff\xda"


@dataclass(frozen=True)
class Checked:
    """A picture whose header was read and found to be within the limits.

    Args:
        data: Its bytes; of a JPEG without the notes of cameras and programs.
        width: Pixels in a row.
        height: Rows.
        dicom: Where the pixels of a DICOM file are; None for PNG and JPEG.
    """

    data: bytes
    width: int
    height: int
    dicom: SmallDicom | None = None

    @property
    def pixels(self) -> int:
        """How many there are."""
        return self.width * self.height


def picture_bytes(text: str) -> bytes:
    """The bytes behind a data URL or behind base64 alone; an address elsewhere is refused."""
    start = 0
    if found := _DATA_URL.match(text):
        if ";base64" not in found["more"]:
            raise _wrong("the data URL of the picture is not marked ';base64'; send data:image/png;base64,….")
        start = found.end()
    elif _ELSEWHERE.match(text):
        raise _wrong("the picture is an address elsewhere, which this server never fetches; send a data URL.")
    try:
        data = base64.b64decode(text[start:] if start else text, validate=True)
    except (binascii.Error, ValueError):
        raise _wrong("the picture is not valid base64; send data:image/png;base64,… without line breaks.") from None
    if not data:
        raise _wrong("the picture is empty; send a PNG or JPEG.")
    return data


def check_picture(data: bytes, limits: Limits) -> Checked:
    """The size of a picture by its header; nothing is decoded."""
    try:
        if is_dicom(data):
            found = small_dicom(data, NAME, limits.pixels)
            _check_side(found.columns, found.rows, limits)
            return Checked(data, found.columns, found.rows, found)
        data = lean(data, NAME, limits.parts)
        with open_picture(data, NAME) as picture:
            _check_frames(picture)
            width, height = picture.size
    except DataError as error:
        raise _wrong(str(error)) from None
    if width * height > limits.pixels:
        raise too_large(
            f"the picture has {width} x {height} pixels; at most {limits.pixels:,} are taken, so send a smaller one.",
            "messages",
        )
    _check_side(width, height, limits)
    # Inside the compressed stream this pair of bytes cannot stand, so each is a scan.
    if not data.startswith(PNG_START) and data.count(_SCAN) > limits.scans:
        raise too_large(f"the JPEG picture comes in more than {limits.scans} scans; save it anew.", "messages")
    return Checked(data, width, height)


def decode_picture(checked: Checked) -> Pixels:
    """The image, uint8 [H, W], 255 is white; colour becomes luminance, deeper pictures are rounded to 8 bits."""
    if checked.dicom is not None:
        return _dicom_image(checked, checked.dicom.end)
    try:
        shown = as_uint8(decode(checked.data, NAME))
    except DataError as error:
        raise _wrong(str(error)) from None
    return shown if shown.ndim == 2 else to_uint8(grey_image(shown))


def _check_side(width: int, height: int, limits: Limits) -> None:
    if max(width, height) > limits.side:
        raise too_large(
            f"the picture has {width} x {height} pixels; at most {limits.side:,} are taken on a side.", "messages"
        )


def _dicom_image(checked: Checked, end: int) -> Pixels:
    """The image of a DICOM file; why there is none is not told, since the parser's reasons quote the header."""
    try:
        image = to_uint8(decode_dicom(checked.data[:end], NAME))
    except DataError:
        image = None
    if image is None or image.shape != (checked.height, checked.width):
        raise _wrong("the picture is a DICOM file that cannot be shown as one image; send it as PNG.")
    return image


def _check_frames(picture: Image.Image) -> None:
    try:
        frames = getattr(picture, "n_frames", 1)
    except (OSError, SyntaxError, ValueError, EOFError):
        raise _wrong("the picture is damaged; send it again.") from None
    if frames != 1:
        raise _wrong("the picture is an animation or holds several pictures; send one still image.")


def _wrong(message: str) -> ApiError:
    return invalid(message, "messages")


_JPEG_START = b"\xff\xd8\xff"
_SCAN_PICTURE_PARTS = 0xDA
# Everything that may stand before the first scan and says how long it is.
_SEGMENTS = frozenset({*range(0xC0, 0xD0), *range(0xDB, 0xF0), 0xFE} - {0xC8})
# Camera, colour profile, thumbnails, comments: no pixel depends on them. JFIF (E0) and Adobe (EE) say what colours are.
_NOTES = frozenset({*range(0xE1, 0xF0), 0xFE} - {0xEE})


def lean(data: bytes, name: str, most: int) -> bytes:
    """The same picture: a JPEG without its notes, anything else as it is.

    Args:
        data: The whole file.
        name: What to call it in an error.
        most: Most chunks of a PNG; most segments before the first scan of a JPEG, filling bytes included.

    Raises:
        Refused: Where there are more parts.
        DataError: For a JPEG whose head is damaged.
    """
    if data.startswith(PNG_START):
        for count, _ in enumerate(_chunks(data)):
            if count >= most:
                raise _too_many(most)
    elif data.startswith(_JPEG_START):
        return _without_notes(data, name, most)
    return data


def _chunks(data: bytes) -> Iterator[int]:
    at, kind = len(PNG_START), b""
    while kind != b"IEND" and at < len(data):
        yield at
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        at += 12 + length


def _without_notes(data: bytes, name: str, most: int) -> bytes:
    kept, at = [data[:2]], 2
    for _ in range(most):
        if at + 4 > len(data):
            raise _damaged(name)
        mark, kind = data[at], data[at + 1]
        if mark != 0xFF or kind in (0x00, 0xFF):  # filling, which readers pass over
            at += 2 if (mark, kind) == (0xFF, 0x00) else 1
            continue
        if kind == _SCAN_PICTURE_PARTS:
            return b"".join([*kept, data[at:]])
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if kind not in _SEGMENTS or not at + 4 <= end <= len(data):
            raise _damaged(name)
        if kind not in _NOTES:
            kept.append(data[at:end])
        at = end
    raise _too_many(most)


def _damaged(name: str) -> DataError:
    return DataError(f"{name} is damaged or cut short before its first scan; download or write it again.")


def _too_many(most: int) -> ApiError:
    return too_large(f"the picture is made of more than {most:,} parts; save it anew.", "messages")


HEADER_BYTES = 256 << 10  # a lookup table of 16 bits is half of it; more elements would take seconds to read
_PIXELS = 0x7FE00010
_DEFLATED = b"1.2.840.10008.1.2.1.99"
_UNCOMPRESSED = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1")
_PLAIN = ("OB", "OW", "UN", None)  # pixels of another type are unpacked one by one, as a list of data sets at worst
_SEGMENTED = range(0x00281221, 0x00281225)  # tables of colours that a few bytes blow up to gigabytes
_ONE_IMAGE = "is a DICOM file that is not one image of plain pixels"


@dataclass(frozen=True)
class SmallDicom:
    """Where the image of a DICOM file stands.

    Args:
        rows: Height in pixels.
        columns: Width in pixels.
        end: Bytes of the file up to the end of its pixels; what follows is not read.
    """

    rows: int
    columns: int
    end: int


def small_dicom(data: bytes, name: str, most_pixels: int) -> SmallDicom:
    """The size of an uncompressed DICOM image with a short header, or a `DataError`.

    Args:
        data: The whole file.
        name: What to call it in an error.
        most_pixels: Most pixels.
    """
    header, length, start = _until_pixels(data, name)
    syntax = str(getattr(header.file_meta, "TransferSyntaxUID", _UNCOMPRESSED[0]))
    if syntax not in _UNCOMPRESSED or length == 0xFFFFFFFF:
        raise DataError(f"{name} is a compressed DICOM file, which a server does not unpack; send it as PNG.")
    rows, columns = _number(header, "Rows", name), _number(header, "Columns", name)
    if not 0 < rows * columns <= most_pixels:
        raise DataError(f"{name} claims {columns} x {rows} pixels; between 1 and {most_pixels:,} are taken.")
    bits = rows * columns * _number(header, "SamplesPerPixel", name, 1) * _number(header, "BitsAllocated", name)
    # As many bytes as two images take are two images to the parser, whatever the header says.
    if 8 * length >= 2 * bits or start + length > len(data):
        raise DataError(f"{name} is a DICOM file whose pixels do not fill {columns} x {rows}; send it again.")
    if any(tag in header for tag in _SEGMENTED):
        raise DataError(f"{name} {_ONE_IMAGE}; send it as PNG.")
    return SmallDicom(rows, columns, start + length)


def _number(header: Any, element: str, name: str, absent: int | None = None) -> int:
    """A small number of the header; nothing of what stands there instead of one is repeated."""
    try:
        value = int(header.get(element, absent))
    except Exception:  # the parser raises many kinds on damaged bytes
        value = -1
    if not 0 <= value < 1 << 16:
        raise DataError(f"{name} has a damaged DICOM header ('{element}' is no number); send it as PNG.")
    return value


def _until_pixels(data: bytes, name: str) -> tuple[Any, int, int]:
    """The header, the length of the pixels, and where they start; what comes after is not looked at."""
    from pydicom.filereader import read_partial

    found: list[int] = []
    plain: list[bool] = []

    def at_pixels(tag: Any, vr: str | None, length: int) -> bool:
        if int(tag) != _PIXELS:
            return False
        plain.append(vr in _PLAIN)
        found.extend((length, stream.tell()))
        return True

    head = data[:HEADER_BYTES]
    if _DEFLATED in head:  # the parser would unpack all of it before it reads anything
        raise DataError(f"{name} is a compressed DICOM file, which a server does not unpack; send it as PNG.")
    stream = io.BytesIO(head)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they would quote the header, and with it the patient's name
            header = read_partial(stream, stop_when=at_pixels, force=True)
    except Exception as error:  # the parser raises many kinds on damaged bytes
        raise DataError(f"{name} is not a readable DICOM file ({type(error).__name__}); send it as PNG.") from None
    if not found:
        raise DataError(f"{name} is a DICOM file without pixels, or with more than {HEADER_BYTES:,} bytes before them.")
    if not plain[0]:
        raise DataError(f"{name} {_ONE_IMAGE}; send it as PNG.")
    return header, found[0], found[1]
