"""The secret of a watermark: read from a file or the environment, never from the command line, never written down."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_bytes

VARIABLE = "CXRLAB_WATERMARK_KEY"
LEAST = 16  # bytes


def load_key(file: Path | None) -> bytes:
    """The key: the content of a file without white space at its ends, else the environment variable.

    Args:
        file: The file; None takes `VARIABLE`.
    """
    if file is not None:
        key, place = read_bytes(file).strip(), str(file)
    else:
        key, place = os.environ.get(VARIABLE, "").strip().encode(), f"the environment variable {VARIABLE}"
    if not key:
        raise ConfigError(f"{place} holds no key; give key_file=FILE with at least {LEAST} random bytes.")
    if len(key) < LEAST:
        raise ConfigError(f"the key in {place} has {len(key)} bytes, which can be guessed; give at least {LEAST}.")
    return key


def fingerprint_of(key: bytes) -> str:
    """The sha256 of a key as hexadecimal digits: tells whether two runs had the same one."""
    return hashlib.sha256(b"watermark key:" + key).hexdigest()
