"""Any picture file to float32 in [0, 1], and into a square without changing its shape.

The format is told by content, never by the name: corpora ship DICOM files without an ending and
JPEG files named .png.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.codec import Array, decode, to_unit
from cxrlab.core.errors import DataError
from cxrlab.data.dicom import decode_dicom, is_dicom

Film = NDArray[np.float32]

MOST_BYTES = 1 << 30
_DEPTHS = (8, 10, 12, 14, 16)
_LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)


def load_image(path: str | Path, size: int | None = None) -> Film:
    """One film, [H, W] in [0, 1], bright where bone is.

    Args:
        path: DICOM, PNG (8 or 16 bits, palette, transparency) or JPEG; colour becomes luminance.
        size: Fit into size × size (see `fit`); None keeps the film's own pixels.

    A 16-bit PNG is divided by the least of 2^8, 2^10, 2^12, 2^14 and 2^16, minus one, that holds its
    brightest pixel: exporters often keep a detector's 12 bits unscaled, and dividing those by
    65535 would give a film that is almost black. EXIF rotation is ignored.
    """
    data = read_bytes(path)
    film = decode_dicom(data, str(path)) if is_dicom(data) else _grey(decode(data, str(path)))
    return film if size is None else fit(film, size)


def load_rgb(path: str | Path, size: int | None = None) -> Film:
    """One colour picture, [H, W, 3] in [0, 1]; a grey one has three equal channels."""
    data = read_bytes(path)
    if is_dicom(data):
        picture = decode_dicom(data, str(path))
    else:
        array = decode(data, str(path))
        picture = to_unit(array) if array.ndim == 3 else _grey(array)
    if size is not None:
        picture = fit(picture, size)
    return picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)


def fit(image: Film, size: int) -> Film:
    """Scale into a size × size square with the aspect kept, centred, padded with 0.

    Args:
        image: [H, W] or [H, W, 3] in [0, 1].
        size: Side in pixels.

    Shrinking averages over the area that a pixel covers, so that thin lines fade and do not
    alias; the result stays in the range of the input. A picture that fits is returned as it is.
    """
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


def read_bytes(path: str | Path) -> bytes:
    """A picture file's bytes, or a sentence that says why there are none."""
    path = Path(path)
    try:
        if path.is_dir():
            raise DataError(f"{path} is a folder, not a picture; name the file itself.")
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path} is larger than 1 GiB; it is not a radiograph, remove it.")
        data = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; check the path or fetch the picture.") from None
    except OSError as error:
        why = error.strerror or error
        raise DataError(f"{path} cannot be read ({why}); check its permissions and the disk.") from None
    if not data:
        raise DataError(f"{path} is empty (0 bytes); fetch or write it again.")
    return data


def _grey(array: Array) -> Film:
    if array.ndim == 3:
        return np.asarray(np.clip(to_unit(array) @ _LUMINANCE, 0.0, 1.0))
    if array.dtype == np.uint16:
        brightest = int(array.max())
        most = next((1 << bits) - 1 for bits in _DEPTHS if brightest < (1 << bits))
        return array.astype(np.float32) / np.float32(most)
    return to_unit(array)


def _resize(channel: Film, width: int, height: int) -> Film:
    # Pillow widens this filter by the scale when shrinking, which makes it a smooth area average.
    picture = Image.fromarray(np.ascontiguousarray(channel, np.float32))
    return np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR), np.float32)
