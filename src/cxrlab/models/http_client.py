"""Client of the OpenAI chat-completions protocol: requests, retries, and errors that leak neither keys nor patients."""

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

from cxrlab.core.egress import Connection, check_encrypted, check_sending, is_loopback, parse_address
from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.llm_requests import PROMPT_TOKENS, replace_lone_surrogates
from cxrlab.core.model_interfaces import CAUTIONS, Generated
from cxrlab.core.terminal import terminal_safe
from cxrlab.models.decoding import TRUNCATED

if TYPE_CHECKING:
    import httpx

FINISH_REASON = "finish_reason"  # why the server ended an empty answer
REFUSAL = "refusal"  # text of a refusal, which some servers send apart from the answer
UNUSED_SETTINGS = "unused_settings"  # settings that the server does not know, so that answers may not be reproducible
FILTERED = "content_filter"  # error code and finish reason of a provider's content filter
OBJECTIONS = (FILTERED, "invalid_prompt")  # error codes of a prompt refused for its content; the second is OpenAI's
_MOST_TOKENS = 10**9  # larger token counts of a server are ignored
_CHANGE_WORDS = ("temperature", "top_p", "seed")  # settings without which answers are others
_LEAST_LOG = -9999.0  # vLLM's number for a token without probability
_LONGER_NAME = {"max_tokens": "max_completion_tokens"}
_UNSUPPORTED = re.compile(r"unsupported|not support|not permitted|unrecogni[sz]ed|unknown|extra_forbidden", re.I)


class Chat:
    """Sends single-message chats and remembers which decoding settings the server supports."""

    def __init__(self, client: ChatClient) -> None:
        self.client = client
        # Setting → its name at this server; None where it has none. Threads may all find out the same at once.
        self._known: dict[str, str | None] = {name: name for name in (*_CHANGE_WORDS, "max_tokens", "n", "logprobs")}

    def ask(
        self,
        content: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        seed: int,
        key: int = 0,
        stop: threading.Event | None = None,
    ) -> Generated:
        """The greedy answer to one user message; see `answers`."""
        return self.answers(content, _greedy(max_tokens, seed), key=key, stop=stop)[0]

    def answers(
        self,
        content: str | Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        *,
        key: int = 0,
        stop: threading.Event | None = None,
    ) -> list[Generated]:
        """The answers to one request, at least one; fewer than `n` from a server that does not know it.

        Args:
            content: One user message: a text, or text and image parts.
            settings: Of decoding, as the protocol names them.
            key: Index of the API key to use.
            stop: Once set, nothing is retried.
        """
        while True:
            known = {name: self._known[name] for name in settings}
            try:
                completion = self.client.ask(_body(content, settings, known), key=key, stop=stop)
            except EndpointError as error:
                if not self._adapt(error, known):
                    raise
                continue
            return answers_of(completion, _unused(known))

    def request(self, text: str, *, max_tokens: int, seed: int) -> dict[str, Any]:
        """The body of the request that `ask` sends for a text."""
        return {"model": self.client.address.model, **_body(text, _greedy(max_tokens, seed), self._known)}

    def answer_in(self, data: bytes, status: int, text: str) -> Generated:
        """The answer to a text in the body of a response, as `ask` returns it.

        Raises:
            EndpointError: If it holds none; settings to which the server objects are renamed or dropped from then on.
        """
        known = {name: self._known[name] for name in _greedy(0, 0)}
        found = self.client.completion_in(data, status, _body(text, {}, {})["messages"])
        if isinstance(found, Failure):
            error = error_of(self.client.name, [found], self.client.connection.key_variable, with_key=True)
            self._adapt(error, known)
            raise error
        return answers_of(found, _unused(known))[0]

    def _adapt(self, error: EndpointError, known: Mapping[str, str | None]) -> bool:
        """Rename or drop the setting to which the server objected; False if there is none. Each is tried once."""
        if error.status not in (400, 422):
            return False
        for own, name in known.items():
            blamed = name is not None and (error.param == name or names(error.server_message, name))
            if name is None or not blamed or not _UNSUPPORTED.search(f"{error.code} {error.server_message}"):
                continue
            longer = _LONGER_NAME.get(own)
            if longer is None:
                self._known[own] = None
                return True
            if name != longer and names(error.server_message, longer):
                self._known[own] = longer
                return True
        return False


