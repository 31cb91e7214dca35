"""From the text of a picture to an image of 8 bits, with everything that could burst the memory refused by its header.

No address is ever fetched: a picture comes within the request or not at all.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.codec import PNG_START, decode, open_picture, to_uint8
from cxrlab.core.errors import DataError
from cxrlab.data.dicom import decode_dicom, is_dicom
from cxrlab.data.images import eight_bits, grey_image
from cxrlab.serving.config import Limits
from cxrlab.serving.dicom_header import SmallDicom, small_dicom
from cxrlab.serving.picture_parts import lean
from cxrlab.serving.refusals import Refused, invalid, too_large

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
        shown = eight_bits(decode(checked.data, NAME))
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


def _wrong(message: str) -> Refused:
    return invalid(message, "messages")
