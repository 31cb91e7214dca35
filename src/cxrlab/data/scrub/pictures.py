"""PNG and JPEG files: what they carry beside their pixels, and the same picture without it."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image, JpegImagePlugin

from cxrlab.core.codec import PNG_START, decode, encode_png, open_picture
from cxrlab.core.errors import DataError
from cxrlab.data.images import Picture

JPEG_START = b"\xff\xd8\xff"
_PNG_NEEDS = frozenset({"IHDR", "PLTE", "tRNS", "IDAT", "IEND", "gAMA", "cHRM", "sRGB", "sBIT", "bKGD", "pHYs"})
_APP0, _APP14, _COMMENT, _SCAN, _END = 0xE0, 0xEE, 0xFE, 0xDA, 0xD9
_JFIF = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
# Where coded pixels end: a mark that is neither a stuffed byte, a restart nor filling.
_NEXT_MARK = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")
_QUALITY = 95


def is_picture(data: bytes) -> bool:
    """Whether bytes begin like a PNG or JPEG file."""
    return data.startswith((PNG_START, JPEG_START))


def telling_parts(data: bytes, name: str) -> tuple[str, ...]:
    """Names of what a file carries beside its pixels: PNG chunks of text and time, JPEG notes, bytes after its end."""
    if data.startswith(PNG_START):
        chunks = list(_chunks(data))
        found = [kind for kind, _ in chunks if kind not in _PNG_NEEDS]
        after = bool(chunks) and chunks[-1][1] < len(data)
    else:
        segments = list(_segments(data, name))
        found = [_segment_name(mark, part) for mark, part, _ in segments if not _needed(mark, part)]
        after = segments[-1][2] < len(data)
    return tuple(dict.fromkeys([*found, *(["bytes after the end"] if after else [])]))


def clean_picture(data: bytes, name: str, pixels: Picture | None = None) -> bytes:
    """The same picture, in the same format, with nothing beside its pixels.

    Args:
        data: The file.
        name: What to call it in an error.
        pixels: Other pixels of the same shape; None keeps those of the file.

    The file is written anew from what it shows: a palette becomes colours, and what is transparent becomes black.
    A JPEG is coded with its own tables, which moves a pixel by a step here and there; its old stream is not kept,
    since tables that nothing uses and the end of the coded pixels can hold anything.
    """
    pixels = decode(data, name) if pixels is None else pixels
    if data.startswith(PNG_START):
        return encode_png(pixels)
    with open_picture(data, name) as source:
        how: dict[str, Any] = {"quality": _QUALITY}
        if isinstance(source, JpegImagePlugin.JpegImageFile) and source.mode in ("L", "RGB"):
            sampling = JpegImagePlugin.get_sampling(source)
            tables = [source.quantization[number] for number in sorted({layer[3] for layer in source.layer})]
            how = {"qtables": tables, **({"subsampling": sampling} if sampling >= 0 else {})}
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "JPEG", **how)
    return buffer.getvalue()


def _chunks(data: bytes) -> Iterator[tuple[str, int]]:
    """Kind and end of each chunk of a PNG file up to its last; damage ends the walk."""
    at, kind = len(PNG_START), ""
    while kind != "IEND" and at + 12 <= len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8].decode("latin-1")
        at += 12 + length
        yield kind, at


def _segments(data: bytes, name: str) -> Iterator[tuple[int, bytes, int]]:
    """Mark, bytes and end of each part of a JPEG file after its first mark; coded pixels go with the mark before."""
    at = 2
    while at + 2 <= len(data):
        mark = data[at + 1]
        if data[at] != 0xFF:
            break
        if mark == _END:
            yield mark, data[at : at + 2], at + 2
            return
        if mark == 0xFF:
            at += 1
            continue
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if mark == _SCAN:
            following = _NEXT_MARK.search(data, end)
            end = following.start() if following else len(data)
        yield mark, data[at:end], end
        at = end
    raise DataError(f"{name} is damaged or cut short; fetch or write it again.")


def _needed(mark: int, part: bytes) -> bool:
    if mark == _APP0:
        return part[4:9] == b"JFIF\0" and len(part) == len(_JFIF)
    if mark == _APP14:
        return part[4:9] == b"Adobe" and len(part) == 16
    return not (0xE0 <= mark <= 0xEF or mark == _COMMENT)


def _segment_name(mark: int, part: bytes) -> str:
    if mark == _COMMENT:
        return "comment"
    if part[4:10] == b"Exif\0\0":
        return "EXIF"
    return "thumbnail" if mark == _APP0 else f"APP{mark - 0xE0}"