def _greedy(max_tokens: int, seed: int) -> dict[str, Any]:
    return {"temperature": 0, "seed": seed, "max_tokens": max_tokens}


def _body(
    content: str | Sequence[Mapping[str, Any]], settings: Mapping[str, Any], known: Mapping[str, str | None]
) -> dict[str, Any]:
    named = {name: value for own, value in settings.items() if (name := known[own]) is not None}
    return {"messages": [{"role": "user", "content": content}], **named}


def _unused(known: Mapping[str, str | None]) -> list[str]:
    return [name for name in _CHANGE_WORDS if name in known and known[name] is None]


def answers_of(completion: Mapping[str, Any], unused_settings: Sequence[str] = ()) -> list[Generated]:
    """The answers in a completion, one per choice; an empty answer comes with its finish reason."""
    usage = completion.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    extra: dict[str, Any] = {}
    if (prompt_tokens := _count(usage.get("prompt_tokens"))) is not None:
        extra[PROMPT_TOKENS] = prompt_tokens
    cautions = completion.get(CAUTIONS)
    if isinstance(cautions, list) and (texts := [caution for caution in cautions if isinstance(caution, str)]):
        extra[CAUTIONS] = texts
    if unused_settings:
        extra[UNUSED_SETTINGS] = list(unused_settings)
    choices = completion["choices"]
    tokens = _count(usage.get("completion_tokens")) if len(choices) == 1 else None  # of all choices together
    return [_answer_of(choice, tokens, extra) for choice in choices]


def _answer_of(choice: Mapping[str, Any], tokens: int | None, common: Mapping[str, Any]) -> Generated:
    message, reason, content = choice["message"], choice.get("finish_reason"), choice["message"].get("content")
    if isinstance(content, list):  # some servers send the answer in parts
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    text = content.strip() if isinstance(content, str) else ""
    extra = {name: value for name, value in common.items() if name == PROMPT_TOKENS}
    if reason == "length" or (reason == FILTERED and text):  # a filter may cut an answer in the middle
        extra[TRUNCATED] = True
    if not text:
        extra[FINISH_REASON] = reason if isinstance(reason, str) else None
    if isinstance(message.get("refusal"), str) and message["refusal"].strip():
        extra[REFUSAL] = message["refusal"].strip()
    logs = _token_log_probabilities(choice.get("logprobs"))
    mean = sum(logs) / len(logs) if logs else None
    return Generated(text, mean, tokens if tokens is not None or not logs else len(logs), {**extra, **common})


