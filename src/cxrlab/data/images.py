"""Read DICOM, PNG and JPEG images as float32 in [0, 1], and fit them into squares with the aspect kept.

The format is detected by content: data sets hold DICOM files without an ending and JPEG files named .png.
"""

from __future__ import annotations

import io
import math
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.errors import DataError
from cxrlab.core.image_codec import MOST_PIXELS, decode, open_picture, to_uint8, to_unit
from cxrlab.core.vocabulary import View
from cxrlab.data.bounded_reading import read_bounded

if TYPE_CHECKING:
    from pydicom import Dataset

# uint8, uint16, bool or float32 in [0, 1]; [H, W] or [H, W, 3].
Picture = NDArray[Any]

_DEPTHS = (8, 10, 12, 14, 16)
_HEADER = 1 << 16  # bytes that hold the header of most PNG and JPEG files


def load_image(path: str | Path, size: int | None = None) -> ImageArray:
    """One image, [H, W] in [0, 1], bright where bone is.

    Args:
        path: DICOM, PNG (8 or 16 bits, palette, transparency) or JPEG; colour becomes luminance.
        size: Fit into size × size (see `fit`); None keeps the image's own pixels.

    A 16-bit PNG is divided by the least of 2^8, 2^10, 2^12, 2^14 and 2^16, minus one, that holds its brightest pixel,
    since exporters often keep a detector's 12 bits unscaled. EXIF rotation is ignored.
    """
    image = grey_image(read_picture(path))
    return image if size is None else fit(image, size)


def load_rgb(path: str | Path, size: int | None = None) -> ImageArray:
    """One colour picture, [H, W, 3] in [0, 1]; a grey one has three equal channels."""
    picture = rgb_image(read_picture(path))
    return picture if size is None else fit(picture, size)


def read_picture(path: str | Path) -> Picture:
    """The pixels of a file as they are stored; a DICOM image as float32 in [0, 1] (see `decode_dicom`)."""
    return decode_picture(read_bounded(path), str(path))


def decode_picture(data: bytes, name: str) -> Picture:
    """The same from the bytes of a file."""
    return decode_dicom(data, name) if is_dicom(data) else decode(data, name)


def image_size(path: str | Path) -> tuple[int, int]:
    """Height and width of an image; of a PNG or JPEG its first bytes are read alone."""
    name = str(path)
    with suppress(OSError, DataError):  # what is wrong with the start is found again in the whole file
        if Path(path).is_file():
            with open(path, "rb") as file:
                start = file.read(_HEADER)
            if not is_dicom(start):
                with open_picture(start, name) as picture:
                    return picture.height, picture.width
    data = read_bounded(path)
    if is_dicom(data):
        info = dicom_info(data, name)
        return info.rows, info.columns
    with open_picture(data, name) as picture:
        return picture.height, picture.width


def as_uint8(picture: Picture) -> NDArray[np.uint8]:
    """A picture as uint8, [H, W] if it is grey, [H, W, 3] if it has colour, however it is stored."""
    if picture.ndim == 3:
        grey = (picture[..., :1] == picture).all()
        return to_uint8(_unit(picture[..., 0] if grey else picture))
    return picture if picture.dtype == np.uint8 else to_uint8(grey_image(picture))


def grey_image(picture: Picture) -> ImageArray:
    """The image in stored pixels, [H, W] in [0, 1]; see `load_image` for how 16 bits and colour are taken."""
    if picture.ndim == 3:
        return luminance(_unit(picture))
    if picture.dtype == np.uint16:
        brightest = int(picture.max())
        most = next((1 << bits) - 1 for bits in _DEPTHS if brightest < (1 << bits))
        return picture.astype(np.float32) / np.float32(most)
    return _unit(picture)


def rgb_image(picture: Picture) -> ImageArray:
    """A picture in stored pixels in colour, [H, W, 3] in [0, 1]; a grey one has three equal channels."""
    return _unit(picture) if picture.ndim == 3 else np.repeat(grey_image(picture)[..., None], 3, axis=2)


def fit(image: ImageArray, size: int) -> ImageArray:
    """Scale into a size × size square with the aspect kept, centred, padded with 0; shrinking averages over areas."""
    height, width = image.shape[:2]
    if (height, width) == (size, size):
        return image
    scale = size / max(height, width)
    new_height, new_width = max(1, round(height * scale)), max(1, round(width * scale))
    top, left = (size - new_height) // 2, (size - new_width) // 2
    square = np.zeros((size, size, *image.shape[2:]), np.float32)
    inside = square[top : top + new_height, left : left + new_width]
    if image.ndim == 2:
        inside[:] = _resize(image, new_width, new_height)
    else:
        for channel in range(image.shape[2]):
            inside[..., channel] = _resize(image[..., channel], new_width, new_height)
    return np.clip(square, 0.0, 1.0, out=square)


def _unit(picture: Picture) -> ImageArray:
    return picture if picture.dtype == np.float32 else to_unit(picture)


