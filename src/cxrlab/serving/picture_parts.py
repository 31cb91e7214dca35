"""The parts of a PNG or JPEG file, before the picture library sees them.

It walks through them one by one, in Python, and keeps most of them: millions of empty ones would hold a thread for
half a minute and take hundreds of megabytes, from one request of the usual length.
"""

from __future__ import annotations

from collections.abc import Iterator

from cxrlab.core.codec import PNG_START
from cxrlab.core.errors import DataError
from cxrlab.serving.refusals import Refused, too_large

_JPEG_START = b"\xff\xd8\xff"
_SCAN = 0xDA
# Everything that may stand before the first scan and says how long it is.
_SEGMENTS = frozenset({*range(0xC0, 0xD0), *range(0xDB, 0xF0), 0xFE} - {0xC8})
# Camera, colour profile, thumbnails, comments: no pixel depends on them. JFIF (E0) and Adobe (EE) say what colours are.
_NOTES = frozenset({*range(0xE1, 0xF0), 0xFE} - {0xEE})


def lean(data: bytes, name: str, most: int) -> bytes:
    """The same picture: a JPEG without its notes, anything else as it is.

    Args:
        data: The whole file.
        name: What to call it in an error.
        most: Most chunks of a PNG; most segments before the first scan of a JPEG, filling bytes included.

    Raises:
        Refused: Where there are more parts.
        DataError: For a JPEG whose head is damaged.
    """
    if data.startswith(PNG_START):
        for count, _ in enumerate(_chunks(data)):
            if count >= most:
                raise _too_many(most)
    elif data.startswith(_JPEG_START):
        return _without_notes(data, name, most)
    return data


def _chunks(data: bytes) -> Iterator[int]:
    at, kind = len(PNG_START), b""
    while kind != b"IEND" and at < len(data):
        yield at
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        at += 12 + length


def _without_notes(data: bytes, name: str, most: int) -> bytes:
    kept, at = [data[:2]], 2
    for _ in range(most):
        if at + 4 > len(data):
            raise _damaged(name)
        mark, kind = data[at], data[at + 1]
        if mark != 0xFF or kind in (0x00, 0xFF):  # filling, which readers pass over
            at += 2 if (mark, kind) == (0xFF, 0x00) else 1
            continue
        if kind == _SCAN:
            return b"".join([*kept, data[at:]])
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if kind not in _SEGMENTS or not at + 4 <= end <= len(data):
            raise _damaged(name)
        if kind not in _NOTES:
            kept.append(data[at:end])
        at = end
    raise _too_many(most)


def _damaged(name: str) -> DataError:
    return DataError(f"{name} is damaged or cut short before its first scan; fetch or write it again.")


def _too_many(most: int) -> Refused:
    return too_large(f"the picture is made of more than {most:,} parts; save it anew.", "messages")
