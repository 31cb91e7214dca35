"""Addresses of models (`http://HOST/v1#MODEL`): their parts, and which of them lead to this machine."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from cxrlab.core.errors import ConfigError

SCHEMES = ("http", "https")
_EXAMPLE = "http://127.0.0.1:8000/v1#MODEL"
_KEY_IN_QUERY = re.compile(r"((?:key|token|secret|password|signature|\bsig|\bcode)=)[^&#]*", re.I)


@dataclass(frozen=True)
class Address:
    """A model behind an address.

    Args:
        base: Scheme, host and path, without a slash at its end; what is asked stands below it.
        query: What the address asks for after `?` (`api-version=2026-06-01`), without the mark; empty where there is
            none.
        model: The name of the model there.
    """

    base: str
    query: str
    model: str

    def url(self, path: str) -> str:
        """The address of something below the base, such as `chat/completions`."""
        return f"{self.base}/{path}" + (f"?{self.query}" if self.query else "")


def is_address(name: str) -> bool:
    """Whether the name of a model is an address."""
    return name.partition(":")[0].strip().lower() in SCHEMES


def parse_address(name: str) -> Address:
    """The parts of an address; everything after the first `#` is the model.

    What could be read in two ways, or would put a login into files that keep the name, is a `ConfigError`.
    """
    base, _, model = name.strip().partition("#")
    try:
        parts = urlsplit(base)
        host = parts.hostname
        port_is_one = parts.port is None or parts.port > 0
    except ValueError:  # such as a bracket without its partner, or a port of letters
        host, port_is_one = None, False
    if not is_address(base) or not host or not port_is_one:
        raise ConfigError(f"'{without_login(name)}' is not the address of a model; write it as {_EXAMPLE}.")
    if "@" in parts.netloc or "\\" in base:
        raise ConfigError(
            f"'{without_login(name)}' has a login or a backslash in it; give the address alone and the key in the "
            "environment."
        )
    if _KEY_IN_QUERY.search(parts.query):
        raise ConfigError(
            f"'{without_login(name)}' has a key in it, which would be written wherever the model is named; give the "
            "address alone and the key in the environment."
        )
    if not model.strip():
        raise ConfigError(
            f"'{without_login(name)}' does not say which model; write its name after #, as in {_EXAMPLE}."
        )
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return Address(f"{parts.scheme.lower()}://{parts.netloc}{path}", parts.query, model.strip())


def is_loopback(name: str) -> bool:
    """Whether an address leads to this machine and cannot be read in another way."""
    address = name.strip().partition("#")[0]
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return False
    # Programs differ on where the host begins or ends after these; what may be read in two ways is not trusted.
    plain = parts.netloc.lower() == (f"[{host}]" if ":" in host else host) + port
    if not plain or "@" in address or "\\" in address:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def without_login(name: str) -> str:
    """The address with a login, or a key, in it hidden, for messages."""
    scheme, mark, rest = name.partition("://")
    login, at, host = rest.rpartition("@")
    hidden = f"{scheme}{mark}***@{host}" if mark and at and login else name
    return _KEY_IN_QUERY.sub(r"\1***", hidden)
