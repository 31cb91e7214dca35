"""DICOM radiographs: stored numbers to the picture a radiologist would see, as float32 in [0, 1].

The order is the standard's: modality rescale, then the value-of-interest window, then the
photometric direction. Bone ends up bright and air dark, whatever the file's convention.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.codec import MOST_PIXELS
from cxrlab.core.errors import DataError
from cxrlab.core.vocabulary import View

if TYPE_CHECKING:
    from pydicom import Dataset

Film = NDArray[np.float32]
Stored = NDArray[Any]

# Without a window: what share of the darkest and of the brightest pixels may saturate.
TAIL_PERCENT = 0.5
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


def decode_dicom(data: bytes, name: str) -> Film:
    """The film of one DICOM file, [H, W] in [0, 1].

    Args:
        data: The whole file.
        name: What to call it in an error, usually its path.

    A lookup table goes before a window, and the first of several windows is used, as viewers do.
    Without either, 8-bit values are taken as ready for display; deeper ones are stretched between
    their 0.5th and 99.5th percentiles, since detectors fill an unknown part of their range. Padding
    becomes black. Colour becomes luminance. Files of several frames are refused.
    """
    header = _parse(data, name)
    with _sound_header(name):
        return _film(header, name)


def dicom_info(data: bytes, name: str) -> DicomInfo:
    """View, age, sex and size from a header, without decoding the pixels."""
    header = _parse(data, name, pixels=False)
    with _sound_header(name):
        return _info(header)


def _film(header: Dataset, name: str) -> Film:
    _check_single_film(header, name)
    stored = _stored(header, name)
    if int(header.get("SamplesPerPixel", 1)) > 1 or header.PhotometricInterpretation == "PALETTE COLOR":
        return _luminance(header, stored)
    padded = _padding(header, stored)
    values = _rescaled(header, stored)
    if not np.isfinite(values).all():
        raise DataError(f"{name} has a damaged DICOM header (its rescale gives no finite values); fetch it again.")
    film = _displayed(header, values, padded, name)
    # A digital radiograph states both, and they agree; one of them is enough to turn it.
    if header.PhotometricInterpretation == "MONOCHROME1" or header.get("PresentationLUTShape") == "INVERSE":
        film = np.float32(1.0) - film
    film[padded] = 0.0
    return film


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
def _sound_header(name: str) -> Iterator[None]:
    """Elements of a damaged header come as lists, text or nothing where a number should be."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise DataError(f"{name} has a damaged DICOM header ({_reason(error)}); fetch it again.") from error


def _parse(data: bytes, name: str, *, pixels: bool = True) -> Dataset:
    from pydicom import dcmread

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


def _check_single_film(header: Dataset, name: str) -> None:
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


def _stored(header: Dataset, name: str) -> Stored:
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


def _luminance(header: Dataset, stored: Stored) -> Film:
    from pydicom.pixels.processing import apply_color_lut

    if header.PhotometricInterpretation == "PALETTE COLOR":
        stored = apply_color_lut(stored, header)
        most = float(np.iinfo(stored.dtype).max)
    else:
        most = float((1 << int(header.BitsStored)) - 1)
    weights = np.array([0.299, 0.587, 0.114], np.float32)
    return np.asarray(np.clip(stored[..., :3].astype(np.float32) @ weights / np.float32(most), 0.0, 1.0))


def _padding(header: Dataset, stored: Stored) -> NDArray[np.bool_]:
    """Pixels that the header declares to be outside the picture, by their stored value."""
    value = header.get("PixelPaddingValue")
    if value is None:
        return np.zeros(stored.shape, bool)
    limit = header.get("PixelPaddingRangeLimit", value)
    return np.asarray((stored >= min(value, limit)) & (stored <= max(value, limit)))


def _rescaled(header: Dataset, stored: Stored) -> NDArray[np.float64]:
    from pydicom.pixels.processing import apply_modality_lut

    return np.asarray(apply_modality_lut(stored, header), dtype=np.float64)


def _displayed(header: Dataset, values: NDArray[np.float64], padded: NDArray[np.bool_], name: str) -> Film:
    """Values of interest to [0, 1], before the photometric direction."""
    if header.get("VOILUTSequence"):
        from pydicom.pixels.processing import apply_voi

        shown = np.asarray(apply_voi(values.astype(np.int64), header, index=0), np.float64)
        # Tables often declare 16 bits and fill 12; the brightest entry is white.
        table = header.VOILUTSequence[0].LUTData
        words = np.frombuffer(table, "<u2") if isinstance(table, bytes) else np.asarray(table)
        return (shown / max(1.0, float(words.max()))).clip(0.0, 1.0).astype(np.float32)
    window = _window(header)
    if window is not None:
        return window_values(values, *window)
    if int(header.get("BitsStored", 8)) <= 8 and not header.get("RescaleSlope"):
        return (values / ((1 << int(header.BitsStored)) - 1)).clip(0.0, 1.0).astype(np.float32)
    inside = values[~padded]
    low, high = np.percentile(inside, (TAIL_PERCENT, 100.0 - TAIL_PERCENT)) if inside.size else (0.0, 0.0)
    if high <= low and inside.size:
        low, high = float(inside.min()), float(inside.max())
    if high <= low:
        raise DataError(f"{name} holds a single grey value and no window; there is no film to show, leave it out.")
    return ((values - low) / (high - low)).clip(0.0, 1.0).astype(np.float32)


def _window(header: Dataset) -> tuple[float, float, str] | None:
    """Centre, width and shape of the first window; None where the header has no usable one."""
    centre, width = header.get("WindowCenter"), header.get("WindowWidth")
    if centre in (None, "") or width in (None, ""):
        return None
    first_centre, first_width = (float(value[0] if hasattr(value, "__len__") else value) for value in (centre, width))
    shape = str(header.get("VOILUTFunction") or "LINEAR").upper()
    usable = first_width >= 1 if shape == "LINEAR" else first_width > 0
    return (first_centre, first_width, shape) if usable else None


def window_values(values: NDArray[np.float64], centre: float, width: float, shape: str = "LINEAR") -> Film:
    """A window as the standard defines it (PS3.3, C.11.2.1), scaled to [0, 1].

    Args:
        values: After the modality rescale.
        centre: Value shown as mid-grey.
        width: Values from black to white; at least 1 for LINEAR, above 0 for the others.
        shape: LINEAR, LINEAR_EXACT or SIGMOID.
    """
    if shape == "SIGMOID":
        shown = 1.0 / (1.0 + np.exp(np.clip(-4.0 * (values - centre) / width, -700.0, 700.0)))
    elif shape == "LINEAR_EXACT":
        shown = (values - centre) / width + 0.5
    else:
        # The standard counts whole grey steps here, hence the halves; a width of 1 is a threshold.
        shown = (values - (centre - 0.5)) / max(width - 1.0, 1e-9) + 0.5
    return np.clip(shown, 0.0, 1.0).astype(np.float32)


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