def _token_log_probabilities(logprobs: Any) -> list[float]:
    """Natural logs, one per generated token; empty if the server gives none, or one that is none."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    found: list[float] = []
    for token in content if isinstance(content, list) else ():
        value = token.get("logprob") if isinstance(token, dict) else None
        if not isinstance(value, int | float) or not _LEAST_LOG < value <= 0.0:
            return []
        found.append(float(value))
    return found


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


MOST_BYTES = 4 << 20  # longest answer that is read
LONGEST_WAIT_S = 60.0  # longest Retry-After that is followed
_FIRST_WAIT_S, _MOST_BACK_OFF_S = 0.5, 30.0
_REASONS = ("stop", "length", "content_filter")  # finish reasons of the protocol
_LONG_KEY = 16  # shortest key that is masked in answers; a shorter one may appear there by chance


class ChatClient:
    """One model at an endpoint; may be shared by threads.

    Args:
        name: `http://HOST/v1#MODEL`.
        connection: API key, timeout, concurrency, and the permission to send patients' data.
        synthetic: Whether all data sent is known to be synthetic, so that no permission is needed.
        sleep: Replaces the wait between tries, for tests.
        chance: Uniform numbers in [0, 1) for the jitter between tries, for tests.
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
        variable = self.connection.key_variable  # several API keys are separated by commas
        self._keys = tuple(key.strip() for key in os.environ.get(variable, "").split(",") if key.strip())
        if not all(key.isascii() and key.isprintable() and " " not in key for key in self._keys):
            raise ConfigError(
                f"environment variable {variable} contains a character that no API key has; set it again."
            )
        self._url = self.address.url("chat/completions")
        self._http = _http_client(self._url, self.connection)
        self._slots = threading.BoundedSemaphore(self.connection.concurrency)
        self._sleep, self._chance = sleep, chance

    @property
    def keys(self) -> int:
        """Number of API keys in the environment variable."""
        return len(self._keys)

    def ask(self, body: Mapping[str, Any], *, key: int = 0, stop: threading.Event | None = None) -> dict[str, Any]:
        """The server's completion, which has at least one choice with a message.

        Args:
            body: The request without its model.
            key: Index of the API key to use, modulo their number.
            stop: Once set, nothing is retried.

        Raises:
            ConfigError: Before anything is sent, if the address is remote and no permission was given.
            EndpointError: After the last try.
        """
        check_sending(self._url, self.connection.egress_permission, synthetic=self.synthetic)
        sent = {"model": self.address.model, **body}
        content = json.dumps(sent).encode()
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "cxrlab"}
        if self._keys:
            own = self._keys[key % len(self._keys)]
            bearer = self.connection.auth == "bearer"
            headers["Authorization" if bearer else "api-key"] = f"Bearer {own}" if bearer else own
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
                    # As long as the server asks for, else a random part of a doubling limit (exponential back-off).
                    longest = min(_FIRST_WAIT_S * 2.0 ** (len(failures) - 1), _MOST_BACK_OFF_S)
                    wait_s = self._chance() * longest if found.wait_s is None else min(found.wait_s, LONGEST_WAIT_S)
                    (stop.wait if self._sleep is None else self._sleep)(wait_s)
        raise error_of(self.name, failures, self.connection.key_variable, with_key=bool(self._keys))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _try(self, content: bytes, headers: Mapping[str, str], sent: Mapping[str, Any]) -> dict[str, Any] | Failure:
        """One request. No exception that holds the request, and with it the key, is raised."""
        import httpx

        until = time.monotonic() + self.connection.timeout_s
        try:
            with self._http.stream("POST", self._url, content=content, headers=dict(headers)) as response:
                status, wait_s = response.status_code, _retry_after(response.headers.get("retry-after"))
                if response.headers.get("content-encoding", "identity").lower() != "identity":
                    # A few compressed kilobytes could fill the memory.
                    raise httpx.DecodingError("its answer is compressed, which was not requested")
                data = bytearray()
                for part in response.iter_raw():
                    data += part
                    if len(data) > MOST_BYTES:
                        return Failure(f"its answer ({status}) is longer than {MOST_BYTES >> 20} MiB", status=status)
                    if time.monotonic() > until:
                        raise httpx.ReadTimeout("")
        except httpx.TimeoutException:
            return Failure(f"no answer within {self.connection.timeout_s:g} s")
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            why = cleaned(str(error), self._keys, sent["messages"]).rstrip(".")
            return Failure(why or type(error).__name__, refused=_is_refused(error))
        return self.completion_in(bytes(data), status, sent["messages"], wait_s)

    def completion_in(
        self, data: bytes, status: int, asked: Any, wait_s: float | None = None
    ) -> dict[str, Any] | Failure:
        """The completion in the body of an answer, without keys; `asked` are the messages of the request."""
        if status != 200:
            return failure_of(status, data, wait_s, self._keys, asked)
        try:
            completion: dict[str, Any] = _masked(
                json.loads(whole(data)), [key for key in self._keys if len(key) >= _LONG_KEY]
            )
            choices = completion["choices"]
            if not choices or not all(isinstance(choice["message"], dict) for choice in choices):
                raise TypeError
        except (ValueError, TypeError, LookupError, RecursionError):
            return Failure("its answer is not a completion", status=status)
        for choice in choices:
            for holder, name in ((choice, "finish_reason"), (choice["message"], "refusal")):  # not part of the answer
                if isinstance(holder.get(name), str) and holder[name] not in _REASONS:
                    holder[name] = cleaned(holder[name], self._keys, asked)
        return completion


def _http_client(url: str, connection: Connection) -> httpx.Client:
    import httpx

    local = is_loopback(url)
    try:
        parsed = httpx.URL(url)
        # httpx must read the address as our check does; otherwise patients' text could be sent elsewhere.
        if local and not is_loopback(f"{parsed.scheme}://{parsed.netloc.decode('ascii')}"):
            raise ConfigError(
                f"'{url}' is ambiguous; write the loopback address plainly, such as http://127.0.0.1:8000."
            )
        return httpx.Client(
            timeout=connection.timeout_s,
            verify=not local or parsed.scheme == "https",  # loading certificates takes longer than a local request
            trust_env=not local,  # a proxy must not see what stays on this machine
            follow_redirects=False,
            limits=httpx.Limits(max_connections=connection.concurrency),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # no state is shared between API keys
        )
    except (httpx.InvalidURL, ValueError, ImportError) as error:
        if isinstance(error, httpx.InvalidURL):
            raise ConfigError(f"'{url}' is not a valid address; write it as http://HOST:PORT/v1#MODEL.") from None
    # The original message may hold the proxy's login.
    raise RunError("the proxy in the environment (HTTPS_PROXY, ALL_PROXY) cannot be used; set it again.")


