"""Requests to any server of chat completions: patient with the server, silent about the key.

Keys come from the environment alone. They stand in no message, file or log; what a server says of them is struck
out. An address on this machine is reached without a proxy, and no redirect is followed anywhere.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any

from cxrlab.core.addresses import is_loopback, parse_address
from cxrlab.core.answer_store import writable
from cxrlab.core.connection import Connection, check_encrypted
from cxrlab.core.egress import check_sending
from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.install import require
from cxrlab.models.http.errors import Failure, cleaned, error_of, failure_of
from cxrlab.models.http.streamed import whole

if TYPE_CHECKING:
    import httpx

MOST_BYTES = 4 << 20  # of an answer; the longest report is a thousandth of it
LONGEST_WAIT_S = 60.0  # whatever a server asks for
_FIRST_WAIT_S, _MOST_BACK_OFF_S = 0.5, 30.0
_REASONS = ("stop", "length", "content_filter")  # why an answer ends, in the words of the protocol
_LONG_KEY = 16  # characters from which on a key cannot stand in an answer by chance


class ChatClient:
    """One model behind an address; threads may share it.

    Args:
        name: `http://HOST/v1#MODEL`.
        connection: Key, patience, the number of requests under way at once, and who allowed patients' data to be sent.
        synthetic: Whether everything that will be asked is known to be synthetic, so that no permission is needed.
        sleep: Waits so many seconds; for tests.
        chance: Uniform numbers in [0, 1) that spread the waiting; for tests.
    """

    def __init__(
        self,
        name: str,
        connection: Connection | None = None,
        *,
        synthetic: bool = False,
        sleep: Callable[[float], object] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        require("serve")
        self.name = name
        self.connection, self.synthetic = connection or Connection(), synthetic
        self.address = parse_address(name)
        check_encrypted(name, self.connection, None)
        self._keys = _keys(self.connection.key_variable)
        self._url = self.address.url("chat/completions")
        self._http = _opened(self._url, self.connection)
        self._slots = threading.BoundedSemaphore(self.connection.concurrency)
        self._sleep, self._chance = sleep, chance

    @property
    def keys(self) -> int:
        """How many keys the environment variable holds."""
        return len(self._keys)

    def ask(self, body: Mapping[str, Any], *, key: int = 0, stop: threading.Event | None = None) -> dict[str, Any]:
        """The completion that the server gives; it has at least one choice with a message.

        Args:
            body: The request without its model.
            key: Which of the keys asks, modulo their number.
            stop: Once set, nothing new is tried.

        Raises:
            ConfigError: Before anything is sent, to an address elsewhere without a permission.
            EndpointError: After the last try.
        """
        check_sending(self._url, self.connection.may_leave, synthetic=self.synthetic)
        sent = {"model": self.address.model, **body}
        headers = self._headers(key)
        content = json.dumps(sent).encode()
        failures: list[Failure] = []
        stop = stop or threading.Event()
        with self._slots:
            while len(failures) < self.connection.tries and not stop.is_set():
                found = self._try(content, headers, sent)
                if not isinstance(found, Failure):
                    return found
                failures.append(found)
                if not found.again:
                    break
                if len(failures) < self.connection.tries:
                    self._wait(found, len(failures), stop)
        raise error_of(self.name, failures, self.connection.key_variable, with_key=bool(self._keys))

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def _headers(self, key: int) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "cxrlab"}
        if self._keys:
            own = self._keys[key % len(self._keys)]
            by_bearer = self.connection.auth == "bearer"
            headers["Authorization" if by_bearer else "api-key"] = f"Bearer {own}" if by_bearer else own
        return headers

    def _try(self, content: bytes, headers: Mapping[str, str], sent: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """One request; no exception that holds it, and with it the key, leaves this function."""
        import httpx

        until = time.monotonic() + self.connection.timeout_s
        try:
            with self._http.stream("POST", self._url, content=content, headers=dict(headers)) as response:
                status, wait_s = response.status_code, _wait_of(response.headers.get("retry-after"))
                data = _read(response, until)
        except httpx.TimeoutException:
            return Failure(f"no answer within {self.connection.timeout_s:g} s")
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            why = cleaned(str(error), self._keys, sent["messages"]).rstrip(".")
            return Failure(why or type(error).__name__, refused=_refused(error))
        if data is None:
            return Failure(f"its answer ({status}) is longer than {MOST_BYTES >> 20} MiB", status=status)
        if status != 200:
            return failure_of(status, data, wait_s, self._keys, sent["messages"])
        secrets = [key for key in self._keys if len(key) >= _LONG_KEY]
        found = _completion(whole(data), secrets)
        if found is None:
            return Failure("its answer is no completion", status=status)
        choice = found["choices"][0]
        for holder, name in ((choice, "finish_reason"), (choice["message"], "refusal")):  # no part of the answer
            if isinstance(holder.get(name), str) and holder[name] not in _REASONS:
                holder[name] = cleaned(holder[name], self._keys, sent["messages"])
        return found

    def _wait(self, failure: Failure, tries: int, stop: threading.Event) -> None:
        """As long as the server asks for; else anything up to a limit that doubles, so that clients spread out."""
        longest = min(_FIRST_WAIT_S * 2.0 ** (tries - 1), _MOST_BACK_OFF_S)
        seconds = self._chance() * longest if failure.wait_s is None else min(failure.wait_s, LONGEST_WAIT_S)
        (stop.wait if self._sleep is None else self._sleep)(seconds)


def _keys(variable: str) -> tuple[str, ...]:
    """The keys in an environment variable, separated by commas; none where it is empty or not set."""
    found = tuple(key.strip() for key in os.environ.get(variable, "").split(",") if key.strip())
    if not all(key.isascii() and key.isprintable() and " " not in key for key in found):
        raise ConfigError(f"the environment variable {variable} holds a character that no key can have; set it anew.")
    return found


def _opened(url: str, connection: Connection) -> httpx.Client:
    import httpx

    here = is_loopback(url)
    try:
        read = httpx.URL(url)
        # Two programs that read one address in two ways would send patients' text where nobody looked.
        if here and not is_loopback(f"{read.scheme}://{read.netloc.decode('ascii')}"):
            raise ConfigError(f"'{url}' can be read in two ways; write the address of this machine plainly.")
        return httpx.Client(
            timeout=connection.timeout_s,
            verify=not here or read.scheme == "https",  # reading certificates takes longer than asking
            trust_env=not here,  # a proxy must not see what stays on this machine
            follow_redirects=False,
            limits=httpx.Limits(max_connections=connection.concurrency),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # of one key's answers nothing goes to another
        )
    except (httpx.InvalidURL, ValueError, ImportError) as error:
        if isinstance(error, httpx.InvalidURL):
            raise ConfigError(
                f"'{url}' is no address that can be asked; write it as http://HOST:PORT/v1#MODEL."
            ) from None
    # Its words may hold the proxy's login.
    raise RunError("the proxy that the environment names (HTTPS_PROXY, ALL_PROXY) cannot be used; set it anew.")


def _read(response: httpx.Response, until: float) -> bytes | None:
    """The body; None when it is longer than anybody answers."""
    import httpx

    if response.headers.get("content-encoding", "identity").lower() != "identity":
        # A few kilobytes that are unpacked, perhaps several times over, could fill the memory.
        raise httpx.DecodingError("its answer is compressed, which was not asked for")
    data = bytearray()
    for part in response.iter_raw():
        data += part
        if len(data) > MOST_BYTES:
            return None
        if time.monotonic() > until:
            raise httpx.ReadTimeout("")
    return bytes(data)


def _completion(data: bytes, secrets: Sequence[str]) -> dict[str, Any] | None:
    """The JSON of an answer if it is a completion with a message; keys are struck out of it."""
    try:
        found = _tidied(json.loads(data), secrets)
        message = found["choices"][0]["message"]
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    return found if isinstance(message, dict) else None


def _tidied(value: Any, secrets: Sequence[str]) -> Any:
    """What was read of an answer, with every text struck and writable: an escape hides a key until it is read."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
        return writable(value)
    if isinstance(value, list):
        return [_tidied(one, secrets) for one in value]
    if isinstance(value, dict):
        return {name: _tidied(one, secrets) for name, one in value.items()}
    return value


def _refused(error: BaseException) -> bool:
    """Whether nobody listened: at the bottom of what the library raised stands a `ConnectionRefusedError`."""
    seen: list[BaseException] = [error]
    for one in seen:
        if isinstance(one, ConnectionRefusedError):
            return True
        below = (one.__cause__, one.__context__, *one.args)
        seen += [cause for cause in below if isinstance(cause, BaseException) and cause not in seen]
    return False


def _wait_of(header: str | None) -> float | None:
    """Seconds that a Retry-After asks for, as a number or until a date; None where it cannot be read."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            until = parsedate_to_datetime(header)
        except (ValueError, OverflowError):  # the second for a time zone beyond all bounds
            return None
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        seconds = (until - datetime.now(UTC)).total_seconds()
        return max(seconds, 0.0)
    return seconds if 0 <= seconds < float("inf") else None
