"""A client for the chat-completions protocol: one request, its retries, and one clear error."""

from __future__ import annotations

import base64
import html
import json
import os
import queue
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from cxrlab.core.endpoints import Connection, check_encrypted, check_sending, is_loopback, parse_address
from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.llm import PROMPT_TOKENS, replace_lone_surrogates
from cxrlab.core.protocols import CAUTIONS, Generated
from cxrlab.core.terminal import terminal_safe
from cxrlab.models.decoding import TRUNCATED

if TYPE_CHECKING:
    import httpx

FINISH_REASON = "finish_reason"  # of an answer without a word: why the server stopped
REFUSAL = "refusal"  # words that a server keeps apart from the answer because they decline to give one
UNHEEDED = "unheeded"  # settings that the server does not know, so that the answer need not be the same next time
FILTERED = "content_filter"  # code and finish reason of what a provider's filter stopped
OBJECTIONS = (FILTERED, "invalid_prompt")  # codes of a refusal of one prompt for what it says; the second is OpenAI's
_MOST_TOKENS = 10**9  # of one question or answer; a server that counts more cannot count
_LONGER_NAME = {"max_tokens": "max_completion_tokens"}
_UNSUPPORTED = re.compile(r"unsupported|not support|not permitted|unrecogni[sz]ed|unknown|extra_forbidden", re.I)


class Chat:
    """Asks a server and remembers which settings it knows.

    Args:
        client: What sends.
    """

    def __init__(self, client: ChatClient) -> None:
        self.client = client
        # Setting → its name at this server; None where it has none. Threads may all find out the same at once.
        self._known: dict[str, str | None] = {name: name for name in ("temperature", "seed", "max_tokens")}

    def ask(
        self,
        content: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        seed: int,
        key: int = 0,
        stop: threading.Event | None = None,
    ) -> Generated:
        """The answer to one message of a user.

        Args:
            content: A text, or parts of text and pictures.
            max_tokens: Longest answer.
            seed: For servers that draw.
            key: Which of the keys asks.
            stop: Once set, nothing new is tried.
        """
        messages = [{"role": "user", "content": content}]
        values = {"temperature": 0, "seed": seed, "max_tokens": max_tokens}
        while True:
            known = dict(self._known)
            settings = {name: values[own] for own, name in known.items() if name is not None}
            try:
                found = self.client.ask({"messages": messages, **settings}, key=key, stop=stop)
            except EndpointError as error:
                if not self._adapt(error, known):
                    raise
                continue
            return answer_of(found, [name for name in ("temperature", "seed") if known[name] is None])

    def _adapt(self, error: EndpointError, known: Mapping[str, str | None]) -> bool:
        """Whether the server objected to a setting that can be named otherwise or left out; each but once."""
        if error.status not in (400, 422):
            return False
        for own, name in known.items():
            blamed = name is not None and (error.param == name or names(error.said, name))
            if name is None or not blamed or not _UNSUPPORTED.search(f"{error.code} {error.said}"):
                continue
            longer = _LONGER_NAME.get(own)
            if longer is None:
                self._known[own] = None
                return True
            if name != longer and names(error.said, longer):
                self._known[own] = longer
                return True
        return False


def answer_of(found: Mapping[str, Any], unheeded: Sequence[str] = ()) -> Generated:
    """The answer in a completion: its words, or none and the reason; never words that the server did not give.

    Args:
        found: The JSON of a completion with at least one choice.
        unheeded: Settings that the server does not know.
    """
    choice = found["choices"][0]
    message, reason = choice["message"], choice.get("finish_reason")
    text = _text(message.get("content"))
    usage = found.get("usage")
    counted = usage if isinstance(usage, dict) else {}
    extra: dict[str, Any] = {}
    if (asked := _count(counted.get("prompt_tokens"))) is not None:
        extra[PROMPT_TOKENS] = asked
    if reason == "length" or (reason == FILTERED and text):  # a filter may stop an answer in the middle
        extra[TRUNCATED] = True
    if not text:
        extra[FINISH_REASON] = reason if isinstance(reason, str) else None
    if isinstance(message.get("refusal"), str) and message["refusal"].strip():
        extra[REFUSAL] = message["refusal"].strip()
    if isinstance(told := found.get(CAUTIONS), list) and (said := [one for one in told if isinstance(one, str)]):
        extra[CAUTIONS] = said
    if unheeded:
        extra[UNHEEDED] = list(unheeded)
    return Generated(text, tokens=_count(counted.get("completion_tokens")), extra=extra)


