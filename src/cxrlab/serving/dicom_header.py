"""DICOM from strangers: only what can be read with a known amount of work.

A file is taken when its header is short and its one image is stored uncompressed. The decoders of compressed images
believe the size that stands within the compressed stream, which a stranger may choose; PNG says the same in public.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import Any

from cxrlab.core.errors import DataError

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
