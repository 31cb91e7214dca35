"""DICOM from strangers: only what can be read with a known amount of work.

A file is taken when its header is short and its one film is stored uncompressed. The decoders of compressed films
believe the size that stands within the compressed stream, which a stranger may choose; PNG says the same in public.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from typing import Any

from cxrlab.core.errors import DataError
from cxrlab.data.dicom import sound_header

HEADER_BYTES = 256 << 10  # a lookup table of 16 bits is half of it; more elements would take seconds to read
_PIXELS = 0x7FE00010
_DEFLATED = b"1.2.840.10008.1.2.1.99"
_UNCOMPRESSED = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1")


@dataclass(frozen=True)
class SmallDicom:
    """Where the film of a DICOM file stands.

    Args:
        rows: Height in pixels.
        columns: Width in pixels.
        end: Bytes of the file up to the end of its pixels; what follows is not read.
    """

    rows: int
    columns: int
    end: int


def small_dicom(data: bytes, name: str, most_pixels: int) -> SmallDicom:
    """The size of an uncompressed DICOM film with a short header, or a `DataError`.

    Args:
        data: The whole file.
        name: What to call it in an error.
        most_pixels: Most pixels.
    """
    header, length, start = _until_pixels(data, name)
    syntax = str(getattr(header.file_meta, "TransferSyntaxUID", _UNCOMPRESSED[0]))
    if syntax not in _UNCOMPRESSED or length == 0xFFFFFFFF:
        raise DataError(f"{name} is a compressed DICOM file, which a server does not unpack; send it as PNG.")
    with sound_header(name):
        rows, columns = int(header.Rows), int(header.Columns)
    if not 0 < rows * columns <= most_pixels:
        raise DataError(f"{name} claims {columns} x {rows} pixels; between 1 and {most_pixels:,} are taken.")
    if length > 8 * rows * columns + 8 or start + length > len(data):
        raise DataError(f"{name} is a DICOM file whose pixels do not fill {columns} x {rows}; send it again.")
    return SmallDicom(rows, columns, start + length)


def _until_pixels(data: bytes, name: str) -> tuple[Any, int, int]:
    """The header, the length of the pixels, and where they start; what comes after is not looked at."""
    from pydicom.filereader import read_partial

    found: list[int] = []

    def at_pixels(tag: Any, vr: str | None, length: int) -> bool:
        if int(tag) != _PIXELS:
            return False
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
    return header, found[0], found[1]
