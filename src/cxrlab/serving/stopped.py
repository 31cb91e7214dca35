"""The book of accounts that a guard has stopped: it outlives the server, and a person may strike an account out."""

from __future__ import annotations

import datetime
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import make_file

BOOK = "guard.sqlite"
VERSION = 1
_PATIENCE_S = 30.0
_TABLE = """
CREATE TABLE IF NOT EXISTS stopped (
    account TEXT PRIMARY KEY, at TEXT NOT NULL, why TEXT NOT NULL, pictures INTEGER NOT NULL) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Stop:
    """An account that is answered no more.

    Args:
        account: Its name.
        at: When it was stopped, UTC, ISO 8601 to the second.
        why: Detectors whose alarm rang.
        pictures: Pictures it had sent to this server since the server began, the last one included.
    """

    account: str
    at: str
    why: tuple[str, ...]
    pictures: int


class StopBook:
    """The file; threads may share it, and another process may read it and strike accounts out at the same time.

    Args:
        store: Folder of the guard; made when absent.
    """

    def __init__(self, store: Path) -> None:
        self.path = make_file(store / BOOK)
        self._lock = threading.Lock()
        with self._told():
            self._file = sqlite3.connect(self.path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
            # In one transaction: another process that opens the new file meets no table, or table and version.
            self._file.execute("BEGIN IMMEDIATE")
            version = self._file.execute("PRAGMA user_version").fetchone()[0]
            tables = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if version != VERSION and (version or tables):
                self._file.close()
                raise DataError(f"{self.path} is no book of stopped accounts that this program reads; move it away.")
            self._file.execute(_TABLE)
            self._file.execute(f"PRAGMA user_version = {VERSION}")
            self._file.execute("COMMIT")

    def __contains__(self, account: object) -> bool:
        with self._lock, self._told():
            row = self._file.execute("SELECT 1 FROM stopped WHERE account = ?", (str(account),)).fetchone()
        return row is not None

    def add(self, account: str, why: tuple[str, ...], pictures: int) -> None:
        """Stop an account; it is on file when this returns. The first entry of an account stays."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        with self._lock, self._told():
            self._file.execute(
                "INSERT OR IGNORE INTO stopped VALUES (?, ?, ?, ?)", (account, now, ", ".join(why), pictures)
            )

    def strike(self, account: str) -> bool:
        """Take an account out; whether it stood there."""
        with self._lock, self._told():
            return self._file.execute("DELETE FROM stopped WHERE account = ?", (account,)).rowcount > 0

    def stops(self) -> list[Stop]:
        """Every stopped account, the first one stopped first."""
        with self._lock, self._told():
            rows = self._file.execute("SELECT account, at, why, pictures FROM stopped ORDER BY at, account").fetchall()
        return [Stop(account, at, tuple(why.split(", ")), pictures) for account, at, why, pictures in rows]

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._file.close()

    def __enter__(self) -> StopBook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RunError(f"cannot use the book of stopped accounts {self.path}: {error}.") from error
        except sqlite3.Error as error:
            raise DataError(f"{self.path} is no book of stopped accounts ({error}); move it away.") from error