def _masked(value: Any, secrets: Sequence[str]) -> Any:
    """Parsed JSON with every key masked and every text encodable; JSON escapes hide a key until it is parsed."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, "***")
        return replace_lone_surrogates(value)
    if isinstance(value, list):
        return [_masked(one, secrets) for one in value]
    if isinstance(value, dict):
        return {name: _masked(one, secrets) for name, one in value.items()}
    return value


def _is_refused(error: BaseException) -> bool:
    """Whether nothing listened at the address: a `ConnectionRefusedError` is among the causes."""
    seen: list[BaseException] = [error]
    for one in seen:
        if isinstance(one, ConnectionRefusedError):
            return True
        causes = (one.__cause__, one.__context__, *one.args)
        seen += [cause for cause in causes if isinstance(cause, BaseException) and cause not in seen]
    return False


def _retry_after(header: str | None) -> float | None:
    """Seconds of a Retry-After header, given as a number or as a date; None if it is absent or unreadable."""
    try:
        seconds = float(header or "")
    except ValueError:
        try:
            until = parsedate_to_datetime(header or "")
        except (ValueError, OverflowError):  # the second for a time zone out of range
            return None
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max((until - datetime.now(UTC)).total_seconds(), 0.0)
    return seconds if 0 <= seconds < float("inf") else None


_DONE = b"[DONE]"


def whole(data: bytes) -> bytes:
    """The completion in server-sent events, as JSON.

    Anything else is returned as it is, also a stream that broke off or ended in an error.
    """
    events = [line[5:].strip() for line in data.splitlines() if line.startswith(b"data:")]
    if not events:
        return data
    message = {"content": "", "refusal": ""}
    reason = usage = None
    try:
        for chunk in [json.loads(event) for event in events if event != _DONE]:
            if "error" in chunk:
                return data
            usage = chunk.get("usage") or usage
            for choice in chunk.get("choices") or ():  # absent in chunks that only count tokens or report a filter
                if choice.get("index", 0) == 0:
                    reason = choice.get("finish_reason") or reason
                    for name in message:
                        message[name] += (choice.get("delta") or {}).get(name) or ""
        if reason is None and _DONE not in events:
            return data
        return json.dumps({"choices": [{"message": message, "finish_reason": reason}], "usage": usage}).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return data


Item = TypeVar("Item")
Result = TypeVar("Result")
GRACE_S = 10.0  # wait for running requests after Ctrl-C; a second Ctrl-C ends at once


def run_concurrently(
    work: Callable[[Item, threading.Event], Result], take: Callable[[], Item | None], workers: int
) -> Iterator[tuple[Item, Result]]:
    """Items and their results as they finish, `workers` of them in threads at a time; ends when nothing is left.

    After the first failure or Ctrl-C no call begins; results of running calls are yielded, then the error is raised.

    Args:
        work: Called with an item and an event that is set once nothing new should begin.
        take: Returns the next item, None while there is none: it is called again after each result. Runs in the
            caller's thread.
    """
    stop = threading.Event()
    given: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[Item, Result] | BaseException] = queue.SimpleQueue()

    def run() -> None:
        while (item := given.get()) is not None:
            try:
                done.put((item, work(item, stop)))
            except BaseException as error:
                stop.set()
                done.put(error)

    failure: BaseException | None = None
    until: float | None = None
    threads = running = 0
    try:
        while True:
            try:
                while running < workers and not stop.is_set() and (item := take()) is not None:
                    running += 1
                    if running > threads:
                        threads += 1
                        # A daemon: after Ctrl-C the program may end although a server has not answered.
                        threading.Thread(target=run, daemon=True).start()
                    given.put(item)
                if not running:
                    break
                found = done.get(timeout=None if until is None else max(until - time.monotonic(), 0.0))
            except queue.Empty:
                break
            except KeyboardInterrupt as error:
                if until is not None:
                    raise
                stop.set()
                failure, until = error, time.monotonic() + GRACE_S
                continue
            except Exception as error:  # raised by `take`
                stop.set()
                failure = failure or error
                continue
            running -= 1
            if isinstance(found, BaseException):
                failure = failure or found
            else:
                yield found
    finally:
        stop.set()
        for _ in range(threads):
            given.put(None)
    if failure is not None:
        raise failure


RETRIED = (408, 409, 429)  # besides 5xx
SPENT = ("quota_exhausted", "insufficient_quota")  # codes of 429 that are not worth a retry
_LONGEST = 200  # characters of a server's message that are repeated
_MOST_READ = 2000  # characters of a server's message that are read
_ECHO = 16  # a run of so many letters and digits shared with the request counts as a quotation
_SHORTEST = 4  # fewest letters and digits of a quoted word or of a whole request text
_MOST_ESCAPES = 4  # levels of nested escapes that are resolved
_KEY_PIECE = 8  # any so long piece of a key is masked
_QUOTED = re.compile(r"[\"'`“‘«]([^\"'`”’»]+)[\"'`”’»]")
_NUMBER = re.compile(r"\d{4,}")  # such as the number of a patient
_ENCODED = re.compile(r"[A-Za-z0-9+/=]{24,}")  # an image, or a part of one


class EndpointError(RunError):
    """A model at an endpoint gave no answer.

    Args:
        status: HTTP status; None if there was none.
        code: The server's error code, or empty.
        param: The request parameter that the server blames, or empty.
        server_message: The server's message, cleaned by `cleaned`.
    """

    def __init__(
        self, sentence: str, *, status: int | None = None, code: str = "", param: str = "", server_message: str = ""
    ) -> None:
        super().__init__(sentence)
        self.status, self.code, self.param, self.server_message = status, code, param, server_message


class EndpointUnreachable(EndpointError, ConnectionRefusedError):
    """No try got a connection, so nothing was sent."""


@dataclass(frozen=True)
class Failure:
    """One try that failed."""

    what: str  # what happened, as a clause
    again: bool = True  # whether another try may help
    wait_s: float | None = None  # the server's Retry-After in seconds
    refused: bool = False  # whether nothing listened at the address
    status: int | None = None
    code: str = ""
    param: str = ""
    server_message: str = ""  # the server's message, cleaned


def failure_of(status: int, data: bytes, wait_s: float | None, secrets: Iterable[str], asked: Any) -> Failure:
    """The failure in an answer with an error status.

    Args:
        data: The body.
        wait_s: Seconds to wait by its Retry-After.
        secrets: Keys, which must not be repeated.
        asked: Messages of the request, which must not be quoted either.
    """
    fields = _error_fields(data)
    again = (status in RETRIED or status >= 500) and fields[0] not in SPENT
    code, param, said = (cleaned(text, secrets, asked) for text in fields)
    what = f"it answered {status}" + (f" ({said.rstrip('.')})" if said else "")
    return Failure(what, again, wait_s, status=status, code=code, param=param, server_message=said)


def error_of(name: str, failures: list[Failure], key_variable: str, *, with_key: bool) -> EndpointError:
    """The error after the last try of the model `name`; without failures it was stopped before the first."""
    if not failures:
        return EndpointUnreachable(f"{name} received no request: the work was stopped before.")
    last = failures[-1]
    fields: dict[str, Any] = {
        "status": last.status,
        "code": last.code,
        "param": last.param,
        "server_message": last.server_message,
    }
    if last.again:
        kind = EndpointUnreachable if all(one.refused for one in failures) else EndpointError
        tries = "1 try" if len(failures) == 1 else f"{len(failures)} tries"
        return kind(
            f"{name} gave no answer in {tries}: {last.what}; check that the server runs, and repeat the command to "
            "go on.",
            **fields,
        )
    status = last.status or 0
    if last.code in SPENT:
        remedy = "the quota of this key is used up: raise it, and repeat the command to go on"
    elif status == 401 or (status == 403 and not with_key):
        remedy = f"{'check' if with_key else 'set'} the API key in the environment variable {key_variable}"
    elif status == 403:
        remedy = "the server declines the request; contact its operator"
    elif status == 404:
        remedy = "check the address and the name of the model after #"
    elif status == 413:
        remedy = "send less at once: a shorter text, a smaller image"
    elif 300 <= status < 400:
        remedy = "it redirects, which is not followed: give the model's own address"
    else:
        remedy = "change what it objects to"
    return EndpointError(f"{name} rejects the request: {last.what}; {remedy}.", **fields)


def cleaned(text: str, secrets: Iterable[str], asked: Any) -> str:
    """The first line of a server's message, shortened, without control characters, keys and quotations of the request."""
    secrets = tuple(form for secret in secrets for form in _encodings(secret))
    for secret in secrets:
        text = text.replace(secret, "***")
    # Resolve the escapes of JSON, HTML and URLs, which would hide a quotation.
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text[:_MOST_READ])
    text = re.sub(r"\\[nrt]", " ", text)
    for _ in range(_MOST_ESCAPES):
        text, before = html.unescape(unquote(text)), text
        if text == before:
            break
    line = terminal_safe(text.replace("\\", "").strip().partition("\n")[0])
    line = _without_quotations(" ".join(replace_lone_surrogates(line).split()), secrets, asked)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _encodings(key: str) -> list[str]:
    """A key as it is, in hexadecimal, and in base64 at any offset (as in 'user:KEY' of HTTP Basic)."""
    found = [key, key.encode().hex()]
    for ahead in range(3):
        whole = base64.b64encode(b"\0" * ahead + key.encode()).decode().rstrip("=")
        # Without the characters at both ends that depend on the text around the key.
        inner = whole[(0, 2, 3)[ahead] : -1]
        found += [inner, inner.replace("+", "-").replace("/", "_")]
    return [form for form in dict.fromkeys(found) if form == key or len(form) >= _KEY_PIECE]


