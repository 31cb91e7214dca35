"""The books of a server: answers that each account has had, day by day; a quota survives a restart.

Answers are booked before the model is asked and given back where it fails. What a killed server had booked stays
booked: it cannot know whether the answer went out.
"""

from __future__ import annotations

import datetime
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import make_file
from cxrlab.serving.accounts import Account
from cxrlab.serving.errors import ApiError

VERSION = 1
_TABLE = """CREATE TABLE IF NOT EXISTS answers (
    account TEXT NOT NULL, day TEXT NOT NULL, answers INTEGER NOT NULL CHECK (answers >= 0),
    PRIMARY KEY (account, day)) WITHOUT ROWID"""


def today() -> str:
    """The day in UTC, as ISO 8601."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


@dataclass(eq=False)
class Reservation:
    """Answers that a request asks for.

    Args:
        account: Who pays.
        answers: How many.
        day: The day that they were booked on; None while they are not.
    """

    account: Account
    answers: int
    day: str | None = None


class QuotaStore:
    """An open SQLite file; calls may come from any thread.

    Args:
        path: The file, made where it is not there.
        clock: Tells the day; for tests.
    """

    def __init__(self, path: Path, clock: Callable[[], str] = today) -> None:
        self.path, self._clock, self._lock = path, clock, threading.Lock()
        make_file(path)
        try:
            self._file = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
            version = self._file.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise DataError(f"{path} holds books of version {version}; this program reads version {VERSION}.")
            self._file.execute("PRAGMA journal_mode = WAL")
            # A booking outlives the process; only a power cut may lose the last ones, and answers do not wait for it.
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(_TABLE)
            self._file.execute(f"PRAGMA user_version = {VERSION}")
        except sqlite3.Error as error:
            raise RunError(f"cannot use the books {path} ({error}); give another folder with --out.") from error

    def reserve(self, booking: Reservation) -> None:
        """Book the answers, or refuse because a quota is used up."""
        account, day = booking.account, self._clock()
        with self._lock:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                today_s, total = self._used(account.name, day)
                _check(account.answers_per_day, today_s, booking.answers, "today")
                _check(account.answers_total, total, booking.answers, "altogether")
                self._file.execute(
                    "INSERT INTO answers VALUES (?, ?, ?) "
                    "ON CONFLICT (account, day) DO UPDATE SET answers = answers + excluded.answers",
                    (account.name, day, booking.answers),
                )
                self._file.execute("COMMIT")
            except BaseException:
                self._file.execute("ROLLBACK")
                raise
        booking.day = day

    def give_back(self, booking: Reservation) -> None:
        """Take a booking out again; one that was never made is passed over."""
        if booking.day is None:
            return
        with self._lock:
            self._file.execute(
                "UPDATE answers SET answers = MAX(0, answers - ?) WHERE account = ? AND day = ?",
                (booking.answers, booking.account.name, booking.day),
            )
        booking.day = None

    def used(self, account: str) -> tuple[int, int]:
        """Answers of an account: today, altogether."""
        with self._lock:
            return self._used(account, self._clock())

    def close(self) -> None:
        """Fold everything into the one file; closing twice is allowed."""
        with self._lock:
            self._file.close()

    def _used(self, account: str, day: str) -> tuple[int, int]:
        row = self._file.execute(
            "SELECT COALESCE(SUM(answers) FILTER (WHERE day = ?), 0), COALESCE(SUM(answers), 0) FROM answers "
            "WHERE account = ?",
            (day, account),
        ).fetchone()
        return int(row[0]), int(row[1])


def _check(most: int | None, used: int, wanted: int, when: str) -> None:
    if most is not None and used + wanted > most:
        raise ApiError(
            429,
            "quota_exhausted",
            f"this account has had {used:,} of its {most:,} answers {when}, and {wanted:,} more are asked for.",
        )


BOOK = "guard.sqlite"
_PATIENCE_S = 30.0
_TABLE_STOPPED = """
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


class BlockedAccounts:
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
            self._file.execute(_TABLE_STOPPED)
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

    def __enter__(self) -> BlockedAccounts:
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
