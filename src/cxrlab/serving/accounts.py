"""Accounts of a server: keys, rates, quotas, and the accounts that the guard has blocked."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError, DataError, RunError, did_you_mean, short_repr
from cxrlab.core.files import make_file, write_text
from cxrlab.core.folders import lock_file
from cxrlab.extraction.defence.base import ANYBODY
from cxrlab.serving.config import Allowance
from cxrlab.serving.errors import ApiError


@dataclass(frozen=True)
class Account:
    """Somebody who may ask.

    Args:
        name: As the books, the log and the guard call it.
        key_sha256: Hash of its key as hexadecimal digits; empty for who needs none.
        requests_per_minute: As in `Allowance`.
        answers_per_day: As in `Allowance`.
        answers_total: As in `Allowance`.
        requests_in_flight: As in `Allowance`.
    """

    name: str
    key_sha256: str = ""
    requests_per_minute: float | None = None
    answers_per_day: int | None = None
    answers_total: int | None = None
    requests_in_flight: int | None = None


def anybody(allowance: Allowance) -> Account:
    """The one account of a server without keys."""
    return Account(ANYBODY, **vars(allowance))


def hash_of(key: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class Accounts:
    """All accounts of a server.

    Args:
        accounts: Those with keys; none lets everybody in as `everybody`.
        everybody: Who asks where there are no keys.
    """

    def __init__(self, accounts: Iterable[Account], everybody: Account) -> None:
        self._keyed, self._everybody = tuple(accounts), everybody

    @property
    def open(self) -> bool:
        """Whether nobody needs a key."""
        return not self._keyed

    @property
    def names(self) -> list[str]:
        """Names of all accounts."""
        return [account.name for account in self._keyed or (self._everybody,)]

    def identify(self, headers: Mapping[str, str]) -> Account:
        """The account whose key a request carries; 401 where it carries none or a wrong one."""
        if not self._keyed:
            return self._everybody
        given = hash_of(_key_in(headers)).encode()
        found = None
        for account in self._keyed:  # all of them, so that the time tells nothing
            if hmac.compare_digest(given, account.key_sha256.encode()):
                found = account
        if found is None:
            raise ApiError(
                401,
                "invalid_api_key",
                "this server needs a key that it knows; send it as 'Authorization: Bearer KEY'.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return found


class Rates:
    """Token buckets, one an account: as many requests at once as in a minute, then one for each that has drained.

    Args:
        clock: Seconds; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, account: Account) -> None:
        """Count one request, or refuse it with the time after which the next is let in."""
        most = account.requests_per_minute
        if most is None:
            return
        size = max(1.0, most)
        with self._lock:
            now = self._clock()
            left, at = self._buckets.get(account.name, (size, now))
            left = min(size, left + (now - at) * most / 60.0)
            self._buckets[account.name] = (left - 1.0 if left >= 1.0 else left, now)
        if left < 1.0:
            raise ApiError(
                429,
                "rate_limited",
                f"this account may send {most:g} requests a minute; wait and come again.",
                retry_after=(1.0 - left) * 60.0 / most,
            )


def _key_in(headers: Mapping[str, str]) -> str:
    """The key of a request, by either header in use; empty where there is none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("api-key", "")


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NUMBERS = {
    "requests_per_minute": (int, float),
    "answers_per_day": (int,),
    "answers_total": (int,),
    "requests_in_flight": (int,),
}
_KEYS = ("key_sha256", *_NUMBERS)
PREFIX = "cxr-"  # so that a key is known for one where it was pasted by mistake


def new_key() -> str:
    """A key nobody can guess."""
    return PREFIX + secrets.token_urlsafe(32)


def add_account(file: Path, name: str) -> str:
    """Add an account with a new key to the file, which is made where it is not there; returns the key."""
    if not _NAME.fullmatch(name) or name == ANYBODY:
        raise ConfigError(
            f"'{name}' cannot name an account; use up to 64 letters, digits, dots, dashes and underscores, and not "
            f"'{ANYBODY}'."
        )
    with lock_file(file):  # until it is written: another process would add its account to the same old entries
        held = _entries(file) if file.exists() else {}
        if name in held:
            raise ConfigError(
                f"{file} has an account '{name}' already; choose another name, or take its entry out first."
            )
        key = new_key()
        entries = {**held, name: {"key_sha256": hash_of(key)}}
        write_text(file, yaml.safe_dump({"accounts": entries}, sort_keys=False, allow_unicode=True))
    return key


def read_accounts(file: Path, allowance: Allowance) -> list[Account]:
    """The accounts of a file, at least one.

    Args:
        file: The file.
        allowance: What holds for accounts that do not say otherwise.
    """
    found = [_account(file, name, values, allowance) for name, values in _entries(file).items()]
    if not found:
        raise ConfigError(f"{file} holds no account; make one with 'cxrlab serve key NAME --keys {file}'.")
    if len({account.key_sha256 for account in found}) < len(found):
        raise ConfigError(f"{file} gives the same key to two accounts; make a key for each.")
    return found


def _entries(file: Path) -> dict[str, Any]:
    values = read_yaml(file)[0]
    entries = values.get("accounts", {})
    for key in values:
        if key != "accounts":
            raise ConfigError(f"{file} has an unknown key {short_repr(key)}; everything stands under 'accounts:'.")
    if not isinstance(entries, dict):
        raise ConfigError(f"{file}: 'accounts' must be a group of accounts; see 'cxrlab serve key --help'.")
    return entries


def _account(file: Path, name: Any, values: Any, allowance: Allowance) -> Account:
    place = f"{file}: account {short_repr(name)}"
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(values, dict):
        raise ConfigError(f"{place} is no account; write its name and under it 'key_sha256: …'.")
    for key in values:
        if key not in _KEYS:
            raise ConfigError(f"{place} has an unknown key {short_repr(key)}.{did_you_mean(str(key), _KEYS)}")
    digest = values.get("key_sha256")
    if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ConfigError(f"{place} needs 'key_sha256', 64 hexadecimal digits; 'cxrlab serve key' writes it.")
    limits: dict[str, Any] = {}
    for key, kinds in _NUMBERS.items():
        value = values.get(key, getattr(allowance, key))
        right = value is None or (isinstance(value, kinds) and not isinstance(value, bool) and 0 < value < 2**62)
        if not right:
            raise ConfigError(f"{place}: {key} is {short_repr(value)}; give a number above 0, or null for no limit.")
        limits[key] = value
    return Account(name, digest, **limits)


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
