"""The client against a server on this machine: patience, limits, and silence about keys and prompts."""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from chat_server import Answer, ChatServer, completion, refusal

from cxrlab.core.egress import Connection
from cxrlab.core.errors import ConfigError, CxrlabError, RunError
from cxrlab.models import http_client as module
from cxrlab.models.http_client import ChatClient, EndpointError, EndpointUnreachable, cleaned

KEY = "sk-0123456789-never-to-be-seen"
ASKED = {"messages": [{"role": "user", "content": "Describe the secret effusion of patient 17, please."}]}


class Sleeps(list[float]):
    """Waits nothing and notes how long it should have."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as running:
        yield running


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXRLAB_API_KEY", raising=False)


def in_turn(*answers: Answer) -> Callable[[dict[str, Any]], Answer]:
    """Each answer once, then the last for ever."""
    left = list(answers)
    return lambda body: left.pop(0) if len(left) > 1 else left[0]


def text_of(found: dict[str, Any]) -> str:
    return str(found["choices"][0]["message"]["content"])


def client_of(server: ChatServer, sleeps: Sleeps | None = None, **settings: Any) -> ChatClient:
    return ChatClient(
        server.address(), Connection(**settings), sleep=Sleeps() if sleeps is None else sleeps, chance=lambda: 0.5
    )


def test_a_request_has_the_model_and_what_was_asked(server: ChatServer) -> None:
    assert text_of(client_of(server).ask(ASKED)) == ASKED["messages"][0]["content"]
    (asked,) = server.requests
    assert asked.body == {"model": "m", **ASKED} and asked.path == "/v1/chat/completions"
    assert "authorization" not in asked.headers and "api-key" not in asked.headers


def test_the_query_of_an_address_is_kept_and_the_key_goes_where_azure_wants_it(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE", f" {KEY} ")
    name = f"{server.base}/deployments/d?api-version=2026-06-01#gpt"
    ChatClient(name, Connection(key_variable="AZURE", auth="api-key")).ask(ASKED)
    (asked,) = server.requests
    assert asked.path == "/v1/deployments/d/chat/completions?api-version=2026-06-01" and asked.body["model"] == "gpt"
    assert asked.headers["api-key"] == KEY and "authorization" not in asked.headers


def test_several_keys_take_turns_by_number(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRLAB_API_KEY", "one,two")
    client = client_of(server)
    for number in (0, 1, 2):
        client.ask(ASKED, key=number)
    assert client.keys == 2
    assert [asked.headers["authorization"] for asked in server.requests] == ["Bearer one", "Bearer two", "Bearer one"]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 599])
def test_what_may_pass_is_tried_again(server: ChatServer, status: int) -> None:
    """Half of a limit that doubles from half a second: the chance is 0.5 here."""
    server.answer = in_turn((status, refusal("busy")), (status, refusal("busy")), (status, refusal("busy")), "now")
    sleeps = Sleeps()
    assert text_of(client_of(server, sleeps).ask(ASKED)) == "now"
    assert len(server.requests) == 4 and sleeps == [0.25, 0.5, 1.0]


def test_a_server_that_says_when_is_heeded_within_reason(server: ChatServer) -> None:
    """Seconds, a date, more than a minute, and what cannot be read."""
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20))
    waits = ["7", soon, "86400", "whenever", "-1"]
    server.answer = in_turn(*((429, refusal("slow"), {"Retry-After": wait}) for wait in waits), "now")
    sleeps = Sleeps()
    assert text_of(client_of(server, sleeps, tries=6).ask(ASKED)) == "now"
    assert sleeps[0] == 7.0 and 18.0 < sleeps[1] <= 20.0 and sleeps[2] == 60.0
    assert sleeps[3:] == [0.5 * 4.0, 0.5 * 8.0]  # as without it: half of 0.5 s · 2³ and 2⁴


def test_after_the_last_try_comes_one_sentence(server: ChatServer) -> None:
    server.answer = in_turn((500, refusal("out of memory\nTraceback …")))
    sleeps = Sleeps()
    with pytest.raises(RunError) as error:
        client_of(server, sleeps, tries=3).ask(ASKED)
    message = str(error.value)
    assert server.address() in message and "3 tries" in message and "500 (out of memory)" in message
    assert "\n" not in message
    assert len(server.requests) == 3 and len(sleeps) == 2  # nobody waits after the last
    assert not isinstance(error.value, ConnectionRefusedError)


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (400, "invalid_request", "change what it objects to"),
        (401, "invalid_api_key", "environment variable CXRLAB_API_KEY"),
        (403, "refused_by_guard", "environment variable CXRLAB_API_KEY"),
        (404, "model_not_found", "check the address and the name of the model"),
        (413, "too_large", "send less at once"),
        (418, None, "change what it objects to"),
        (429, "quota_exhausted", "the quota of this key is used up"),
        (429, "insufficient_quota", "the quota of this key is used up"),
    ],
)
def test_what_does_not_pass_is_asked_once(server: ChatServer, status: int, code: str | None, says: str) -> None:
    server.answer = in_turn((status, refusal("Not so.", code), {"Retry-After": "1"}))
    with pytest.raises(EndpointError, match=says) as error:
        client_of(server).ask(ASKED)
    assert len(server.requests) == 1
    assert (error.value.status, error.value.code, error.value.server_message) == (status, code or "error", "Not so.")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": "no such model"}, "no such model"),  # Ollama
        ({"object": "error", "message": "too long", "code": "x"}, "too long"),  # older vLLM
        ({"detail": "Not Found"}, "Not Found"),
        (
            {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs", "type": "extra_forbidden"}]},
            "seed: Extra inputs",
        ),
        (b"<html><body>Bad gateway</body></html>", ""),
        (b"plain words", "plain words"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ([1, 2], ""),
        ({"error": {"message": 7}}, ""),
        (b'{"error": ' + b"[" * 100_000, '{"error": ' + "[" * 189 + "…"),  # too deep to be read: cut, as plain text
    ],
)
def test_errors_of_every_form_are_read(server: ChatServer, body: Any, said: str) -> None:
    server.answer = in_turn((400, body))
    with pytest.raises(EndpointError) as error:
        client_of(server).ask(ASKED)
    assert error.value.server_message == said


def test_what_a_server_says_is_cut_to_a_harmless_line_that_repeats_no_prompt(server: ChatServer) -> None:
    server.answer = in_turn((400, refusal("Bad \x1b[2Jthing " + "y" * 400 + "\nsecond line")))
    with pytest.raises(EndpointError) as error:
        client_of(server).ask(ASKED)
    assert (
        len(error.value.server_message) == 200
        and error.value.server_message.endswith("y…")
        and "\x1b" not in str(error.value)
    )
    server.answer = lambda body: (422, refusal(f"cannot read: {body['messages'][0]['content']}"))
    with pytest.raises(EndpointError) as error:
        client_of(server).ask(ASKED)
    assert error.value.server_message == "cannot read: [removed]." and "effusion" not in str(error.value)


QUOTING = {
    "the whole prompt": lambda text: f"cannot read {text}",
    "its beginning": lambda text: f"cannot read {text[:20]}…",
    "a part in quotation marks": lambda text: f"no idea of 'effusion' in {text[-30:]!r}",
    "in capitals, other spaces": lambda text: text.upper().replace(" ", "  "),
    "escaped as JSON": lambda text: json.dumps(json.dumps(text).replace(" ", "\\u0020")),
    "escaped as an address": lambda text: f"at /?q={text.replace(' ', '%20')}",
    "with control characters": lambda text: "\x07".join(text),
    "a number of it": lambda text: "no patient 170017 in store",
    "its image": lambda text: "bad image data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB",
    "a part of the key": lambda text: f"wrong key {KEY[:12]}…",
}


@pytest.mark.parametrize("how", QUOTING)
def test_no_error_quotes_what_was_sent(server: ChatServer, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setenv("CXRLAB_API_KEY", KEY)
    words = "Describe the effusion of patient 170017, Jane Roe."
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB"}}
    asked = {"messages": [{"role": "user", "content": [{"type": "text", "text": words}, image]}]}
    server.answer = lambda body: (400, refusal(f"Wrong: {QUOTING[how](words)}", QUOTING[how](words)))
    with pytest.raises(EndpointError) as error:
        client_of(server).ask(asked)
    reported = f"{error.value} {vars(error.value)}"
    for secret in ("effusion", "170017", "jane", "describe", "ivborw0", KEY[:8], "\x07"):
        assert secret not in reported.lower(), reported
    assert error.value.server_message.startswith("Wrong")


@pytest.mark.parametrize("key", ["sk-0123456789", KEY])
@pytest.mark.parametrize("ahead", ["", "u:", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, bytes.hex])
def test_no_error_quotes_a_key_in_base64_or_hexadecimal(key: str, ahead: str, encode: Callable[[bytes], Any]) -> None:
    """As proxies log it, such as an Authorization header that is resolved and packed again."""
    reported = encode(f"{ahead}{key}".encode())
    reported = reported if isinstance(reported, str) else reported.decode()
    left = cleaned(f"bad login {reported}", [key], [])
    assert left.startswith("bad login") and "***" in left
    assert not any(reported[at : at + 8] in left for at in range(len(encode(f"{ahead}xx".encode())), len(reported) - 8))


def test_no_error_quotes_a_key_that_was_escaped_twice() -> None:
    twice = "".join(f"%25{ord(letter):02x}" for letter in KEY)
    assert cleaned(f"bad key {twice}", [KEY], []) == "bad key ***"


def test_an_error_that_quotes_nothing_is_kept_whole(server: ChatServer) -> None:
    said = "This model's maximum context length is 4096 tokens; 'max_tokens' of user text is not supported."
    server.answer = lambda body: (400, refusal(said))
    with pytest.raises(EndpointError) as error:
        client_of(server).ask(ASKED)
    assert error.value.server_message == said


def test_what_is_no_part_of_an_answer_is_cleaned_too(server: ChatServer) -> None:
    """A reason and a refusal go into the store of answers."""
    words = ASKED["messages"][0]["content"]
    server.answer = lambda body: completion("", finish_reason=f"odd\x1b: {words}", refusal=f"No: {words}{'y' * 400}")
    choice = client_of(server).ask(ASKED)["choices"][0]
    assert "effusion" not in json.dumps(choice) and "\x1b" not in choice["finish_reason"]
    assert len(choice["message"]["refusal"]) <= 200


def test_nobody_there_is_recognised_as_such() -> None:
    """The class that says that nothing was asked; a user reads one sentence."""
    with ChatServer() as server:
        client = client_of(server, tries=2)
    with pytest.raises(EndpointUnreachable, match="gave no answer in 2 tries: .*refused") as error:
        client.ask(ASKED)
    assert isinstance(error.value, ConnectionRefusedError) and isinstance(error.value, CxrlabError)


def test_a_server_that_was_there_once_is_not_called_absent(server: ChatServer) -> None:
    """The first try reached it and may have cost something; whoever books must know."""

    def die(body: dict[str, Any]) -> Answer:
        threading.Thread(target=server.stop).start()
        time.sleep(0.05)
        return None

    server.answer = die
    client = ChatClient(server.address(), Connection(tries=3), sleep=lambda _: time.sleep(0.1))
    with pytest.raises(EndpointError, match="3 tries") as error:
        client.ask(ASKED)
    assert not isinstance(error.value, ConnectionRefusedError) and len(server.requests) == 1


def test_a_server_that_hangs_up_or_keeps_silent_is_given_up(server: ChatServer) -> None:
    server.answer = in_turn(None, "now")
    assert text_of(client_of(server).ask(ASKED)) == "now"
    server.answer = lambda body: time.sleep(2.0) or "late"  # type: ignore[func-returns-value]
    start = time.monotonic()
    with pytest.raises(EndpointError, match="no answer within 0.1 s"):
        client_of(server, timeout_s=0.1, tries=2).ask(ASKED)
    assert time.monotonic() - start < 2.0


def test_an_answer_that_drips_is_given_up_too() -> None:
    """Every byte comes in time, the whole does not."""
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        connection, _ = listener.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        try:
            for _ in range(100):
                connection.sendall(b" ")
                time.sleep(0.02)
        except OSError:
            pass

    threading.Thread(target=drip, daemon=True).start()
    name = f"http://127.0.0.1:{listener.getsockname()[1]}/v1#m"
    start = time.monotonic()
    with listener, pytest.raises(EndpointError, match="no answer within 0.2 s"):
        ChatClient(name, Connection(timeout_s=0.2, tries=1)).ask(ASKED)
    assert time.monotonic() - start < 1.5


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b"null", b'{"choices": []}', b'{"choices": [{"message": null}]}', b"[" * 100_000, b"\xff",
     b'{"choices": {}}', json.dumps(refusal("try later")).encode()],
)  # fmt: skip
def test_an_answer_that_is_no_completion_is_asked_for_again(server: ChatServer, body: bytes) -> None:
    server.answer = in_turn(body, "now")
    assert text_of(client_of(server).ask(ASKED)) == "now"
    server.answer = in_turn(body)
    with pytest.raises(RunError, match="its answer is not a completion"):
        client_of(server, tries=2).ask(ASKED)


def test_no_more_is_read_than_anybody_answers(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    server.answer = in_turn(b" " * (3 << 20) + json.dumps(completion("x")).encode())
    with pytest.raises(EndpointError, match="its answer .200. is longer than 1 MiB"):
        client_of(server, tries=1).ask(ASKED)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_so_that_no_key_goes_there(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("CXRLAB_API_KEY", KEY)
    with ChatServer() as other:
        server.answer = in_turn((status, {}, {"Location": f"{other.base}/chat/completions"}))
        with pytest.raises(EndpointError, match="which is not followed"):
            client_of(server).ask(ASKED)
    assert len(server.requests) == 1 and not other.requests


@pytest.mark.parametrize("host", ["192.0.2.1", "models.example:8000", "127.0.0.1.models.example", "0.0.0.0"])
def test_plain_http_goes_to_no_other_machine_unless_allowed(host: str) -> None:
    for name in (f"http://{host}/v1#m", f" HTTP://{host}/v1#m"):
        with pytest.raises(ConfigError, match="unencrypted.*allow_insecure"):
            ChatClient(name)
        ChatClient(name, Connection(allow_insecure=True)).close()
    ChatClient(f"https://{host}/v1#m").close()


def test_a_proxy_does_not_see_what_stays_on_this_machine(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer() as proxy:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, proxy.base.removesuffix("/v1"))
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert text_of(client_of(server).ask(ASKED)) == ASKED["messages"][0]["content"]
    assert not proxy.requests


def test_a_proxy_that_cannot_be_used_is_told_without_its_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is never asked: the client is not made."""
    monkeypatch.setenv("ALL_PROXY", "gopher://user:hidden@127.0.0.1:9")
    with pytest.raises(RunError, match="HTTPS_PROXY") as error:
        ChatClient("https://192.0.2.1/v1#m")
    assert "hidden" not in str(error.value)


