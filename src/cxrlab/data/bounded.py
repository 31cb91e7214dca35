"""Reading files that others made: nothing but a regular file of a sane size, or a sentence."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from cxrlab.core.errors import DataError

MOST_BYTES = 1 << 30


def read_bounded(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """The bytes of a regular file, or a `DataError` that says why there are none.

    Args:
        path: The file; links are followed.
        most: Most bytes; one GiB by default.

    A pipe would wait for ever and a device such as /dev/zero never ends, so only regular files are
    opened, and no more than `most` bytes are read whatever the file claims.
    """
    file, most = Path(path), MOST_BYTES if most is None else most
    try:
        mode = file.stat().st_mode
        if stat.S_ISDIR(mode):
            raise DataError(f"{file} is a folder, not a file; name the file itself.")
        if not stat.S_ISREG(mode):
            raise DataError(f"{file} is a pipe or a device, not a file; put the file itself there.")
        with file.open("rb") as stream:
            # Asked of the open file, which nobody can exchange any more.
            size = os.fstat(stream.fileno()).st_size
            data = stream.read(most + 1) if size <= most else b""
    except FileNotFoundError:
        raise DataError(f"{file} does not exist; check the path or fetch the file.") from None
    except (OSError, ValueError) as error:  # a ValueError is a zero byte in the name
        why = getattr(error, "strerror", None) or error
        raise DataError(f"{file} cannot be read ({why}); check its name, its permissions and the disk.") from None
    if size > most or len(data) > most:
        raise DataError(f"{file} is larger than {most:,} bytes, which no film is; remove it.")
    if not data:
        raise DataError(f"{file} is empty (0 bytes); fetch or write it again.")
    return data