def _without_quotations(line: str, secrets: Iterable[str], asked: Any) -> str:
    """The line with every key as `***`, and with everything from the first to the last quotation as `[removed]`."""
    for secret in secrets:
        pieces = (secret[start : start + _KEY_PIECE] for start in range(max(len(secret) - _KEY_PIECE + 1, 1)))
        spans = [found.span() for piece in pieces for found in re.finditer(re.escape(piece), line)]
        line = _replaced(line, spans, "***")
    texts: list[str] = []  # all texts of the request; images are recognised by their characters instead
    for message in asked if isinstance(asked, list) else []:
        content = message.get("content")
        texts += [content] if isinstance(content, str) else [part["text"] for part in content if "text" in part]
    sent = [plain for text in texts if (plain := _letters(text)[0])]
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
    numbers = {number for text in texts for number in _NUMBER.findall(text)}
    found += [number.span() for number in _NUMBER.finditer(line) if number[0] in numbers]
    found += [token.span() for token in _ENCODED.finditer(line) if re.search("[A-Z0-9]", token[0])]
    return _replaced(line, found, "[removed]", between=True)


def _letters(text: str) -> tuple[str, list[int]]:
    """Letters and digits of a text in lower case, and the position of each in the text."""
    found = [(letter, place) for place, letter in enumerate(text) for letter in letter.lower() if letter.isalnum()]
    return "".join(letter for letter, _ in found), [place for _, place in found]


