"""How a model behind an address is asked, and who allowed patients' data to go there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cxrlab.core.addresses import is_address, is_loopback, without_login
from cxrlab.core.errors import ConfigError

# Fields that decide how often and how patiently somebody asks, not what is answered. The leave is none of them: a run
# that goes on needs the one that stands in its settings, so that those tell under which leave everything was sent.
WITHOUT_EFFECT = ("key_variable", "auth", "timeout_s", "tries", "concurrency", "allow_insecure")


@dataclass(frozen=True)
class Connection:
    """Settings of asking over a connection; models on this machine pass over them.

    Args:
        key_variable: Environment variable that holds the key, or several separated by commas, by which the accounts of
            an audit take turns; keys are read from nowhere else and written nowhere.
        auth: How the key is sent: bearer, or api-key as Azure wants it.
        timeout_s: Seconds without an answer after which a request is given up and tried again.
        tries: Most attempts at one request; after 429 and 5xx the next one waits, longer each time.
        concurrency: Requests under way at once.
        may_leave: Who allowed patients' text and images to be sent to an address that is not on this machine, and why;
            kept with the run.
        allow_insecure: Ask plain http:// addresses of other machines, too: key, text and images are sent unencrypted.
    """

    key_variable: str = "CXRLAB_API_KEY"
    auth: Literal["bearer", "api-key"] = "bearer"
    timeout_s: float = 120.0
    tries: int = 5
    concurrency: int = 8
    may_leave: str | None = None
    allow_insecure: bool = False

    def __post_init__(self) -> None:
        for name in ("tries", "concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is not usable; give a whole number from 1.")
        if not 0 < self.timeout_s < float("inf"):
            raise ConfigError(f"timeout_s={self.timeout_s} is not usable; give seconds above 0.")
        if self.auth not in ("bearer", "api-key"):
            raise ConfigError(f"auth={self.auth!r} is unknown; choose bearer or api-key.")
        # Capitals alone: a key that somebody gives in the place of its variable must not end in the run's settings.
        if not (self.key_variable.isidentifier() and self.key_variable.isupper()):
            raise ConfigError(
                "key_variable must be the NAME, in capitals, of an environment variable that holds the key, such as "
                "CXRLAB_API_KEY."
            )


def check_encrypted(name: str, connection: Connection, flag: str | None = "--loading.connection") -> None:
    """Return unless a model of another machine would be asked by plain http; else a `ConfigError`.

    Args:
        name: The model's name, as the user wrote it.
        connection: With `allow_insecure` such an address is allowed.
        flag: Where the user can allow it; `.allow-insecure` is put behind it. None for Python code.
    """
    if is_address(name) and name.strip().lower().startswith("http:") and not is_loopback(name):
        if not connection.allow_insecure:
            allowed_by = f"{flag}.allow-insecure" if flag else "Connection(allow_insecure=True)"
            raise ConfigError(
                f"'{without_login(name)}' would be sent the key, the text and the images unencrypted; nothing was "
                f"sent. Use https://, or give {allowed_by} if the network between is yours alone."
            )


def free_of(*prefixes: str) -> tuple[str, ...]:
    """Dotted names of the fields without effect below each prefix (`loading.connection`), for `Run.open(free=…)`."""
    return tuple(f"{prefix}.{name}" for prefix in prefixes for name in WITHOUT_EFFECT)
