"""The door: every request passes it, gets a number, and leaves a line in the log; nothing leaves it unexplained."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from cxrlab.core.endpoints import is_loopback
from cxrlab.serving.errors import ApiError, stopping
from cxrlab.serving.resource_limits import ClientGone
from cxrlab.serving.service import Note, Service

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ROUTES = ("/v1/chat/completions", "/v1/models", "/healthz", "/metrics", "/openapi.json", "/docs")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_ALWAYS = ("/healthz", "/metrics")  # answered while the server stops, too
HEAD_BYTES = 16 << 10  # longest head of a request
GONE = 499  # what the log says where the client did not wait


class RequestMiddleware:
    """Stands around the routes.

    Args:
        app: The routes.
        service: What the server shares.
    """

    def __init__(self, app: App, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through."""
        if scope["type"] != "http":
            return
        note, begun = Note(), time.monotonic()
        scope.setdefault("state", {})["note"] = note
        outgoing = _Outgoing(send, note)
        try:
            self._check(scope)
            await self._app(scope, receive, outgoing)
        except ApiError as refusal:
            note.fields["code"] = refusal.code
            await outgoing.refuse(refusal)
        except asyncio.CancelledError:  # the server has waited as long as it does when it stops
            note.fields["code"] = "overloaded"
            await outgoing.refuse(stopping())
        except ClientGone:
            outgoing.status = outgoing.status or GONE
        except Exception as error:
            self._service.metrics.failed()
            self._service.journal.failure(error, id=note.id)
            await outgoing.refuse(ApiError(500, "internal_error", "the server failed at this request."))
        finally:
            self._end(scope, note, outgoing, time.monotonic() - begun)

    def _check(self, scope: Scope) -> None:
        names = Counter(name for name, _ in scope["headers"])
        if names[b"authorization"] + names[b"api-key"] > 1:
            # A proxy before us may have checked the other one.
            raise ApiError(
                400, "invalid_request", "the request has several keys; send one, by Authorization or api-key."
            )
        if {b"content-length", b"transfer-encoding"} <= names.keys():
            # A proxy before us may believe the other one, and take the rest for a second request.
            said = "the request tells its length in two ways; send Content-Length or Transfer-Encoding, not both."
            raise ApiError(400, "invalid_request", said, headers={"Connection": "close"})
        # The parser heeds the limit for a head that comes in pieces alone.
        head = len(scope["raw_path"]) + len(scope["query_string"])
        if head + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > HEAD_BYTES:
            raise ApiError(431, "too_large", f"the head of the request is longer than {HEAD_BYTES:,} bytes.")
        if self._service.stopping and scope["path"] not in _ALWAYS:
            raise stopping()
        if self._service.accounts.open:
            # A page of another site may lead its own name to this machine; no browser says localhost then.
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not is_loopback(f"http://{hosts[0].decode('latin-1')}"):
                raise ApiError(421, "wrong_host", "this server answers by the name of this machine alone (127.0.0.1).")

    def _end(self, scope: Scope, note: Note, outgoing: _Outgoing, seconds: float) -> None:
        route = route_of(scope["path"])
        status = outgoing.status or GONE
        note.fields.setdefault("code", None)
        self._service.metrics.request(route, status, seconds, note.fields["code"])
        self._service.journal.write(
            "request",
            id=note.id,
            method=scope["method"] if scope["method"] in _METHODS else "other",
            route=route,
            status=status,
            ms=round(1000 * seconds, 1),
            bytes_out=outgoing.bytes,
            **note.fields,
        )


def route_of(path: str) -> str:
    """The route that a path belongs to, or `other`: what a client sends as path goes into no log."""
    if path in ROUTES:
        return path
    return "/v1/models/{name}" if path.startswith("/v1/models/") else "other"


class _Outgoing:
    """What is sent: its status and size are seen, and headers are put on it that every answer has."""

    def __init__(self, send: Send, note: Note) -> None:
        self._send, self._note = send, note
        self.status, self.bytes = 0, 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", self._note.id.encode()),
                (b"x-content-type-options", b"nosniff"),
            ]
        else:
            self.bytes += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, refusal: ApiError) -> None:
        """Send the refusal, unless an answer has begun already."""
        if self.status:
            return
        content = json.dumps(refusal.body()).encode()
        named = {"Content-Type": "application/json", "Content-Length": str(len(content)), **refusal.headers}
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()]
        await self({"type": "http.response.start", "status": refusal.status, "headers": raw})
        await self({"type": "http.response.body", "body": content})