def _resize(channel: ImageArray, width: int, height: int) -> ImageArray:
    # Pillow widens this filter by the scale when shrinking, which makes it a smooth area average.
    picture = Image.fromarray(np.ascontiguousarray(channel, np.float32))
    return np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR), np.float32)


ImageArray = NDArray[np.float32]

_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)


def luminance(colour: ImageArray) -> ImageArray:
    """Red, green and blue in [0, 1] ([H, W, 3]) to one grey in [0, 1] ([H, W])."""
    return np.asarray(np.clip(colour @ _WEIGHTS, 0.0, 1.0))


_DEFLATED = b"1.2.840.10008.1.2.1.99"
_LATERAL = frozenset({"LL", "RL", "L", "LAT", "LATERAL", "LLAT", "RLAT", "XTABLE LATERAL"})
_DAYS_A_YEAR = {"Y": 1.0, "M": 12.0, "W": 52.1775, "D": 365.2425}


@dataclass(frozen=True)
class DicomInfo:
    """The part of a DICOM header that a corpus keeps; names, dates and numbers of the patient are not read."""

    view: View | None
    age: float | None
    sex: str | None
    rows: int
    columns: int
    spacing_mm: float | None


def is_dicom(data: bytes) -> bool:
    """Whether bytes look like DICOM: by the mark after the preamble, or by a first header element in old files."""
    if data[128:132] == b"DICM":
        return True
    if len(data) < 16 or data[:2] not in (b"\x02\x00", b"\x08\x00") or data[3] != 0:
        return False
    explicit = re.fullmatch(rb"UI|UL|CS|OB|DA|SH|LO|TM", data[4:6]) is not None
    return explicit or int.from_bytes(data[4:8], "little") <= min(64, len(data) - 8)


def decode_dicom(data: bytes, name: str) -> ImageArray:
    """The image of one DICOM file, [H, W] in [0, 1].

    A lookup table goes before a window, and the first of several windows is used, as viewers do. Without either, 8-bit
    values are shown as they are; deeper ones are stretched between their 0.5th and 99.5th percentiles. Padding becomes
    black, colour luminance. Files of several frames and deflated files are refused.
    """
    header = parse_dicom(data, name)
    with report_damaged_header(name):
        check_single_image(header, name)
        return displayed(header, stored_pixels(header, name), name)


def dicom_info(data: bytes, name: str) -> DicomInfo:
    """View, age, sex and size from a header, without decoding the pixels."""
    return header_info(parse_dicom(data, name, pixels=False), name)


def header_info(header: Dataset, name: str) -> DicomInfo:
    """The same from a parsed header."""
    with report_damaged_header(name):
        sex = str(header.get("PatientSex", "")).strip().upper()
        spacing = header.get("PixelSpacing") or header.get("ImagerPixelSpacing")
        text = str(header.get("PatientAge", "") or "")
        match = re.fullmatch(r"\s*(\d{1,3})\s*([YMWD]?)\s*", text.upper())
        word, view = str(header.get("ViewPosition", "") or "").strip().upper(), None
        if word:
            view = View(word) if word in ("PA", "AP") else View.LATERAL if word in _LATERAL else View.OTHER
        return DicomInfo(
            view=view,
            age=float(match[1]) / _DAYS_A_YEAR[match[2] or "Y"] if match else None,
            sex=sex if sex in ("F", "M") else None,
            rows=int(header.get("Rows", 0)),
            columns=int(header.get("Columns", 0)),
            spacing_mm=float(spacing[0]) if spacing else None,
        )


@contextmanager
def report_damaged_header(name: str) -> Iterator[None]:
    """Turn errors from a damaged header, whose elements may have any type, into a `DataError`."""
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


