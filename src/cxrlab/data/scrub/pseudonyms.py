"""Names that stand for identifiers: the same for the same identifier with the same key, telling nothing without it."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import RunError
from cxrlab.core.files import os_error, read_text

KEY = "pseudonyms.key"
_BYTES = 32
# Short values occur in paths by chance: a patient called 1 does not name every folder with a 1 in it, and one called
# Kim names only what is Kim from end to end.
SHORTEST, ANYWHERE = 2, 4


@dataclass(frozen=True)
class Pseudonyms:
    """A secret key, and what it makes of identifiers."""

    key: bytes

    def uid(self, uid: str) -> str:
        """A valid DICOM UID in the place of another."""
        return f"2.25.{int.from_bytes(self._mark('uid', uid, 16), 'big')}"

    def patient(self, patient: str) -> str:
        """A patient's number in the place of another."""
        return f"P{self._mark('patient', patient, 8).hex()}"

    def path(self, path: str, identifiers: tuple[str, ...]) -> str:
        """A relative path with every identifier in it replaced, in capitals or not.

        What was found is what is replaced, so that two files whose names differ in case keep names that differ.
        """
        ordered = sorted({one for one in identifiers if len(one) >= SHORTEST}, key=lambda one: (-len(one), one))
        if not ordered:
            return path
        either = "|".join(map(_pattern, ordered))
        return re.sub(either, lambda found: self._mark("name", found[0], 8).hex(), path, flags=re.IGNORECASE)

    def _mark(self, kind: str, value: str, size: int) -> bytes:
        text = f"{kind}\0{value}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, key=self.key, digest_size=size).digest()


def _pattern(value: str) -> str:
    whole = re.escape(value)
    return whole if len(value) >= ANYWHERE else rf"(?<![^\W_]){whole}(?![^\W_])"


def pseudonyms_in(folder: Path) -> Pseudonyms:
    """Those of a run: from its key where it has one, else with a new key, which only the user may read."""
    file = folder / KEY
    if not file.exists():
        try:
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as stream:
                stream.write(secrets.token_hex(_BYTES) + "\n")
        except OSError as error:
            raise os_error(error, file) from error
    try:
        key = bytes.fromhex(read_text(file).strip())
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise RunError(f"{file} is not a key of this program; delete the folder and start anew.")
    return Pseudonyms(key)
