"""The file behind a ledger: its tables, how it is opened, and which of its openings are still alive.

While a ledger is open it has companions (`-wal`, `-shm`, and one small hidden file for each opening); closed by the
last, it is one file. Each opening holds a lock that the system lets go of when its process ends, however it ends: so
what a killed process had reserved is told from what a living one is asking.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import PRIVATE, make_file, os_error

PATIENCE_S = 60.0  # how long one writer waits for the others
VERSION = 1
# The units booked stand in `terms` and nowhere else; the file itself refuses one more than the budget.
_TABLES = """
CREATE TABLE IF NOT EXISTS terms (
    victim TEXT NOT NULL, budget INTEGER NOT NULL, remote INTEGER NOT NULL, per_query REAL NOT NULL,
    per_1k_tokens REAL NOT NULL, currency TEXT NOT NULL, opened_at TEXT NOT NULL,
    booked INTEGER NOT NULL DEFAULT 0, CHECK (booked BETWEEN 0 AND budget));
CREATE TABLE IF NOT EXISTS authorisations (said TEXT NOT NULL, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS openings (token TEXT PRIMARY KEY, at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS queries (
    number INTEGER PRIMARY KEY, round INTEGER NOT NULL, key TEXT NOT NULL, sha256 TEXT NOT NULL, account TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'open', 'settled')), attempts INTEGER NOT NULL, opening TEXT,
    report TEXT, refused INTEGER NOT NULL DEFAULT 0, tokens INTEGER, cost REAL NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0, cached INTEGER NOT NULL DEFAULT 0, reserved_at TEXT NOT NULL, settled_at TEXT);
CREATE INDEX IF NOT EXISTS by_picture ON queries (sha256);
CREATE TABLE IF NOT EXISTS failures (
    number INTEGER NOT NULL, attempt INTEGER NOT NULL, reason TEXT NOT NULL, counted INTEGER NOT NULL,
    at TEXT NOT NULL);
"""


def now() -> str:
    """This moment, UTC, as ISO 8601 to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def connect(path: Path) -> sqlite3.Connection:
    """The ledger at a path, made where it is not there, ready for several writers; every commit reaches the disk."""
    make_file(path)
    try:
        connection = _connection(f"{path.resolve().as_uri()}?mode=rwc")
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        raise unusable(path, error) from error
    if version not in (0, VERSION):
        connection.close()
        raise DataError(f"{path} is a ledger of version {version}; this program reads version {VERSION}.")
    return connection


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The ledger at a path as it is at this moment, for reading alone; a `DataError` where there is none."""
    if not path.is_file():
        raise DataError(f"{path} does not exist; name the ledger.sqlite of an extraction run.")
    connection = _connection(f"{path.resolve().as_uri()}?mode=ro")
    try:
        with transaction(connection, path, "DEFERRED"):
            if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                raise DataError(f"{path} is not a ledger that this program reads; name the ledger.sqlite of a run.")
            yield connection
    finally:
        connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path, kind: str = "IMMEDIATE") -> Iterator[None]:
    """All or nothing; IMMEDIATE for what writes, DEFERRED for what reads."""
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise unusable(path, error) from error
        raise


def make_tables(connection: sqlite3.Connection) -> None:
    """Make what is not there yet; call it inside a transaction."""
    for statement in _TABLES.split(";\n"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def leave(connection: sqlite3.Connection) -> None:
    """Close a connection; the last one folds the companions back into the file."""
    with contextlib.suppress(sqlite3.Error):  # refused while another has it open, whose turn it will be
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


def unusable(path: Path, error: sqlite3.Error) -> RunError | DataError:
    """One sentence for what SQLite could not do with a ledger."""
    reason = str(error).strip().rstrip(".") or type(error).__name__
    if isinstance(error, sqlite3.OperationalError):
        return RunError(f"cannot use the ledger {path}: {reason}.")
    return DataError(f"{path} is damaged or no ledger ({reason}); name the ledger.sqlite of a run, or another folder.")


class Presence:
    """The sign that one opening of a ledger is alive: a locked file beside it.

    Args:
        ledger: Path of the ledger.
    """

    def __init__(self, ledger: Path) -> None:
        self.token = secrets.token_hex(8)
        self._file = _sign(ledger, self.token)
        try:
            self._handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise os_error(error, self._file, "lock") from error

    def end(self) -> None:
        """Take the sign away; ending twice is allowed."""
        if self._handle >= 0:
            with contextlib.suppress(OSError):
                self._file.unlink()
            os.close(self._handle)
            self._handle = -1


def is_alive(ledger: Path, token: str) -> bool:
    """Whether the opening with this token still runs; the sign of a dead one is removed."""
    file = _sign(ledger, token)
    try:
        handle = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise os_error(error, file, "read") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        with contextlib.suppress(OSError):
            file.unlink()
        return False
    finally:
        os.close(handle)


def _sign(ledger: Path, token: str) -> Path:
    return ledger.parent / f".{ledger.name}.{token}.open"


def _connection(uri: str) -> sqlite3.Connection:
    # Transactions are begun by hand; threads take turns by a lock of the ledger.
    connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Readers and a writer side by side; another that is just coming or leaving is waited for."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal":
                return
            raise sqlite3.OperationalError("this file system cannot hold it, choose a folder on a local disk")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > limit:
                raise
        time.sleep(0.01)