def _replaced(line: str, spans: list[tuple[int, int]], mark: str, *, between: bool = False) -> str:
    """The line with `mark` for each span; overlapping spans are one, and with `between` all of them are."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and (between or start <= joined[-1][1]):
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    for start, end in reversed(joined):
        line = line[:start] + mark + line[end:]
    return line


def _error_fields(data: bytes) -> tuple[str, str, str]:
    """Code, blamed parameter and message of an error body, in the forms that servers use; empty if absent."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        text = data[:4000].decode("utf-8", "replace").strip()
        return "", "", "" if text.startswith("<") else text  # the first line of an HTML page says nothing
    if not isinstance(found, dict):
        return "", "", ""
    error = found.get("error", found.get("detail", found))
    if isinstance(error, list) and error and isinstance(error[0], dict):  # objections of a validator
        place = error[0].get("loc")
        blamed = str(place[-1]) if isinstance(place, list) and place else ""
        return _as_text(error[0].get("type")), blamed, f"{blamed}: {_as_text(error[0].get('msg'))}"
    if isinstance(error, dict):
        code = _as_text(error.get("code")) or _as_text(error.get("type"))
        return code, _as_text(error.get("param")), _as_text(error.get("message"))
    return "", "", _as_text(error)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def names(text: str, word: str) -> bool:
    """Whether a text contains a parameter's name as a whole word."""
    return re.search(rf"\b{re.escape(word)}\b", text) is not None
