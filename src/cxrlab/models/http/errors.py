"""What went wrong at an address, in one sentence; the server's own words are cut, cleaned and free of secrets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cxrlab.core.answer_store import writable
from cxrlab.core.errors import RunError
from cxrlab.core.streams import harmless

RETRIED = (408, 409, 429)  # besides 5xx
SPENT = ("quota_exhausted", "insufficient_quota")  # codes of 429 that waiting does not mend
_LONGEST = 200  # characters of a server's message
_ECHO = 30  # characters in a row that a message and the request share: the server repeats what it was sent


class EndpointError(RunError):
    """A model behind an address that gave no answer.

    Args:
        sentence: For the user.
        status: HTTP status; None where there was none.
        code: The server's name for the error; empty where it gives none.
        param: The parameter of the request that the server blames; empty where it blames none.
        said: The server's own words, cleaned; empty where it said nothing that may be repeated.
    """

    def __init__(
        self, sentence: str, *, status: int | None = None, code: str = "", param: str = "", said: str = ""
    ) -> None:
        super().__init__(sentence)
        self.status, self.code, self.param, self.said = status, code, param, said


class NobodyThere(EndpointError, ConnectionRefusedError):
    """No try got a connection: nothing was asked, and nothing can have cost anything."""


@dataclass(frozen=True)
class Failure:
    """One try that failed.

    Args:
        what: What happened, as a clause.
        again: Whether another try may help.
        wait_s: Seconds that the server asks to wait; None where it does not say.
        refused: Whether nobody listened at the address.
        status: HTTP status; None where there was none.
        code: The server's name for the error.
        param: The parameter that it blames.
        said: Its words, cleaned.
    """

    what: str
    again: bool = True
    wait_s: float | None = None
    refused: bool = False
    status: int | None = None
    code: str = ""
    param: str = ""
    said: str = ""


def failure_of(status: int, data: bytes, wait_s: float | None, secrets: Iterable[str], asked: Any) -> Failure:
    """What an answer other than a completion means.

    Args:
        status: HTTP status.
        data: The body.
        wait_s: Seconds that the server asks to wait.
        secrets: Keys, which must not be repeated.
        asked: The request, whose words must not be repeated either.
    """
    code, param, message = _parts(data)
    said = cleaned(message, secrets, asked)
    again = (status in RETRIED or status >= 500) and code not in SPENT
    what = f"it answered {status}" + (f" ({said.rstrip('.')})" if said else "")
    code, param = (cleaned(text, secrets, asked) for text in (code, param))
    return Failure(what, again, wait_s, status=status, code=code, param=param, said=said)


def error_of(where: str, failures: list[Failure], key_variable: str, *, with_key: bool) -> EndpointError:
    """The error after the last try.

    Args:
        where: The model's name.
        failures: Every try; none where somebody said stop before the first.
        key_variable: Environment variable of the key.
        with_key: Whether there was a key in it.
    """
    if not failures:
        return NobodyThere(f"{where} was not asked: the work was stopped before.")
    last = failures[-1]
    told: dict[str, Any] = {"status": last.status, "code": last.code, "param": last.param, "said": last.said}
    if last.again:
        kind = NobodyThere if all(one.refused for one in failures) else EndpointError
        tries = "1 try" if len(failures) == 1 else f"{len(failures)} tries"
        return kind(
            f"{where} gave no answer in {tries}: {last.what}; see that the server runs, and give the same command "
            "again to go on.",
            **told,
        )
    return EndpointError(f"{where} cannot be asked: {last.what}; {_remedy(last, key_variable, with_key)}.", **told)


def _remedy(last: Failure, key_variable: str, with_key: bool) -> str:
    status = last.status or 0
    if last.code in SPENT:
        return "the quota of this key is used up: raise it, and give the same command again to go on"
    if status == 401 or (status == 403 and not with_key):
        verb = "check the key in" if with_key else "put the key into"
        return f"{verb} the environment variable {key_variable}"
    if status == 403:
        return "the server declines; ask whoever runs it"
    if status == 404:
        return "check the address and the name of the model after #"
    if status == 413:
        return "send less at once: a shorter text, a smaller film"
    if 300 <= status < 400:
        return "it points elsewhere, which is not followed: give the address at which the model is"
    return "change what it objects to"


def cleaned(text: str, secrets: Iterable[str], asked: Any) -> str:
    """The first line of a server's words, cut, without control characters, keys and parts of the request."""
    text = writable(text)
    for secret in secrets:
        text = text.replace(secret, "***")
    line = " ".join(harmless(text.strip().partition("\n")[0]).split())
    if _repeats(line, asked):
        return ""
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _repeats(line: str, asked: Any) -> bool:
    sent = [" ".join(text.split()) for text in _texts(asked)]
    windows = (line[start : start + _ECHO] for start in range(max(len(line) - _ECHO + 1, 0)))
    return any(window in text for window in windows for text in sent)


def _texts(asked: Any) -> Iterator[str]:
    """Every text in the messages of a request."""
    if isinstance(asked, str):
        yield asked
    elif isinstance(asked, dict):
        yield from _texts(list(asked.values()))
    elif isinstance(asked, list):
        for one in asked:
            yield from _texts(one)


def _parts(data: bytes) -> tuple[str, str, str]:
    """Code, blamed parameter and message of an error, in the forms that servers use; empty where there is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        text = data[:4000].decode("utf-8", "replace").strip()
        return "", "", "" if text.startswith("<") else text  # a page for browsers says nothing in its first line
    if not isinstance(found, dict):
        return "", "", ""
    told = found.get("error", found.get("detail", found))
    if isinstance(told, list) and told and isinstance(told[0], dict):  # a list of what a validator objects to
        place = told[0].get("loc")
        blamed = str(place[-1]) if isinstance(place, list) and place else ""
        return _text(told[0].get("type")), blamed, f"{blamed}: {_text(told[0].get('msg'))}"
    if isinstance(told, dict):
        code = _text(told.get("code")) or _text(told.get("type"))
        return code, _text(told.get("param")), _text(told.get("message"))
    return "", "", _text(told)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def names(text: str, word: str) -> bool:
    """Whether a text holds a parameter's name as a word of its own."""
    return re.search(rf"\b{re.escape(word)}\b", text) is not None
