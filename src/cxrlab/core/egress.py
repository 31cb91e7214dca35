"""Addresses of models (`http://HOST/v1#MODEL`), connection settings, and the checks before data leave this machine."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from cxrlab.core.errors import ConfigError
from cxrlab.core.terminal import terminal_safe

SCHEMES = ("http", "https")
_EXAMPLE = "http://127.0.0.1:8000/v1#MODEL"
_KEY_IN_QUERY = re.compile(r"((?:key|token|secret|password|signature|\bsig|\bcode)=)[^&#]*", re.I)


@dataclass(frozen=True)
class Address:
    """A model behind an address."""

    base: str  # Scheme, host and path, without a slash at the end
    query: str  # What follows `?` (`api-version=2026-06-01`), without the mark
    model: str  # The name of the model there

    def url(self, path: str) -> str:
        """The address of something below the base, such as `chat/completions`."""
        return f"{self.base}/{path}" + (f"?{self.query}" if self.query else "")


def is_address(name: str) -> bool:
    """Whether the name of a model is an address."""
    return name.partition(":")[0].strip().lower() in SCHEMES


def parse_address(name: str) -> Address:
    """The parts of an address; everything after the first `#` is the model.

    Ambiguous addresses and those with a login, which files would keep, raise a `ConfigError`.
    """
    base, _, model = name.strip().partition("#")
    try:
        parts = urlsplit(base)
        host = parts.hostname
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:  # such as a bracket without its partner, or a port of letters
        host, port_is_one = None, False
    if not is_address(base) or not host or not port_is_one:
        raise ConfigError(f"'{hide_credentials(name)}' is not the address of a model; write it as {_EXAMPLE}.")
    if "@" in parts.netloc or "\\" in base:
        raise ConfigError(
            f"'{hide_credentials(name)}' contains a login or a backslash; give the address alone and the key in the "
            "environment."
        )
    if _KEY_IN_QUERY.search(parts.query):
        raise ConfigError(
            f"'{hide_credentials(name)}' contains a key, which would be stored wherever the model is named; give the "
            "address alone and the key in the environment."
        )
    if not model.strip():
        raise ConfigError(f"'{hide_credentials(name)}' names no model; write its name after #, as in {_EXAMPLE}.")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return Address(f"{parts.scheme.lower()}://{parts.netloc}{path}", parts.query, model.strip())


def is_loopback(name: str) -> bool:
    """Whether an address unambiguously leads to this machine."""
    address = name.strip().partition("#")[0]
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return False
    # Programs differ on where the host begins or ends in other forms; ambiguous addresses are not trusted.
    plain = parts.netloc.lower() == (f"[{host}]" if ":" in host else host) + port
    if not plain or "@" in address or "\\" in address:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def hide_credentials(name: str) -> str:
    """The address with login and key replaced by ***, for messages."""
    scheme, mark, rest = name.partition("://")
    login, at, host = rest.rpartition("@")
    hidden = f"{scheme}{mark}***@{host}" if mark and at and login else name
    return _KEY_IN_QUERY.sub(r"\1***", hidden)


# Fields that do not change the answers. The egress permission is not among them: a resumed run must have the one in its
# settings, so that these record under which permission everything was sent.
OPERATIONAL_FIELDS = ("key_variable", "auth", "timeout_s", "tries", "concurrency", "allow_insecure")


@dataclass(frozen=True)
class Connection:
    """Settings of requests to a server; models on this machine ignore them.

    Args:
        key_variable: Environment variable that holds the API key, or several, separated by commas, between which the
            accounts of an audit alternate; keys are read from nowhere else and written nowhere.
        auth: How the key is sent: bearer, or api-key for Azure.
        timeout_s: Seconds without an answer after which a request is cancelled and tried again.
        tries: Maximum number of attempts per request; after 429 and 5xx the waiting time grows.
        concurrency: Maximum number of simultaneous requests.
        egress_permission: Who allowed patients' text and images to be sent to an address that is not on this machine,
            and why; kept with the run.
        allow_insecure: Also use plain http:// addresses of other machines: key, text and images are sent unencrypted.
    """

    key_variable: str = "CXRLAB_API_KEY"
    auth: Literal["bearer", "api-key"] = "bearer"
    timeout_s: float = 120.0
    tries: int = 5
    concurrency: int = 8
    egress_permission: str | None = None
    allow_insecure: bool = False

    def __post_init__(self) -> None:
        for name in ("tries", "concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number from 1.")
        if not 0 < self.timeout_s < float("inf"):
            raise ConfigError(f"timeout_s={self.timeout_s} is not usable; give seconds above 0.")
        if self.auth not in ("bearer", "api-key"):
            raise ConfigError(f"auth={self.auth!r} is unknown; choose bearer or api-key.")
        # Capitals only: a key given instead of its variable must not be stored in the run's settings.
        if not (self.key_variable.isidentifier() and self.key_variable.isupper()):
            raise ConfigError(
                "key_variable must be the NAME, in capitals, of an environment variable that holds the key, such as "
                "CXRLAB_API_KEY."
            )


def check_encrypted(name: str, connection: Connection, flag: str | None = "--loading.connection") -> None:
    """Raise a `ConfigError` when a model of another machine would be reached by plain http without `allow_insecure`.

    Args:
        flag: Where the user can allow it; `.allow-insecure` is appended. None for Python code.
    """
    plain = is_address(name) and name.strip().lower().startswith("http:") and not is_loopback(name)
    if plain and not connection.allow_insecure:
        allowed_by = f"{flag}.allow-insecure" if flag else "Connection(allow_insecure=True)"
        raise ConfigError(
            f"'{hide_credentials(name)}' would receive the key, the text and the images unencrypted; nothing was sent. "
            f"Use https://, or give {allowed_by} if nobody else uses the network in between."
        )


def connection_operational_fields(*prefixes: str) -> tuple[str, ...]:
    """Dotted names of the operational fields below each prefix (`loading.connection`), for `Run.open(operational=…)`."""
    return tuple(f"{prefix}.{name}" for prefix in prefixes for name in OPERATIONAL_FIELDS)


MIN_PERMISSION_WORDS = 3  # who and why take at least that many


@dataclass(frozen=True)
class EgressData:
    """Data that a model is going to receive."""

    name: str  # Its name in messages, such as the folder of a corpus
    synthetic: bool  # Whether its card states that it comes from no patient


def check_egress(
    model: str,
    data: Iterable[EgressData],
    permission: str | None,
    flag: str = "--loading.connection",
    *,
    has_run_folder: bool = True,
) -> None:
    """Return when all of this may be sent to a model; else raise a `ConfigError`, before anything connects.

    Args:
        permission: Who allowed it and why (`Connection.egress_permission`).
        flag: Where the user can give the permission; `.egress-permission` is appended.
        has_run_folder: Whether the permission is kept with a run; without that it does not count.
    """
    if not is_address(model) or is_loopback(model):
        return
    patients = ", ".join(one.name for one in data if not one.synthetic)
    if not patients or (is_valid_permission(permission) and has_run_folder):
        return
    if is_valid_permission(permission):
        raise ConfigError(
            f"the permission to send {patients} to '{hide_credentials(model)}' must be kept with the run, and there is "
            "no run folder; nothing was sent. Give a run folder with --out RUN."
        )
    raise ConfigError(
        f"'{hide_credentials(model)}' is not on this machine, and {patients} may hold patients' data (only a card with "
        "'synthetic: true' rules that out); nothing was sent. If it may be sent there, state who allowed it and why "
        f'with {flag}.egress-permission "WHO AND WHY" (at least {MIN_PERMISSION_WORDS} words), which is kept with the '
        "run."
    )


def check_sending(model: str, permission: str | None, *, synthetic: bool) -> None:
    """Return when a request may be sent to a model; else raise a `ConfigError`, before anything connects.

    Args:
        permission: Who allowed it and why (`Connection.egress_permission`).
        synthetic: Whether everything in the request is known to be synthetic.
    """
    if synthetic or is_valid_permission(permission) or (is_address(model) and is_loopback(model)):
        return
    raise ConfigError(
        f"'{hide_credentials(model)}' is not on this machine, and the request may hold patients' data; nothing was "
        'sent. If it may be sent there, state who allowed it and why: load_model(NAME, permission="WHO AND WHY") for '
        f'images, Connection(egress_permission="WHO AND WHY") for text (at least {MIN_PERMISSION_WORDS} words).'
    )


def all_synthetic(data: Iterable[EgressData]) -> bool:
    """Whether everything that a model receives is known to come from no patient; False for nothing."""
    known = [one.synthetic for one in data]
    return bool(known) and all(known)


def check_key_recipients(models: Iterable[str], key_variable: str) -> None:
    """Raise a `ConfigError` when the key of `key_variable` would be sent to servers of two other hosts."""
    away = [name for name in models if is_address(name) and not is_loopback(name)]
    hosts = sorted({urlsplit(parse_address(name).base).netloc for name in away})
    if len(hosts) > 1 and os.environ.get(key_variable, "").strip():
        raise ConfigError(
            f"the key in the environment variable {key_variable} would be sent to {' and to '.join(hosts)}, and it "
            "belongs to one of them; nothing was sent. Put each key into its own variable, or query each server in a run "
            "of its own (--llm.cache FILE shares answers of language models between runs)."
        )


def is_valid_permission(text: str | None) -> bool:
    """Whether a permission has enough words to name who gave it and why."""
    words = terminal_safe(text or "").split()
    return sum(any(letter.isalpha() for letter in word) for word in words) >= MIN_PERMISSION_WORDS
