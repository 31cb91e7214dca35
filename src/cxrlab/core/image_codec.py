"""PNG and JPEG bytes to numpy arrays and back, and conversion between value ranges.

Encoding is deterministic (no time, no text chunks) and fast rather than small: the noise of an image does not compress.
"""

from __future__ import annotations

import io
import warnings
import zlib

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from cxrlab.core.errors import DataError

Array = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.bool_]

PNG_LEVEL = 1
PNG_START = b"\x89PNG\r\n\x1a\n"
# The largest radiograph detectors give about 20 megapixels; many times that is a mistake or an attack.
MOST_PIXELS = 150_000_000
_ROWS = 64


def encode_png(array: Array) -> bytes:
    """PNG bytes of an image; the same array gives the same bytes.

    Args:
        array: uint8 [H, W] grey or [H, W, 3] colour, uint16 [H, W] grey, or a bool [H, W] mask (one bit per pixel).
    """
    grey = array.ndim == 2
    colour = array.ndim == 3 and array.shape[2] == 3 and array.dtype == np.uint8
    if not (grey or colour) or 0 in array.shape:
        raise ValueError(f"encode_png takes [H, W] or uint8 [H, W, 3], not {array.dtype} {list(array.shape)}")
    if array.dtype not in (np.dtype(np.uint8), np.dtype(np.uint16), np.dtype(np.bool_)):
        raise ValueError(f"encode_png takes uint8, uint16 or bool, not {array.dtype}; use to_uint8 for [0, 1] floats")
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array)).save(buffer, "PNG", compress_level=PNG_LEVEL)
    return buffer.getvalue()


def encode_jpeg(array: Array, quality: int = 95) -> bytes:
    """Lossy JPEG bytes of uint8 [H, W] grey or [H, W, 3] colour; quality 1 to 95."""
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(array)).save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def decode(data: bytes, name: str) -> Array:
    """The pixels of PNG or JPEG bytes, as stored; errors call it `name`.

    uint8 [H, W] or [H, W, 3], uint16 [H, W] for 16-bit grey, bool [H, W] for 1-bit images. Palettes are resolved;
    transparency is laid over black, like an image without exposure; an EXIF rotation is not applied.
    """
    if data.startswith(PNG_START):
        _check_png(data, name)
    with open_picture(data, name) as picture:
        try:
            picture.load()
        except (OSError, SyntaxError, ValueError, EOFError) as error:
            raise DataError(f"{name} is damaged or cut short ({_reason(error)}); download or write it again.") from None
        return _pixels(picture, name)


def open_picture(data: bytes, name: str) -> Image.Image:
    """The header of PNG or JPEG bytes, pixels not yet decoded; other formats and decompression bombs are refused."""
    if not data:
        raise DataError(f"{name} is empty (0 bytes); download or write it again.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(data), formats=("PNG", "JPEG"))
    except UnidentifiedImageError:
        raise DataError(f"{name} is not a readable PNG or JPEG file; check what it is.") from None
    except Image.DecompressionBombError:
        raise DataError(_too_large(name)) from None
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{name} has a damaged header ({_reason(error)}); download or write it again.") from None
    if picture.width * picture.height > MOST_PIXELS:
        raise DataError(_too_large(name, picture.width, picture.height))
    return picture


def to_unit(array: Array) -> NDArray[np.float32]:
    """float32 in [0, 1]: uint8 divided by 255, uint16 by 65535, bool to 0 and 1."""
    most = {np.dtype(np.uint8): 255, np.dtype(np.uint16): 65535, np.dtype(np.bool_): 1}[array.dtype]
    return np.divide(array, np.float32(most), dtype=np.float32)


def to_uint8(array: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Round [0, 1] floats to 0…255; values outside are clipped, NaN is an error."""
    if not np.isfinite(array).all():
        raise ValueError("a picture holds NaN or infinite values")
    return np.asarray(np.rint(np.clip(array, 0.0, 1.0) * 255.0), dtype=np.uint8)


def _check_png(data: bytes, name: str) -> None:
    """Check every chunk: the image library silently accepts an image without its last rows."""
    at, kind = len(PNG_START), b""
    while kind != b"IEND":
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        end = at + 12 + length
        if end > len(data):
            raise DataError(f"{name} is cut short at {len(data)} bytes; download or write it again.")
        # An upper-case first letter marks what the picture needs; the rest is text and colour notes.
        if kind[:1].isupper() and zlib.crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            raise DataError(f"{name} is damaged (a checksum at byte {at} is wrong); download or write it again.")
        at = end


def _pixels(picture: Image.Image, name: str) -> Array:
    if picture.mode in ("1", "L", "RGB"):
        return np.asarray(picture)
    if picture.mode in ("I;16", "I;16B", "I;16L", "I"):
        # PNG has no deeper grey than 16 bits, so mode I cannot hold more here.
        return np.asarray(picture).astype(np.uint16)
    if picture.mode in ("CMYK", "YCbCr"):
        return np.asarray(picture.convert("RGB"))
    if picture.mode in ("P", "PA", "LA", "La", "RGBA", "RGBa"):
        laid = np.empty((picture.height, picture.width, 3), np.uint8)
        for top in range(0, picture.height, _ROWS):  # all at once it would take ten times the memory of the result
            part = picture.crop((0, top, picture.width, min(top + _ROWS, picture.height))).convert("RGBA")
            full = np.asarray(part, dtype=np.uint16)
            laid[top : top + _ROWS] = (full[..., :3] * full[..., 3:] + 127) // 255
        grey = (laid[..., 0] == laid[..., 1]).all() and (laid[..., 1] == laid[..., 2]).all()
        return laid[..., 0].copy() if grey else laid
    raise DataError(f"{name} is stored in an unsupported colour mode '{picture.mode}'; save it as grey or RGB.")


def _too_large(name: str, width: int = 0, height: int = 0) -> str:
    size = f"{width} x {height} pixels, more than" if width else "more pixels than"
    return f"{name} claims {size} the {MOST_PIXELS:,} that are allowed; it is not a radiograph, remove it."


def _reason(error: BaseException) -> str:
    return (str(error).strip().rstrip(".") or type(error).__name__).lower()
