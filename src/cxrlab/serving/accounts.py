"""Who asks: keys told by their hashes, and how often each account may come.

A key is 256 random bits, so that its plain hash tells nothing of it; keys themselves are kept nowhere.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cxrlab.core.config import read_yaml
from cxrlab.core.errors import ConfigError, did_you_mean, short_repr
from cxrlab.core.files import write_text
from cxrlab.core.folders import lock_file
from cxrlab.extraction.defence.defended import ANYBODY
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
