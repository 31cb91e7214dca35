"""Decode images of requests, after their headers have been checked against the limits; no address is ever fetched."""

from __future__ import annotations

import base64
import binascii
import io
import re
import warnings
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
    pass

Pixels = NDArray[np.uint8]

NAME = "the picture"
_DATA_URL = re.compile(r"data:(?P<kind>[\w.+-]{1,40}/[\w.+-]{1,40})?(?P<more>(?:;[\w.=+-]{1,60}){0,4}),", re.ASCII)
_ELSEWHERE = re.compile(r"\s*[a-z][a-z0-9+.-]{0,20}:", re.IGNORECASE)
_SCAN = b"\xff\xda"


@dataclass(frozen=True)
class Checked:
    """An image whose header is within the limits."""

    data: bytes  # its bytes; those of a JPEG without metadata
    width: int
    height: int
    dicom: SmallDicom | None = None  # position of the pixels in a DICOM file; None for PNG and JPEG

    @property
    def pixels(self) -> int:
        """Number of pixels."""
        return self.width * self.height


def picture_bytes(text: str) -> bytes:
    """The bytes of a data URL or of plain base64; any other address is refused."""
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
    """Check an image by its header, without decoding it."""
    try:
        if is_dicom(data):
            found = small_dicom(data, NAME, limits.pixels)
            _check_side(found.columns, found.rows, limits)
            return Checked(data, found.columns, found.rows, found)
        data = without_metadata(data, NAME, limits.parts)
        with open_picture(data, NAME) as picture:
            try:
                frames = getattr(picture, "n_frames", 1)
            except (OSError, SyntaxError, ValueError, EOFError):
                raise _wrong("the picture is damaged; send it again.") from None
            if frames != 1:
                raise _wrong("the picture is an animation or holds several pictures; send one still image.")
            width, height = picture.size
    except DataError as error:
        raise _wrong(str(error)) from None
    if width * height > limits.pixels:
        raise too_large(
            f"the picture has {width} x {height} pixels; at most {limits.pixels:,} are accepted, so send a smaller one.",
            "messages",
        )
    _check_side(width, height, limits)
    # These two bytes do not occur inside compressed data, so each pair is a scan.
    if not data.startswith(PNG_START) and data.count(_SCAN) > limits.scans:
        raise too_large(f"the JPEG picture has more than {limits.scans} scans; save it again.", "messages")
    return Checked(data, width, height)


def decode_picture(checked: Checked) -> Pixels:
    """The image, uint8 [H, W], 255 is white; colour becomes luminance, deeper images are rounded to 8 bits."""
    if checked.dicom is not None:
        try:
            image = to_uint8(decode_dicom(checked.data[: checked.dicom.end], NAME))
        except DataError:  # not repeated, since the parser's reasons quote the header
            image = None
        if image is None or image.shape != (checked.height, checked.width):
            raise _wrong("the picture is a DICOM file that cannot be decoded as one image; send it as PNG.")
        return image
    try:
        decoded = as_uint8(decode(checked.data, NAME))
    except DataError as error:
        raise _wrong(str(error)) from None
    return decoded if decoded.ndim == 2 else to_uint8(grey_image(decoded))


def _check_side(width: int, height: int, limits: Limits) -> None:
    if max(width, height) > limits.side:
        raise too_large(
            f"the picture has {width} x {height} pixels; at most {limits.side:,} per side are accepted.", "messages"
        )


def _wrong(message: str) -> ApiError:
    return invalid(message, "messages")


_JPEG_START = b"\xff\xd8\xff"
_SCAN_PICTURE_PARTS = 0xDA
# Segments before the first scan, which give their length.
_SEGMENTS = frozenset({*range(0xC0, 0xD0), *range(0xDB, 0xF0), 0xFE} - {0xC8})
# Metadata (camera, colour profile, thumbnails, comments); not JFIF (E0) and Adobe (EE), which define the colours.
_METADATA = frozenset({*range(0xE1, 0xF0), 0xFE} - {0xEE})


