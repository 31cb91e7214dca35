"""A local server of chat completions whose answers a test defines; it records its requests."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

# What a test may answer: a text (a whole completion is put around it), the whole JSON of an answer, a status with its
# JSON and perhaps headers, bytes as they are, or None to close the connection.
Answer = str | dict[str, Any] | tuple[int, Any] | tuple[int, Any, Mapping[str, str]] | bytes | None


class ChatRequest(NamedTuple):
    """One request: its headers (names in lower case), its JSON, and the path with the query."""

    headers: dict[str, str]
    body: Any
    path: str


class ChatServer:
    """Listens on a free port of 127.0.0.1 inside a `with` block.

    Args:
        answer: Called with the JSON of each request, in a thread of its own; see `Answer`. It repeats the prompt when
            left out.
    """

    def __init__(self, answer: Callable[[dict[str, Any]], Answer] | None = None) -> None:
        self.answer = answer or last_message_text
        self.requests: list[ChatRequest] = []
        self.most_in_flight = self._in_flight = self._port = 0
        self._lock = threading.Lock()
        self._server: _Server | None = None

    @property
    def base(self) -> str:
        """`http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

    def address(self, model: str = "m") -> str:
        """Address of a model on this server."""
        return f"{self.base}#{model}"

    @property
    def prompts(self) -> list[str]:
        """The text of each request's last message, in order of arrival."""
        return [last_message_text(request.body) for request in list(self.requests)]

    def start(self) -> None:
        """Listen, on the previous port if there was one."""
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.chat = self
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening and close all connections, as a killed server does."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
            server.hang_up()

    def __enter__(self) -> ChatServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def reply_to(self, request: ChatRequest) -> Answer:
        """Record a request and return its answer."""
        with self._lock:
            self.requests.append(request)
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            return self.answer(request.body)
        finally:
            with self._lock:
                self._in_flight -= 1


def last_message_text(body: Mapping[str, Any]) -> str:
    """The text of the last message of a request."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def completion(
    text: str | None, finish_reason: str = "stop", prompt_tokens: int = 5, tokens: int = 3, **message: Any
) -> dict[str, Any]:
    """The JSON of a completion, as servers of the protocol send it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **message}, "finish_reason": finish_reason}
    total = prompt_tokens + tokens
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "total_tokens": total}
    return {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def refusal(message: str, code: str | None = None) -> dict[str, Any]:
    """The JSON of an error."""
    return {"error": {"message": message, "type": "error", "code": code, "param": None}}


class _Server(ThreadingHTTPServer):
    chat: ChatServer
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.__dict__.setdefault("connections", []).append(connection)
        return connection, address

    def hang_up(self) -> None:
        for connection in self.__dict__.get("connections", []):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.chat.reply_to(ChatRequest(headers, json.loads(body) if body else None, self.path))
        if answer is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(*_as_sent(answer))

    do_GET = do_POST

    def _send(self, status: int, data: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def _as_sent(answer: Answer) -> tuple[int, bytes, Mapping[str, str]]:
    headers: Mapping[str, str] = {}
    status = 200
    if isinstance(answer, str):
        answer = completion(answer)
    if isinstance(answer, tuple):
        status, answer, headers = (*answer, {})[:3]  # type: ignore[assignment,misc]
    return status, answer if isinstance(answer, bytes) else json.dumps(answer).encode(), headers
