"""What may leave this machine: patients' text and films go to an address elsewhere only with leave that is recorded.

A corpus is taken for patients' data unless its card says that it is synthetic. Leave is recorded by standing in the
settings of the run (`config.yaml`) that sends.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cxrlab.core.addresses import is_address, is_loopback, without_login
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


def check_egress(model: str, shown: Iterable[Shown], leave: str | None, flag: str = "--loading.connection") -> None:
    """Return when a model may be shown all of these; else a `ConfigError`, before anything connects.

    Args:
        model: Its name, as the user wrote it.
        shown: What it will be shown.
        leave: Who allowed it and why (`Connection.may_leave`).
        flag: Where the user can say so; `.may-leave` is put behind it.
    """
    if not is_address(model) or is_loopback(model) or says_who_and_why(leave):
        return
    patients = [one.name for one in shown if not one.synthetic]
    if patients:
        raise ConfigError(
            f"'{without_login(model)}' is not on this machine, and {', '.join(patients)} may hold patients' data (a "
            "card that says 'synthetic: true' would deny it); nothing was sent. If it may go there, say who allowed it "
            f'and why with {flag}.may-leave "WHO AND WHY" (at least {FEWEST_WORDS} words), which is kept with the run.'
        )


def says_who_and_why(said: str | None) -> bool:
    """Whether a sentence of leave has at least the words that it takes to say who gave it and why."""
    words = harmless(said or "").split()
    return sum(any(letter.isalpha() for letter in word) for word in words) >= FEWEST_WORDS