def _reason(error: BaseException) -> str:
    """The first sentence of a library's message; the rest names its parts, not the user's."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text.split(". ")[0].rstrip(".")[:160]


Stored = NDArray[Any]
Values = NDArray[np.float64]
Real = TypeVar("Real", np.float32, np.float64)

# Without a window: what share of the darkest and of the brightest pixels may saturate.
TAIL_PERCENT = 0.5


def displayed(header: Dataset, stored: Stored, name: str) -> ImageArray:
    """The image, [H, W] in [0, 1], bone bright."""
    if header.PhotometricInterpretation == "PALETTE COLOR":
        from pydicom.pixels.processing import apply_color_lut

        stored = apply_color_lut(stored, header)
        return luminance(stored[..., :3].astype(np.float32) / np.float32(np.iinfo(stored.dtype).max))
    if int(header.get("SamplesPerPixel", 1)) > 1:
        return luminance(stored[..., :3].astype(np.float32) / np.float32((1 << int(header.BitsStored)) - 1))
    # Pixels that the header declares to be outside the image, by their stored value.
    padded, padding = np.zeros(stored.shape, bool), header.get("PixelPaddingValue")
    if padding is not None:
        limit = header.get("PixelPaddingRangeLimit", padding)
        padded = np.asarray((stored >= min(padding, limit)) & (stored <= max(padding, limit)))
    values = stored.astype(np.float64)
    if header.get("ModalityLUTSequence"):
        values = _looked_up(header, header.ModalityLUTSequence[0], values, name)[0]
    else:
        slope, intercept = _rescale(header)
        values = values * slope + intercept
    values = _finite(values, "rescale", name)
    image = _finite(_of_interest(header, values, padded, name), "range", name)
    # A digital radiograph states both, and they agree; one of them is enough to turn it.
    if header.PhotometricInterpretation == "MONOCHROME1" or header.get("PresentationLUTShape") == "INVERSE":
        image = np.float32(1.0) - image
    image[padded] = 0.0
    return image


def window_values(values: Values, centre: float, width: float, shape: str = "LINEAR") -> ImageArray:
    """A window as the standard defines it (PS3.3, C.11.2.1), scaled to [0, 1]; LINEAR, LINEAR_EXACT or SIGMOID."""
    if shape == "SIGMOID":
        window = 1.0 / (1.0 + np.exp(np.clip(-4.0 * (values - centre) / width, -700.0, 700.0)))
    elif shape == "LINEAR_EXACT":
        window = (values - centre) / width + 0.5
    else:
        # The standard counts whole grey steps here, hence the halves; a width of 1 is a threshold.
        window = (values - (centre - 0.5)) / max(width - 1.0, 1e-9) + 0.5
    return np.clip(window, 0.0, 1.0).astype(np.float32)


def _finite(array: NDArray[Real], what: str, name: str) -> NDArray[Real]:
    """The array itself; one NaN in an image would make every mean NaN."""
    if not np.isfinite(array).all():
        raise DataError(f"{name} has a damaged DICOM header (its {what} gives no finite values); fetch it again.")
    return array


def _rescale(header: Dataset) -> tuple[float, float]:
    """Slope and intercept; an element that is absent or empty changes nothing."""
    slope, intercept = header.get("RescaleSlope"), header.get("RescaleIntercept")
    return (1.0 if slope in (None, "") else float(slope), 0.0 if intercept in (None, "") else float(intercept))


def _of_interest(header: Dataset, values: Values, padded: NDArray[np.bool_], name: str) -> ImageArray:
    """Values of interest to [0, 1], before the photometric direction."""
    if header.get("VOILUTSequence"):
        grey, brightest = _looked_up(header, header.VOILUTSequence[0], values, name)
        # Tables often declare 16 bits and fill 12; the brightest entry is white.
        return (grey / max(1.0, brightest)).clip(0.0, 1.0).astype(np.float32)
    centre, width = header.get("WindowCenter"), header.get("WindowWidth")
    if centre not in (None, "") and width not in (None, ""):  # the first window, if it is usable
        centre, width = (float(value[0] if hasattr(value, "__len__") else value) for value in (centre, width))
        shape = str(header.get("VOILUTFunction") or "LINEAR").upper()
        if math.isfinite(centre + width) and (width >= 1 if shape == "LINEAR" else width > 0):
            return window_values(values, centre, width, shape)
    bits = int(header.get("BitsStored") or header.BitsAllocated)
    if bits <= 8 and _rescale(header) == (1.0, 0.0) and not header.get("ModalityLUTSequence"):
        return (values / ((1 << bits) - 1)).clip(0.0, 1.0).astype(np.float32)
    inside = values[~padded]
    low, high = np.percentile(inside, (TAIL_PERCENT, 100.0 - TAIL_PERCENT)) if inside.size else (0.0, 0.0)
    if high <= low and inside.size:
        low, high = float(inside.min()), float(inside.max())
    if high <= low:
        raise DataError(f"{name} holds a single grey value and no window; there is no image to show, leave it out.")
    return ((values - low) / (high - low)).clip(0.0, 1.0).astype(np.float32)


def _looked_up(header: Dataset, table: Dataset, values: Values, name: str) -> tuple[Values, float]:
    """Values through a lookup table, and its brightest entry; values outside the table take its ends."""
    entries, first, bits = (int(number) for number in table.LUTDescriptor)
    entries, data = entries or 1 << 16, table.LUTData
    if not isinstance(data, (bytes, bytearray)):
        words = np.atleast_1d(np.asarray(data, dtype=np.int64))
    elif bits <= 8 and len(data) < 2 * entries:
        words = np.frombuffer(data, np.uint8)
    else:
        words = np.frombuffer(data[: len(data) // 2 * 2], "<u2" if header.original_encoding[1] else ">u2")
    if not 1 <= bits <= 16 or words.size < entries:
        raise DataError(
            f"{name} declares a lookup table of {entries} entries with {bits} bits each and holds {words.size}; "
            "fetch it again."
        )
    index = np.clip(np.rint(values) - first, 0, entries - 1).astype(np.int64)
    return words[index].astype(np.float64), float(words[:entries].max())