def test_the_key_appears_nowhere(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in what is raised, at any depth, not in a representation, a log or an answer that repeats it."""
    monkeypatch.setenv("CXRLAB_API_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    for auth in ("bearer", "api-key"):
        client = client_of(server, auth=auth, tries=2)
        replies: list[Answer] = [
            (401, refusal(f"the key {KEY} is wrong", KEY)),
            (500, {"error": f"{KEY}"}),
            (302, {}, {"Location": "/elsewhere"}),
            f"the key is {KEY}",
            None,
        ]
        for reply in replies:
            server.answer = in_turn(reply)
            try:
                assert "never-to-be-seen" not in str(client.ask(ASKED))
            except EndpointError as error:
                depth: BaseException | None = error
                while depth is not None:
                    assert "never-to-be-seen" not in f"{depth!r} {depth} {vars(depth)}"
                    depth = depth.__cause__ or depth.__context__
        assert "never-to-be-seen" not in repr(client) + repr(client.connection) + repr(client.address)
    assert len(server.requests) > 5 and "never-to-be-seen" not in caplog.text


@pytest.mark.parametrize("key", ["ключ", "two words", "tab\there"])
def test_a_key_that_no_header_can_carry_is_told_without_it(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRLAB_API_KEY", key)
    with pytest.raises(ConfigError, match="CXRLAB_API_KEY") as error:
        ChatClient("http://127.0.0.1:9/v1#m")
    assert key not in str(error.value)


def test_cookies_of_one_answer_do_not_go_with_the_next_question(server: ChatServer) -> None:
    server.answer = lambda body: (200, completion("x"), {"Set-Cookie": "who=me; Path=/"})
    client = client_of(server)
    for _ in range(2):
        client.ask(ASKED)
    assert "cookie" not in server.requests[1].headers


def test_threads_that_share_a_client_keep_to_its_limit_together(server: ChatServer) -> None:
    three = threading.Barrier(3)  # nobody is answered before three are there
    server.answer = lambda body: str(three.wait(10))
    client = client_of(server, concurrency=3)
    threads = [threading.Thread(target=client.ask, args=(ASKED,)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 12 and server.most_in_flight == 3


def test_a_request_that_waits_for_its_turn_is_not_begun_after_a_stop(server: ChatServer) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(EndpointUnreachable):
        client_of(server).ask(ASKED, stop=stop)
    assert not server.requests
