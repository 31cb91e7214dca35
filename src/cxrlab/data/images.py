"""Any picture file to float32 in [0, 1], and into a square without changing its shape.

The format is told by content, never by the name: corpora ship DICOM files without an ending and
JPEG files named .png.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cxrlab.core.codec import decode, to_uint8, to_unit
from cxrlab.data.bounded import read_bounded
from cxrlab.data.dicom import decode_dicom, is_dicom
from cxrlab.data.grey import ImageArray, luminance

# uint8, uint16, bool or float32 in [0, 1]; [H, W] or [H, W, 3].
Picture = NDArray[Any]

_DEPTHS = (8, 10, 12, 14, 16)


def load_image(path: str | Path, size: int | None = None) -> ImageArray:
    """One image, [H, W] in [0, 1], bright where bone is.

    Args:
        path: DICOM, PNG (8 or 16 bits, palette, transparency) or JPEG; colour becomes luminance.
        size: Fit into size × size (see `fit`); None keeps the image's own pixels.

    A 16-bit PNG is divided by the least of 2^8, 2^10, 2^12, 2^14 and 2^16, minus one, that holds its
    brightest pixel: exporters often keep a detector's 12 bits unscaled, and dividing those by
    65535 would give an image that is almost black. EXIF rotation is ignored.
    """
    image = grey_image(read_picture(path))
    return image if size is None else fit(image, size)


def load_rgb(path: str | Path, size: int | None = None) -> ImageArray:
    """One colour picture, [H, W, 3] in [0, 1]; a grey one has three equal channels."""
    stored = read_picture(path)
    picture = _unit(stored) if stored.ndim == 3 else grey_image(stored)
    if size is not None:
        picture = fit(picture, size)
    return picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=2)


def read_picture(path: str | Path) -> Picture:
    """The pixels of a file as they are stored; a DICOM image as float32 in [0, 1] (see `decode_dicom`)."""
    data = read_bounded(path)
    return decode_dicom(data, str(path)) if is_dicom(data) else decode(data, str(path))


def eight_bits(picture: Picture) -> NDArray[np.uint8]:
    """What a picture shows, in the plainest form: uint8, [H, W] where it is grey, [H, W, 3] where it has colour.

    The same image saved with another compression, depth or number of channels comes out the same.
    """
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


def fit(image: ImageArray, size: int) -> ImageArray:
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


def _unit(picture: Picture) -> ImageArray:
    return picture if picture.dtype == np.float32 else to_unit(picture)


def _resize(channel: ImageArray, width: int, height: int) -> ImageArray:
    # Pillow widens this filter by the scale when shrinking, which makes it a smooth area average.
    picture = Image.fromarray(np.ascontiguousarray(channel, np.float32))
    return np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR), np.float32)