def without_metadata(data: bytes, name: str, most: int) -> bytes:
    """A JPEG without its metadata; anything else unchanged.

    Args:
        name: Name of the image in errors.
        most: Most chunks of a PNG; most segments before the first scan of a JPEG, filling bytes included.

    Raises:
        ApiError: For more parts.
        DataError: For a JPEG with a damaged head.
    """
    many = too_large(f"the picture consists of more than {most:,} parts; save it again.", "messages")
    if data.startswith(PNG_START):
        at, chunk, count = len(PNG_START), b"", 0
        while chunk != b"IEND" and at < len(data):
            if count >= most:
                raise many
            count += 1
            length, chunk = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
            at += 12 + length
        return data
    if not data.startswith(_JPEG_START):
        return data
    damaged = DataError(f"{name} is damaged or cut short before its first scan; download or write it again.")
    kept, at = [data[:2]], 2
    for _ in range(most):
        if at + 4 > len(data):
            raise damaged
        mark, kind = data[at], data[at + 1]
        if mark != 0xFF or kind in (0x00, 0xFF):  # filling, which readers skip
            at += 2 if (mark, kind) == (0xFF, 0x00) else 1
            continue
        if kind == _SCAN_PICTURE_PARTS:
            return b"".join([*kept, data[at:]])
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if kind not in _SEGMENTS or not at + 4 <= end <= len(data):
            raise damaged
        if kind not in _METADATA:
            kept.append(data[at:end])
        at = end
    raise many


HEADER_BYTES = 256 << 10  # enough for a 16-bit lookup table, which is half of it
_PIXELS = 0x7FE00010
_DEFLATED = b"1.2.840.10008.1.2.1.99"
_UNCOMPRESSED = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1")
_PLAIN = ("OB", "OW", "UN", None)  # pixels of other types are parsed one by one
_SEGMENTED = range(0x00281221, 0x00281225)  # colour tables that a few bytes expand to gigabytes
_ONE_IMAGE = "is a DICOM file that is not one image of plain pixels"


@dataclass(frozen=True)
class SmallDicom:
    """Size of a DICOM image, and the bytes of the file up to the end of its pixels; the rest is not read."""

    rows: int
    columns: int
    end: int


def small_dicom(data: bytes, name: str, most_pixels: int) -> SmallDicom:
    """The size of an uncompressed DICOM image with a short header, or a `DataError` that calls it `name`."""
    from pydicom.filereader import read_partial

    found: list[tuple[bool, int, int]] = []  # of the pixels: whether they are plain, length, start

    def at_pixels(tag: Any, vr: str | None, length: int) -> bool:
        if int(tag) != _PIXELS:
            return False
        found.append((vr in _PLAIN, length, stream.tell()))
        return True

    head = data[:HEADER_BYTES]
    if _DEFLATED in head:  # the parser would decompress everything first
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
    plain, length, start = found[0]
    if not plain:
        raise DataError(f"{name} {_ONE_IMAGE}; send it as PNG.")
    syntax = str(getattr(header.file_meta, "TransferSyntaxUID", _UNCOMPRESSED[0]))
    if syntax not in _UNCOMPRESSED or length == 0xFFFFFFFF:
        raise DataError(f"{name} is a compressed DICOM file, which a server does not unpack; send it as PNG.")
    rows, columns = _number(header, "Rows", name), _number(header, "Columns", name)
    if not 0 < rows * columns <= most_pixels:
        raise DataError(f"{name} claims {columns} x {rows} pixels; between 1 and {most_pixels:,} are accepted.")
    bits = rows * columns * _number(header, "SamplesPerPixel", name, 1) * _number(header, "BitsAllocated", name)
    # The parser reads the bytes of two images as two images, whatever the header says.
    if 8 * length >= 2 * bits or start + length > len(data):
        raise DataError(f"{name} is a DICOM file whose pixels do not fill {columns} x {rows}; send it again.")
    if any(tag in header for tag in _SEGMENTED):
        raise DataError(f"{name} {_ONE_IMAGE}; send it as PNG.")
    return SmallDicom(rows, columns, start + length)


def _number(header: Any, element: str, name: str, absent: int | None = None) -> int:
    """A small number of the header; an invalid value is not repeated in the error."""
    try:
        value = int(header.get(element, absent))
    except Exception:  # the parser raises many kinds on damaged bytes
        value = -1
    if not 0 <= value < 1 << 16:
        raise DataError(f"{name} has a damaged DICOM header ('{element}' is not a number); send it as PNG.")
    return value
