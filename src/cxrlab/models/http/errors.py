"""What went wrong at an address, in one sentence; the server's own words are cut, cleaned and free of secrets."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from cxrlab.core.errors import RunError
from cxrlab.core.llm import replace_lone_surrogates
from cxrlab.core.terminal import terminal_safe

RETRIED = (408, 409, 429)  # besides 5xx
SPENT = ("quota_exhausted", "insufficient_quota")  # codes of 429 that waiting does not mend
_LONGEST = 200  # characters of a server's message
_MOST_READ = 2000  # characters of a server's message that are looked at
_ECHO = 16  # letters and digits in a row that a message shares with the request: a quotation
_SHORTEST = 4  # letters and digits of a request or of something in quotation marks, for it to be a quotation
_MOST_ESCAPES = 4  # escapes of escapes that are resolved
_KEY_PIECE = 8  # characters in a row of a key that are not repeated
_QUOTED = re.compile(r"[\"'`“‘«]([^\"'`”’»]+)[\"'`”’»]")
_NUMBER = re.compile(r"\d{4,}")  # such as the number of a patient
_ENCODED = re.compile(r"[A-Za-z0-9+/=]{24,}")  # an image, or a part of one


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


class EndpointUnreachable(EndpointError, ConnectionRefusedError):
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
        asked: The messages of the request, whose words must not be repeated either.
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
        return EndpointUnreachable(f"{where} was not asked: the work was stopped before.")
    last = failures[-1]
    told: dict[str, Any] = {"status": last.status, "code": last.code, "param": last.param, "said": last.said}
    if last.again:
        kind = EndpointUnreachable if all(one.refused for one in failures) else EndpointError
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
        return "send less at once: a shorter text, a smaller image"
    if 300 <= status < 400:
        return "it points elsewhere, which is not followed: give the address at which the model is"
    return "change what it objects to"


def cleaned(text: str, secrets: Iterable[str], asked: Any) -> str:
    """The first line of a server's words, cut, without control characters, keys and quotations of the request."""
    secrets = tuple(form for secret in secrets for form in _forms(secret))
    for secret in secrets:
        text = text.replace(secret, "***")
    line = terminal_safe(_unescaped(text[:_MOST_READ]).strip().partition("\n")[0])
    line = _without_quotations(" ".join(replace_lone_surrogates(line).split()), secrets, asked)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _forms(key: str) -> list[str]:
    """A key as it is, in hexadecimal, and as it stands in base64 wherever it begins ('user:KEY' of Basic)."""
    found = [key, key.encode().hex()]
    for ahead in range(3):
        whole = base64.b64encode(b"\0" * ahead + key.encode()).decode().rstrip("=")
        # Without the characters at both ends that depend on what stands beside the key.
        inner = whole[(0, 2, 3)[ahead] : -1]
        found += [inner, inner.replace("+", "-").replace("/", "_")]
    return [form for form in dict.fromkeys(found) if form == key or len(form) >= _KEY_PIECE]


def _unescaped(text: str) -> str:
    """The text with the escapes of JSON, HTML and addresses resolved: they would hide what is quoted."""
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)
    text = re.sub(r"\\[nrt]", " ", text)
    for _ in range(_MOST_ESCAPES):  # proxies escape what is escaped already
        text, before = html.unescape(unquote(text)), text
        if text == before:
            break
    return text.replace("\\", "")


def _without_quotations(line: str, secrets: Iterable[str], asked: Any) -> str:
    """The line with every key as `***`, and with everything from the first to the last quotation as `[removed]`."""
    for secret in secrets:
        pieces = (secret[start : start + _KEY_PIECE] for start in range(max(len(secret) - _KEY_PIECE + 1, 1)))
        line = _replaced(line, _places(line, pieces), "***")
    sent = [plain for text in _texts(asked) if (plain := _letters(text)[0])]
    plain, places = _letters(line)

    def place(start: int, length: int) -> tuple[int, int]:
        return places[start], places[start + length - 1] + 1

    windows = range(max(len(plain) - _ECHO + 1, 0))
    found = [place(at, _ECHO) for at in windows if any(plain[at : at + _ECHO] in text for text in sent)]
    short = {text for text in sent if _SHORTEST <= len(text) < _ECHO}
    found += [place(one.start(), len(text)) for text in short for one in re.finditer(text, plain)]
    for quoted in _QUOTED.finditer(line):
        words = _letters(quoted[1])[0]
        if len(words) >= _SHORTEST and any(words in text for text in sent):
            found.append(quoted.span(1))
    numbers = {number for text in _texts(asked) for number in _NUMBER.findall(text)}
    found += [number.span() for number in _NUMBER.finditer(line) if number[0] in numbers]
    found += [token.span() for token in _ENCODED.finditer(line) if re.search("[A-Z0-9]", token[0])]
    return _replaced(line, found, "[removed]", between=True)


def _letters(text: str) -> tuple[str, list[int]]:
    """Letters and digits of a text in lower case, and where in the text each of them stands."""
    found = [(letter, place) for place, letter in enumerate(text) for letter in letter.lower() if letter.isalnum()]
    return "".join(letter for letter, _ in found), [place for _, place in found]


def _places(line: str, pieces: Iterable[str]) -> list[tuple[int, int]]:
    return [found.span() for piece in pieces for found in re.finditer(re.escape(piece), line)]


def _replaced(line: str, spans: list[tuple[int, int]], mark: str, *, between: bool = False) -> str:
    """The line with the mark in place of each span; spans that touch, or all of them with `between`, are one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and (between or start <= joined[-1][1]):
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    for start, end in reversed(joined):
        line = line[:start] + mark + line[end:]
    return line


def _texts(asked: Any) -> Iterator[str]:
    """Every text in the messages of a request; of an image nothing is compared, since it is known by its letters."""
    for message in asked if isinstance(asked, list) else []:
        content = message.get("content")
        yield from [content] if isinstance(content, str) else (part["text"] for part in content if "text" in part)


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
