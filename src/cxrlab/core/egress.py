"""Data egress: patients' text and images go to an address elsewhere only with a permission that is recorded.

A corpus is taken for patients' data unless its card says that it is synthetic. The permission is recorded in the
settings of the run (`config.yaml`) that sends. Commands check before anything is opened (`check_egress`); the HTTP
client checks again before each request (`check_sending`) and refuses by default, so that a command without a check, or
Python code, sends nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from cxrlab.core.addresses import is_address, is_loopback, parse_address, without_login
from cxrlab.core.errors import ConfigError
from cxrlab.core.streams import harmless

FEWEST_WORDS = 3  # who and why cannot be said in fewer


@dataclass(frozen=True)
class Shown:
    """Something that a model is going to be shown.

    Args:
        name: What a message calls it, such as the folder of a corpus.
        synthetic: Whether no patient is behind it; only a card that says so makes it true.
    """

    name: str
    synthetic: bool


def check_egress(
    model: str, shown: Iterable[Shown], leave: str | None, flag: str = "--loading.connection", *, kept: bool = True
) -> None:
    """Return when a model may be shown all of these; else a `ConfigError`, before anything connects.

    Args:
        model: Its name, as the user wrote it.
        shown: What it will be shown.
        leave: Who allowed it and why (`Connection.may_leave`).
        flag: Where the user can say so; `.may-leave` is put behind it.
        kept: Whether there is a run folder, in whose settings the leave stands; without one there is no leave.
    """
    if not is_address(model) or is_loopback(model):
        return
    patients = [one.name for one in shown if not one.synthetic]
    if patients and says_who_and_why(leave) and not kept:
        raise ConfigError(
            f"who allowed {', '.join(patients)} to go to '{without_login(model)}' is kept with the run, and nothing is "
            "kept here; nothing was sent. Give a run folder with --out RUN."
        )
    if patients and not says_who_and_why(leave):
        raise ConfigError(
            f"'{without_login(model)}' is not on this machine, and {', '.join(patients)} may hold patients' data (a "
            "card that says 'synthetic: true' would deny it); nothing was sent. If it may go there, say who allowed it "
            f'and why with {flag}.may-leave "WHO AND WHY" (at least {FEWEST_WORDS} words), which is kept with the run.'
        )


def check_sending(model: str, permission: str | None, *, synthetic: bool) -> None:
    """Return when a request may be sent to a model; else a `ConfigError`, before anything connects.

    Args:
        model: Its name, as the user wrote it.
        permission: Who allowed it and why (`Connection.may_leave`).
        synthetic: Whether everything that the model is asked is known to be synthetic.
    """
    if synthetic or says_who_and_why(permission) or (is_address(model) and is_loopback(model)):
        return
    raise ConfigError(
        f"'{without_login(model)}' is not on this machine, and what it is asked may hold patients' data; nothing was "
        'sent. If it may go there, say who allowed it and why: load_model(NAME, permission="WHO AND WHY") for images, '
        f'Connection(may_leave="WHO AND WHY") for text (at least {FEWEST_WORDS} words).'
    )


def all_synthetic(shown: Iterable[Shown]) -> bool:
    """Whether it is known of everything that a model is shown that no patient is behind it; False for nothing."""
    known = [one.synthetic for one in shown]
    return bool(known) and all(known)


def check_one_keeper(models: Iterable[str], key_variable: str) -> None:
    """Return unless one key would be sent to servers of two hosts elsewhere; else a `ConfigError` without the key.

    Args:
        models: Names of everything that is asked with it, as the user wrote them.
        key_variable: The environment variable that holds the key (`Connection.key_variable`).
    """
    away = [name for name in models if is_address(name) and not is_loopback(name)]
    hosts = sorted({urlsplit(parse_address(name).base).netloc for name in away})
    if len(hosts) > 1 and os.environ.get(key_variable, "").strip():
        raise ConfigError(
            f"the key in the environment variable {key_variable} would be sent to {' and to '.join(hosts)}, and it is "
            "for one of them; nothing was sent. Put each key into a variable of its own, or ask each server in a run "
            "of its own (--asking.cache FILE brings answers of language models together)."
        )


def says_who_and_why(said: str | None) -> bool:
    """Whether a sentence of leave has at least the words that it takes to say who gave it and why."""
    words = harmless(said or "").split()
    return sum(any(letter.isalpha() for letter in word) for word in words) >= FEWEST_WORDS
