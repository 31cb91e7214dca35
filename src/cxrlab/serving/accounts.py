"""Accounts of a server: API keys, rate limits, quotas, and the accounts that the guard has blocked."""

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
from typing import Any

import yaml

from cxrlab.core.atomic_folders import lock_file
from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError, DataError, RunError, did_you_mean, short_repr
from cxrlab.core.files import make_file, write_text
from cxrlab.extraction.defence.base import ANONYMOUS
from cxrlab.serving.config import Allowance
from cxrlab.serving.errors import ApiError


@dataclass(frozen=True)
class Account:
    """An account with the hash of its key (empty if it needs none) and its limits, see `Allowance`."""

    name: str
    key_sha256: str = ""
    requests_per_minute: float | None = None
    answers_per_day: int | None = None
    answers_total: int | None = None
    requests_in_flight: int | None = None


def anonymous_account(allowance: Allowance) -> Account:
    """The one account of a server without keys."""
    return Account(ANONYMOUS, **vars(allowance))


def hash_of(key: str) -> str:
    """SHA-256 of a key, which is all that is stored."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


class Accounts:
    """All accounts of a server; without `accounts`, every client is `everybody` and needs no key."""

    def __init__(self, accounts: Iterable[Account], everybody: Account) -> None:
        self._keyed, self._everybody = tuple(accounts), everybody

    @property
    def open(self) -> bool:
        """Whether no key is needed."""
        return not self._keyed

    @property
    def names(self) -> list[str]:
        """Names of all accounts."""
        return [account.name for account in self._keyed or (self._everybody,)]

    def identify(self, headers: Mapping[str, str]) -> Account:
        """The account of a request's key; 401 for a missing or unknown key."""
        if not self._keyed:
            return self._everybody
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = hash_of(key.strip() if scheme.lower() == "bearer" else headers.get("api-key", "")).encode()
        found = None
        for account in self._keyed:  # in constant time
            if hmac.compare_digest(given, account.key_sha256.encode()):
                found = account
        if found is None:
            raise ApiError(
                401,
                "invalid_api_key",
                "the key is missing or unknown; send it as 'Authorization: Bearer KEY'.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return found


class Rates:
    """Token buckets, one per account, with the capacity of a minute; `clock` is for tests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, account: Account) -> None:
        """Count one request, or refuse it with the time until the next is allowed."""
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
                f"this account may send {most:g} requests per minute; wait and try again.",
                retry_after=(1.0 - left) * 60.0 / most,
            )


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NUMBERS = {
    "requests_per_minute": (int, float),
    "answers_per_day": (int,),
    "answers_total": (int,),
    "requests_in_flight": (int,),
}
_KEYS = ("key_sha256", *_NUMBERS)
PREFIX = "cxr-"  # makes keys recognisable if they are pasted by mistake


def new_key() -> str:
    """A random key."""
    return PREFIX + secrets.token_urlsafe(32)


def add_account(file: Path, name: str) -> str:
    """Add an account with a new key to a file, which is created if needed; returns the key."""
    if not _NAME.fullmatch(name) or name == ANONYMOUS:
        raise ConfigError(
            f"'{name}' is not a valid account name; use up to 64 letters, digits, dots, dashes and underscores, and not "
            f"'{ANONYMOUS}'."
        )
    with lock_file(file):
        existing = _entries(file) if file.exists() else {}
        if name in existing:
            raise ConfigError(f"{file} already has an account '{name}'; choose another name, or remove its entry.")
        key = new_key()
        entries = {**existing, name: {"key_sha256": hash_of(key)}}
        write_text(file, yaml.safe_dump({"accounts": entries}, sort_keys=False, allow_unicode=True))
    return key


def read_accounts(file: Path, allowance: Allowance) -> list[Account]:
    """The accounts of a file, at least one, with `allowance` as their default limits."""
    found = []
    for name, values in _entries(file).items():
        place = f"{file}: account {short_repr(name)}"
        if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(values, dict):
            raise ConfigError(f"{place} is not an account; write its name and under it 'key_sha256: …'.")
        for key in values:
            if key not in _KEYS:
                raise ConfigError(f"{place} has an unknown key {short_repr(key)}.{did_you_mean(str(key), _KEYS)}")
        digest = values.get("key_sha256")
        if not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise ConfigError(f"{place} needs 'key_sha256', 64 hexadecimal digits; 'cxrlab serve key' writes it.")
        limits: dict[str, Any] = {}
        for key, kinds in _NUMBERS.items():
            value = limits[key] = values.get(key, getattr(allowance, key))
            valid = value is None or (isinstance(value, kinds) and not isinstance(value, bool) and 0 < value < 2**62)
            if not valid:
                raise ConfigError(
                    f"{place}: {key} is {short_repr(value)}; give a number above 0, or null for no limit."
                )
        found.append(Account(name, digest, **limits))
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
            raise ConfigError(f"{file} has an unknown key {short_repr(key)}; the only one is 'accounts:'.")
    if not isinstance(entries, dict):
        raise ConfigError(f"{file}: 'accounts' must be a group of accounts; see 'cxrlab serve key --help'.")
    return entries


VERSION = 1
_TABLE = """CREATE TABLE IF NOT EXISTS answers (
    account TEXT NOT NULL, day TEXT NOT NULL, answers INTEGER NOT NULL CHECK (answers >= 0),
    PRIMARY KEY (account, day)) WITHOUT ROWID"""


def today() -> str:
    """The day in UTC, as ISO 8601."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


@dataclass(eq=False)
class Reservation:
    """A number of answers counted against an account's quotas on a day; None while they are not counted."""

    account: Account
    answers: int
    day: str | None = None


class QuotaStore:
    """Answers per account and day in an SQLite file, for any thread; `clock` gives the day, for tests."""

    def __init__(self, path: Path, clock: Callable[[], str] = today) -> None:
        self.path, self._clock, self._lock = path, clock, threading.Lock()
        make_file(path)
        try:
            self._file = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
            version = self._file.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise DataError(f"{path} holds quotas of version {version}; this program reads version {VERSION}.")
            self._file.execute("PRAGMA journal_mode = WAL")
            # Only a power cut may lose the last reservations; answers do not wait for the disk.
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(_TABLE)
            self._file.execute(f"PRAGMA user_version = {VERSION}")
        except sqlite3.Error as error:
            raise RunError(f"cannot use the quota file {path} ({error}); give another folder with --out.") from error

    def reserve(self, reservation: Reservation) -> None:
        """Count the answers, or refuse because a quota is used up."""
        account, day, answers = reservation.account, self._clock(), reservation.answers
        with self._lock:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                used_today, used = self._used(account.name, day)
                for most, count, when in (
                    (account.answers_per_day, used_today, "today"),
                    (account.answers_total, used, "in total"),
                ):
                    if most is not None and count + answers > most:
                        raise ApiError(
                            429,
                            "quota_exhausted",
                            f"this account has used {count:,} of its {most:,} answers {when} and requests "
                            f"{answers:,} more.",
                        )
                self._file.execute(
                    "INSERT INTO answers VALUES (?, ?, ?) "
                    "ON CONFLICT (account, day) DO UPDATE SET answers = answers + excluded.answers",
                    (account.name, day, answers),
                )
                self._file.execute("COMMIT")
            except BaseException:
                self._file.execute("ROLLBACK")
                raise
        reservation.day = day

    def give_back(self, reservation: Reservation) -> None:
        """Undo a reservation; one that was never made is ignored."""
        if reservation.day is None:
            return
        with self._lock:
            self._file.execute(
                "UPDATE answers SET answers = MAX(0, answers - ?) WHERE account = ? AND day = ?",
                (reservation.answers, reservation.account.name, reservation.day),
            )
        reservation.day = None

    def used(self, account: str) -> tuple[int, int]:
        """Answers of an account: today, in total."""
        with self._lock:
            return self._used(account, self._clock())

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        with self._lock:
            self._file.close()

    def _used(self, account: str, day: str) -> tuple[int, int]:
        row = self._file.execute(
            "SELECT COALESCE(SUM(answers) FILTER (WHERE day = ?), 0), COALESCE(SUM(answers), 0) FROM answers "
            "WHERE account = ?",
            (day, account),
        ).fetchone()
        return int(row[0]), int(row[1])


BLOCKED_FILE, BLOCKED_VERSION = "guard.sqlite", 2
_TIMEOUT_S = 30.0
_TABLE_BLOCKED = """
CREATE TABLE IF NOT EXISTS blocked (
    account TEXT PRIMARY KEY, at TEXT NOT NULL, why TEXT NOT NULL, pictures INTEGER NOT NULL) WITHOUT ROWID
"""


@dataclass(frozen=True)
class BlockedAccount:
    """An account that gets no more answers."""

    account: str
    at: str  # time of the block, UTC, ISO 8601
    why: tuple[str, ...]  # detectors that raised an alarm
    pictures: int  # images that it had sent since the server started, the last one included


class BlockedAccounts:
    """The blocked accounts, in a file of the guard's folder that threads and processes may share."""

    def __init__(self, store: Path) -> None:
        self.path = make_file(store / BLOCKED_FILE)
        self._lock = threading.Lock()
        with self._named_errors():
            self._file = sqlite3.connect(self.path, timeout=_TIMEOUT_S, isolation_level=None, check_same_thread=False)
            # In one transaction, so that another process finds no table, or both table and version.
            self._file.execute("BEGIN IMMEDIATE")
            version = self._file.execute("PRAGMA user_version").fetchone()[0]
            tables = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if version != BLOCKED_VERSION and (version or tables):
                self._file.close()
                raise DataError(f"{self.path} is not a file of blocked accounts of this version; move it away.")
            self._file.execute(_TABLE_BLOCKED)
            self._file.execute(f"PRAGMA user_version = {BLOCKED_VERSION}")
            self._file.execute("COMMIT")

    def __contains__(self, account: object) -> bool:
        with self._lock, self._named_errors():
            row = self._file.execute("SELECT 1 FROM blocked WHERE account = ?", (str(account),)).fetchone()
        return row is not None

    def add(self, account: str, why: tuple[str, ...], pictures: int) -> None:
        """Block an account; it is on disk when this returns. The first entry of an account is kept."""
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        with self._lock, self._named_errors():
            self._file.execute(
                "INSERT OR IGNORE INTO blocked VALUES (?, ?, ?, ?)", (account, now, ", ".join(why), pictures)
            )

    def remove(self, account: str) -> bool:
        """Unblock an account; whether it was blocked."""
        with self._lock, self._named_errors():
            return self._file.execute("DELETE FROM blocked WHERE account = ?", (account,)).rowcount > 0

    def entries(self) -> list[BlockedAccount]:
        """All blocked accounts, in the order of their blocks."""
        with self._lock, self._named_errors():
            rows = self._file.execute("SELECT account, at, why, pictures FROM blocked ORDER BY at, account").fetchall()
        return [BlockedAccount(account, at, tuple(why.split(", ")), pictures) for account, at, why, pictures in rows]

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._file.close()

    def __enter__(self) -> BlockedAccounts:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise RunError(f"cannot use the file of blocked accounts {self.path}: {error}.") from error
        except sqlite3.Error as error:
            raise DataError(f"{self.path} is not a file of blocked accounts ({error}); move it away.") from error
