"""DICOM radiographs: stored numbers to the picture a radiologist would see, as float32 in [0, 1].

Here the file is opened and its pixels are decoded; `dicom_display` turns them into what is shown.
Bone ends up bright and air dark, whatever the file's convention.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cxrlab.core.codec import MOST_PIXELS
from cxrlab.core.errors import DataError
from cxrlab.core.vocabulary import View
from cxrlab.data.dicom_display import Stored, displayed
from cxrlab.data.grey import ImageArray

if TYPE_CHECKING:
    from pydicom import Dataset

_DEFLATED = b"1.2.840.10008.1.2.1.99"
_LATERAL = frozenset({"LL", "RL", "L", "LAT", "LATERAL", "LLAT", "RLAT", "XTABLE LATERAL"})
_DAYS_A_YEAR = {"Y": 1.0, "M": 12.0, "W": 52.1775, "D": 365.2425}


@dataclass(frozen=True)
class DicomInfo:
    """What a corpus may keep of a header; names, dates and numbers of the patient are not read.

    Args:
        view: None when the header does not say.
        age: Years; None when absent or unreadable.
        sex: "F", "M" or None.
        rows: Height in pixels.
        columns: Width in pixels.
        spacing_mm: Height of one pixel on the detector; None when absent.
    """

    view: View | None
    age: float | None
    sex: str | None
    rows: int
    columns: int
    spacing_mm: float | None


def is_dicom(data: bytes) -> bool:
    """Whether bytes look like DICOM: by the mark after the preamble, or by a first header element.

    Old files may lack the preamble; they start with group 0002 or 0008, little-endian, followed by
    a two-letter type or a plausible length.
    """
    if data[128:132] == b"DICM":
        return True
    if len(data) < 16 or data[:2] not in (b"\x02\x00", b"\x08\x00") or data[3] != 0:
        return False
    explicit = re.fullmatch(rb"UI|UL|CS|OB|DA|SH|LO|TM", data[4:6]) is not None
    return explicit or int.from_bytes(data[4:8], "little") <= min(64, len(data) - 8)


def decode_dicom(data: bytes, name: str) -> ImageArray:
    """The image of one DICOM file, [H, W] in [0, 1].

    Args:
        data: The whole file.
        name: What to call it in an error, usually its path.

    A lookup table goes before a window, and the first of several windows is used, as viewers do.
    Without either, 8-bit values are taken as ready for display; deeper ones are stretched between
    their 0.5th and 99.5th percentiles, since detectors fill an unknown part of their range. Padding
    becomes black. Colour becomes luminance. Files of several frames and deflated files are refused.
    """
    header = parse_dicom(data, name)
    with sound_header(name):
        check_single_image(header, name)
        return displayed(header, stored_pixels(header, name), name)


def dicom_info(data: bytes, name: str) -> DicomInfo:
    """View, age, sex and size from a header, without decoding the pixels."""
    header = parse_dicom(data, name, pixels=False)
    with sound_header(name):
        return _info(header)


def _info(header: Dataset) -> DicomInfo:
    sex = str(header.get("PatientSex", "")).strip().upper()
    spacing = header.get("PixelSpacing") or header.get("ImagerPixelSpacing")
    return DicomInfo(
        view=_view(str(header.get("ViewPosition", "") or "")),
        age=_age(str(header.get("PatientAge", "") or "")),
        sex=sex if sex in ("F", "M") else None,
        rows=int(header.get("Rows", 0)),
        columns=int(header.get("Columns", 0)),
        spacing_mm=float(spacing[0]) if spacing else None,
    )


@contextmanager
def sound_header(name: str) -> Iterator[None]:
    """Turn what a damaged header raises into a `DataError`.

    Elements of a damaged header come as lists, text or nothing where a number should be.
    """
    try:
        yield
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, struct.error) as error:
        raise DataError(f"{name} has a damaged DICOM header ({_reason(error)}); fetch it again.") from error


def parse_dicom(data: bytes, name: str, *, pixels: bool = True) -> Dataset:
    """The header of one DICOM file, with or without its pixels still encoded; deflated and damaged ones are refused."""
    from pydicom import dcmread

    if _DEFLATED in data:
        # A megabyte of it may unpack to gigabytes, and the parser unpacks all before it reads anything.
        raise DataError(f"{name} is a deflated DICOM file, which is not supported; save it in another transfer syntax.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header that breaks a rule of form is common and harmless
            header = dcmread(io.BytesIO(data), force=is_dicom(data), stop_before_pixels=not pixels)
            header.decode()
    except Exception as error:  # the parser raises many kinds on damaged bytes
        raise DataError(f"{name} is not a readable DICOM file ({_reason(error)}); fetch it again.") from None
    if "Rows" not in header and "SOPClassUID" not in header:
        raise DataError(f"{name} is a DICOM file cut short in its header or holds no picture; fetch it again.")
    return header


def check_single_image(header: Dataset, name: str) -> None:
    """Refuse a file without pixels, of several frames, or of more pixels than any image has."""
    if "PixelData" not in header:
        raise DataError(f"{name} is a DICOM file without pixels; it may be a report or a cut download.")
    for tag in ("Rows", "Columns", "BitsAllocated", "PhotometricInterpretation"):
        if header.get(tag) in (None, ""):
            raise DataError(f"{name} is a DICOM file without '{tag}', so its pixels cannot be read; fetch it again.")
    if header.Rows * header.Columns > MOST_PIXELS:
        raise DataError(f"{name} claims {header.Columns} x {header.Rows} pixels, above the limit of {MOST_PIXELS:,}.")
    frames = int(header.get("NumberOfFrames") or 1)
    if frames > 1:
        raise DataError(f"{name} holds {frames} frames; a radiograph has one. Split it or leave it out.")


def stored_pixels(header: Dataset, name: str) -> Stored:
    """Decoded pixels before any rescaling, [H, W] or [H, W, 3], without what old files hide in unused bits."""
    from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian, RLELossless

    if "TransferSyntaxUID" not in header.file_meta:
        # A file without its meta group is by rule implicit; the parser has noticed if it is not.
        implicit = header.original_encoding[0]
        header.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian if implicit else ExplicitVRLittleEndian
    if header.file_meta.TransferSyntaxUID == RLELossless:
        # The faster decoder ends in a panic outside Python's exceptions when a run is damaged.
        header.pixel_array_options(decoding_plugin="pydicom")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stored: Stored = header.pixel_array
    except Exception as error:  # each decoder raises its own kinds
        why = f"{header.file_meta.TransferSyntaxUID.name}: {_reason(error)}"
        raise DataError(f"{name} has pixels that cannot be decoded ({why}); fetch it again.") from None
    bits = int(header.get("BitsStored") or header.BitsAllocated)
    if stored.ndim == 2 and stored.dtype.kind == "u" and bits < stored.dtype.itemsize * 8:
        stored = stored & np.array((1 << bits) - 1, stored.dtype)  # old files keep overlays in the unused bits
    return stored


def _view(text: str) -> View | None:
    word = text.strip().upper()
    if not word:
        return None
    if word in ("PA", "AP"):
        return View(word)
    return View.LATERAL if word in _LATERAL else View.OTHER


def _age(text: str) -> float | None:
    match = re.fullmatch(r"\s*(\d{1,3})\s*([YMWD]?)\s*", text.upper())
    return float(match[1]) / _DAYS_A_YEAR[match[2] or "Y"] if match else None


def _reason(error: BaseException) -> str:
    """The first sentence of a library's message; the rest names its parts, not the user's."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.split(". ")[0].rstrip(".")[:160]
