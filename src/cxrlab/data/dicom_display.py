"""From the stored numbers of a DICOM image to what a screen would show.

The order is the standard's: modality rescale, then the values of interest, then the photometric
direction. Lookup tables are unpacked here, since files in use break the rules of their layout.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError
from cxrlab.data.grey import ImageArray, luminance

if TYPE_CHECKING:
    from pydicom import Dataset

Stored = NDArray[Any]
Values = NDArray[np.float64]
Real = TypeVar("Real", np.float32, np.float64)

# Without a window: what share of the darkest and of the brightest pixels may saturate.
TAIL_PERCENT = 0.5


def displayed(header: Dataset, stored: Stored, name: str) -> ImageArray:
    """The image, [H, W] in [0, 1], bone bright.

    Args:
        header: Its header.
        stored: Decoded pixels, [H, W] or [H, W, 3].
        name: What to call the file in an error.
    """
    if int(header.get("SamplesPerPixel", 1)) > 1 or header.PhotometricInterpretation == "PALETTE COLOR":
        return _colour(header, stored)
    padded = _padding(header, stored)
    values = _finite(_rescaled(header, stored, name), "rescale", name)
    image = _finite(_of_interest(header, values, padded, name), "range", name)
    # A digital radiograph states both, and they agree; one of them is enough to turn it.
    if header.PhotometricInterpretation == "MONOCHROME1" or header.get("PresentationLUTShape") == "INVERSE":
        image = np.float32(1.0) - image
    image[padded] = 0.0
    return image


def window_values(values: Values, centre: float, width: float, shape: str = "LINEAR") -> ImageArray:
    """A window as the standard defines it (PS3.3, C.11.2.1), scaled to [0, 1].

    Args:
        values: After the modality rescale.
        centre: Value shown as mid-grey.
        width: Values from black to white; at least 1 for LINEAR, above 0 for the others.
        shape: LINEAR, LINEAR_EXACT or SIGMOID.
    """
    if shape == "SIGMOID":
        window = 1.0 / (1.0 + np.exp(np.clip(-4.0 * (values - centre) / width, -700.0, 700.0)))
    elif shape == "LINEAR_EXACT":
        window = (values - centre) / width + 0.5
    else:
        # The standard counts whole grey steps here, hence the halves; a width of 1 is a threshold.
        window = (values - (centre - 0.5)) / max(width - 1.0, 1e-9) + 0.5
    return np.clip(window, 0.0, 1.0).astype(np.float32)


def _colour(header: Dataset, stored: Stored) -> ImageArray:
    from pydicom.pixels.processing import apply_color_lut

    if header.PhotometricInterpretation == "PALETTE COLOR":
        stored = apply_color_lut(stored, header)
        most = float(np.iinfo(stored.dtype).max)
    else:
        most = float((1 << int(header.BitsStored)) - 1)
    return luminance(stored[..., :3].astype(np.float32) / np.float32(most))


def _padding(header: Dataset, stored: Stored) -> NDArray[np.bool_]:
    """Pixels that the header declares to be outside the picture, by their stored value."""
    value = header.get("PixelPaddingValue")
    if value is None:
        return np.zeros(stored.shape, bool)
    limit = header.get("PixelPaddingRangeLimit", value)
    return np.asarray((stored >= min(value, limit)) & (stored <= max(value, limit)))


def _finite(array: NDArray[Real], what: str, name: str) -> NDArray[Real]:
    """The array itself; one NaN in an image would poison every mean that it enters."""
    if not np.isfinite(array).all():
        raise DataError(f"{name} has a damaged DICOM header (its {what} gives no finite values); fetch it again.")
    return array


def _rescaled(header: Dataset, stored: Stored, name: str) -> Values:
    if header.get("ModalityLUTSequence"):
        return _looked_up(header, header.ModalityLUTSequence[0], stored.astype(np.float64), name)[0]
    slope, intercept = _rescale(header)
    return stored.astype(np.float64) * slope + intercept


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
    window = _window(header)
    if window is not None:
        return window_values(values, *window)
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
    """Values through a lookup table, and its brightest entry.

    The descriptor gives the number of entries (0 stands for 65,536), the value of the first one and
    the bits of each. Values outside the table take its ends.
    """
    entries, first, bits = (int(number) for number in table.LUTDescriptor)
    entries = entries or 1 << 16
    words = _words(table.LUTData, entries, bits, little=bool(header.original_encoding[1]))
    if not 1 <= bits <= 16 or words.size < entries:
        raise DataError(
            f"{name} declares a lookup table of {entries} entries with {bits} bits each and holds {words.size}; "
            "fetch it again."
        )
    index = np.clip(np.rint(values) - first, 0, entries - 1).astype(np.int64)
    return words[index].astype(np.float64), float(words[:entries].max())


def _words(data: Any, entries: int, bits: int, *, little: bool) -> NDArray[Any]:
    """The entries of a table: numbers already, or bytes with one or two for each entry."""
    if not isinstance(data, (bytes, bytearray)):
        return np.atleast_1d(np.asarray(data, dtype=np.int64))
    if bits <= 8 and len(data) < 2 * entries:
        return np.frombuffer(data, np.uint8)
    return np.frombuffer(data[: len(data) // 2 * 2], "<u2" if little else ">u2")


def _window(header: Dataset) -> tuple[float, float, str] | None:
    """Centre, width and shape of the first window; None where the header has no usable one."""
    centre, width = header.get("WindowCenter"), header.get("WindowWidth")
    if centre in (None, "") or width in (None, ""):
        return None
    first_centre, first_width = (float(value[0] if hasattr(value, "__len__") else value) for value in (centre, width))
    shape = str(header.get("VOILUTFunction") or "LINEAR").upper()
    usable = math.isfinite(first_centre + first_width) and (first_width >= 1 if shape == "LINEAR" else first_width > 0)
    return (first_centre, first_width, shape) if usable else None