def _text(content: Any) -> str:
    """The words of an answer, which some servers give in parts; nothing where there are none."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    return content.strip() if isinstance(content, str) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


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
        check_sending(self._url, self.connection.egress_permission, synthetic=self.synthetic)
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
    """What was read of an answer, with every text masked and encodable: an escape hides a key until it is read."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
        return replace_lone_surrogates(value)
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


_DONE = b"[DONE]"


def whole(data: bytes) -> bytes:
    """The completion that server-sent events amount to, as JSON.

    Anything else comes back as it is, and so does a stream that broke off or that ends in an error: half an answer is
    none.
    """
    events = [line[5:].strip() for line in data.splitlines() if line.startswith(b"data:")]
    if not events:
        return data
    try:
        chunks = [json.loads(event) for event in events if event != _DONE]
        return _completion_streamed(chunks, ended=_DONE in events) or data
    except (ValueError, TypeError, AttributeError, RecursionError):
        return data


def _completion_streamed(chunks: list[Mapping[str, Any]], *, ended: bool) -> bytes | None:
    message = {"content": "", "refusal": ""}
    reason = usage = None
    for chunk in chunks:
        if "error" in chunk:
            return None
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():  # some chunks count tokens, or tell of a filter, and have none
            if choice.get("index", 0) == 0:
                reason = choice.get("finish_reason") or reason
                for name in message:
                    message[name] += (choice.get("delta") or {}).get(name) or ""
    if reason is None and not ended:
        return None
    return json.dumps({"choices": [{"message": message, "finish_reason": reason}], "usage": usage}).encode()


T = TypeVar("T")
GRACE_S = 10.0  # how long answers under way are waited for after Ctrl-C; once more, and nothing is


def run_concurrently(work: Callable[[int, threading.Event], T], count: int, workers: int) -> Iterator[tuple[int, T]]:
    """Place and result of every piece of work, in any order.

    After the first failure, or Ctrl-C, nothing new begins; what is under way is handed out, then the error is raised.

    Args:
        work: Called with a place from 0 and with what is set once nothing new should begin; in threads of its own.
        count: Number of places.
        workers: Most at once.
    """
    stop, lock, places = threading.Event(), threading.Lock(), iter(range(count))
    done: queue.SimpleQueue[tuple[int, T] | BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        while not stop.is_set():
            with lock:
                place = next(places, None)
            if place is None:
                break
            try:
                done.put((place, work(place, stop)))
            except BaseException as error:
                done.put(error)
                stop.set()
        done.put(None)

    # Daemons: after Ctrl-C the program may end although a server keeps somebody waiting.
    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(workers, count))]
    for thread in threads:
        thread.start()
    failure: BaseException | None = None
    until: float | None = None
    left = len(threads)
    try:
        while left:
            try:
                found = done.get(timeout=None if until is None else max(until - time.monotonic(), 0.0))
            except queue.Empty:
                break
            except KeyboardInterrupt as error:
                if until is not None:
                    raise
                stop.set()
                failure, until = error, time.monotonic() + GRACE_S
                continue
            if found is None:
                left -= 1
            elif isinstance(found, BaseException):
                failure = failure or found
            else:
                yield found
    finally:
        stop.set()
    if failure is not None:
        raise failure


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
        return _as_text(told[0].get("type")), blamed, f"{blamed}: {_as_text(told[0].get('msg'))}"
    if isinstance(told, dict):
        code = _as_text(told.get("code")) or _as_text(told.get("type"))
        return code, _as_text(told.get("param")), _as_text(told.get("message"))
    return "", "", _as_text(told)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def names(text: str, word: str) -> bool:
    """Whether a text holds a parameter's name as a word of its own."""
    return re.search(rf"\b{re.escape(word)}\b", text) is not None
