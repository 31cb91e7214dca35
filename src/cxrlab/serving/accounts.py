"""Who asks: keys told by their hashes, and how often each account may come.

A key is 256 random bits, so that its plain hash tells nothing of it; keys themselves are kept nowhere.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cxrlab.extraction.defence.defended import ANYBODY
from cxrlab.serving.config import Allowance
from cxrlab.serving.refusals import Refused


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
            raise Refused(
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
            raise Refused(
                429,
                "rate_limited",
                f"this account may send {most:g} requests a minute; wait and come again.",
                retry_after=(1.0 - left) * 60.0 / most,
            )


def _key_in(headers: Mapping[str, str]) -> str:
    """The key of a request, by either header in use; empty where there is none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("api-key", "")
