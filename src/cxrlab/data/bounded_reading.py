"""Reading files and archives that others made: a regular file, and no more bytes of it than fit in memory."""

from __future__ import annotations

import io
import os
import stat
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

from cxrlab.core.errors import DataError

MOST_BYTES = 1 << 30
# The longest report of any data set takes 20 KB.
MAX_REPORT_BYTES = 4 << 20
# An archive may unpack to this many bytes, or to `MAX_UNPACKING_RATIO` for each of its own where that is more.
# Tables and reports reach a ratio of about 20; deflate can reach 1,032.
MAX_UNPACKED_BYTES = 256 << 20
MAX_UNPACKING_RATIO = 200


def read_bounded(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """The bytes of a regular file of at most `most` bytes; a `DataError` for a pipe, a device or anything else."""
    file, most = Path(path), MOST_BYTES if most is None else most
    try:
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DataError(f"{file} is a folder, not a file; name the file itself.")
        if not stat.S_ISREG(mode):
            raise DataError(f"{file} is a pipe or a device, not a file; put the file itself there.")
        with file.open("rb") as stream:
            # Of the open file, which cannot be exchanged any more.
            size = os.fstat(stream.fileno()).st_size
            data = stream.read(most + 1) if size <= most else b""
    except FileNotFoundError:
        raise DataError(f"{file} does not exist; check the path or fetch the file.") from None
    except (OSError, ValueError) as error:  # a ValueError is a zero byte in the name
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{file} cannot be read ({why}); check its name, its permissions and the disk.") from None
    if size > most or len(data) > most:
        raise DataError(f"{file} is larger than {most:,} bytes, the most that is read of such a file; remove it.")
    if not data:
        raise DataError(f"{file} is empty (0 bytes); download or write it again.")
    return data


def max_unpacked_bytes(archive: Path) -> int:
    """Bytes that an archive may unpack to, by its own size."""
    return max(MAX_UNPACKED_BYTES, MAX_UNPACKING_RATIO * archive.stat().st_size)


class Unpacked(io.RawIOBase):
    """The unpacked bytes of an archive; a `DataError` above `most` bytes, or `most_at_once` in one read."""

    def __init__(self, stream: IO[bytes], archive: Path, most: int, most_at_once: int = 1 << 30) -> None:
        self._stream, self._archive, self._most, self._at_once = stream, archive, most, most_at_once

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size > self._at_once:
            raise DataError(f"{self._archive} holds an entry of {size:,} bytes, more than {self._at_once:,}; {_FETCH}")
        if size < 0:
            return self.readall()
        data = self._stream.read(size)
        self._check(self._stream.tell())
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place counted from the start; one beyond the limit is refused before anything is unpacked."""
        if whence != os.SEEK_SET:
            raise io.UnsupportedOperation("places are counted from the start")
        self._check(offset)
        return self._stream.seek(offset)

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        self._stream.close()
        super().close()

    def _check(self, place: int) -> None:
        if place > self._most:
            raise DataError(f"{self._archive} unpacks to more than {self._most:,} bytes; {_FETCH}")


def read_member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """One member of a zip file; a `DataError` where it is damaged, locked or unpacks to more than `most` bytes."""
    path, info = archive.filename, archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # The other methods cannot be unpacked piece by piece: some bytes become gigabytes in one call.
        raise DataError(f"{path} is locked or packed in an unusual way at {name}; unpack it first.")
    try:
        with archive.open(info) as stream:
            data = stream.read(most + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path} is damaged at {name} ({type(error).__name__}); fetch it again.") from None
    except (NotImplementedError, RuntimeError):
        raise DataError(f"{path} is locked or packed in an unusual way at {name}; unpack it first.") from None
    if len(data) > most:
        raise DataError(f"{path} holds {name}, which unpacks to more than {most:,} bytes; {_FETCH}")
    return data


_FETCH = "fetch it again from its source."
