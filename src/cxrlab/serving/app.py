"""The HTTP application: routes, middleware, and their OpenAPI description. `chat.py` answers a chat request."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from jinja2 import Environment
from starlette.exceptions import HTTPException

from cxrlab import __version__
from cxrlab.core.egress import is_loopback
from cxrlab.core.files import read_text
from cxrlab.serving.chat import chat, unknown_model
from cxrlab.serving.config import Limits
from cxrlab.serving.errors import ApiError, error_body, stopping
from cxrlab.serving.monitoring import CONTENT_TYPE
from cxrlab.serving.resource_limits import ClientGone
from cxrlab.serving.schemas import ChatAnswer, ChatRequest, ErrorAnswer, Health, ModelEntry, ModelList
from cxrlab.serving.service import Note, Service

_SCHEMAS = "#/components/schemas/{model}"
_WHY = {
    400: "The request is wrong.",
    401: "A key is missing or unknown.",
    403: "The guard refuses.",
    404: "There is no such model.",
    408: "The request came too slowly.",
    413: "The request is too large.",
    415: "The request is not JSON.",
    421: "The request names another host.",
    429: "A rate or quota is used up.",
    431: "The head of the request is too long.",
    500: "The model failed.",
    503: "The server is overloaded or stopping.",
    504: "No answer in time.",
}


def make_app(service: Service) -> RequestMiddleware:
    """The application of a service."""
    api = FastAPI(
        title="cxrlab serve",
        version=__version__,
        description="Reports for chest radiographs, by the protocol of OpenAI's chat completions.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    _add_chat(api, service)
    _add_models(api, service)
    _add_state(api, service)
    described = describe(api, service.limits)
    page = docs_page(described)

    @api.get("/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(described)

    @api.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page, headers=HEADERS)

    @api.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> JSONResponse:
        status = error.status_code
        code = {404: "not_found", 405: "method_not_allowed"}.get(status, "invalid_request")
        message = {404: "there is nothing at this path; see /docs.", 405: "this path does not support this method."}
        _note(request).fields["code"] = code
        body = error_body(status, code, message.get(status, "this request cannot be answered."))
        return JSONResponse(body, status, dict(error.headers or {}))

    @api.exception_handler(ApiError)
    async def refused(request: Request, error: ApiError) -> JSONResponse:
        _note(request).fields["code"] = error.code
        return JSONResponse(error.body(), error.status, error.headers)

    @api.exception_handler(ClientGone)
    async def gone(request: Request, error: ClientGone) -> Response:
        return Response(status_code=GONE)  # only for the log

    @api.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        note = _note(request)  # the middleware logs class and place of the error
        note.fields["code"] = "internal_error"
        message = f"the server failed at this request; its log has the reason under {note.id}."
        return JSONResponse(error_body(500, "internal_error", message), 500)

    return RequestMiddleware(api, service)


def _errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorAnswer, "description": _WHY[status]} for status in statuses}


def _note(request: Request) -> Note:
    note: Note = request.scope["state"]["note"]
    return note


def _add_chat(api: FastAPI, service: Service) -> None:
    schema = {"$ref": _SCHEMAS.format(model=ChatRequest.__name__)}
    body = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
    streamed = {"content": {"text/event-stream": {}}, "description": "The answer."}

    @api.post(
        "/v1/chat/completions",
        response_model=ChatAnswer,
        responses={200: streamed, **_errors(400, 401, 403, 404, 408, 413, 415, 421, 429, 431, 500, 503, 504)},
        openapi_extra=body,
        summary="A report for an image, or an answer of the text model.",
    )
    async def chat_completions(request: Request) -> Response:
        return await chat(service, request, _note(request))


def _add_models(api: FastAPI, service: Service) -> None:
    def entry(name: str) -> ModelEntry:
        return ModelEntry(id=name, created=service.created)

    @api.get("/v1/models", responses=_errors(401, 421, 431, 503), summary="The available models.")
    async def models(request: Request) -> ModelList:
        _note(request).fields["account"] = service.accounts.identify(request.headers).name
        return ModelList(data=[entry(name) for name in service.names])

    @api.get("/v1/models/{name:path}", responses=_errors(401, 404, 421, 431, 503), summary="One of them.")
    async def model(request: Request, name: str) -> ModelEntry:
        _note(request).fields["account"] = service.accounts.identify(request.headers).name
        if name not in service.names:
            raise unknown_model(service)
        return entry(name)


def _add_state(api: FastAPI, service: Service) -> None:
    @api.get(
        "/healthz",
        response_model=Health,
        responses={503: {"model": Health, "description": "It cannot answer."}, **_errors(421, 431)},
        summary="Health of the server.",
    )
    async def healthz() -> JSONResponse:
        state = service.health()
        return JSONResponse({"status": state}, 200 if state == "ok" else 503)

    @api.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses=_errors(401, 421, 431),
        summary="Metrics for Prometheus.",
    )
    async def metrics(request: Request) -> Response:
        service.accounts.identify(request.headers)
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def describe(api: FastAPI, limits: Limits) -> dict[str, Any]:
    """The OpenAPI description; the request's schema is added here, since the route itself reads its body."""
    described = api.openapi()
    schemas = described["components"]["schemas"]
    schema = ChatRequest.model_json_schema(ref_template=_SCHEMAS)
    schemas.update(schema.pop("$defs", {}))
    schemas[ChatRequest.__name__] = schema
    fields = schema["properties"]
    fields["messages"]["maxItems"] = limits.messages
    for name, most in (("n", limits.choices), ("max_tokens", limits.tokens), ("max_completion_tokens", limits.tokens)):
        fields[name]["anyOf"][0]["maximum"] = most
    described["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path in described["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)  # no route validates by FastAPI
    return described


# No scripts, and nothing from elsewhere.
HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}


def docs_page(described: Mapping[str, Any]) -> str:
    """An HTML page of an OpenAPI description."""
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["kind"] = _kind
    return environment.from_string(read_text(Path(__file__).with_name("docs.html"))).render(described)


def _kind(field: Mapping[str, Any]) -> str:
    """The type of a field, in the words of JSON Schema."""
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "const" in field or "enum" in field:
        return " or ".join(repr(value) for value in field.get("enum", [field.get("const")]))
    for several in ("anyOf", "oneOf"):
        if several in field:
            return " or ".join(dict.fromkeys(map(_kind, field[several])))
    if field.get("type") == "array":
        return f"list of {_kind(field.get('items', {}))}"
    return str(field.get("type", "anything"))


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ROUTES = ("/v1/chat/completions", "/v1/models", "/healthz", "/metrics", "/openapi.json", "/docs")
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_ALWAYS = ("/healthz", "/metrics")  # answered also during shutdown
HEAD_BYTES = 16 << 10  # longest head of a request
GONE = 499  # status in the log for a client that disconnected


class RequestMiddleware:
    """Checks, logs and counts every request around the routes."""

    def __init__(self, app: App, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            return
        note, begun = Note(), time.monotonic()
        scope.setdefault("state", {})["note"] = note
        outgoing = Outgoing(send, note)
        try:
            self._check(scope)
            await self._app(scope, receive, outgoing)
        except ApiError as refusal:
            note.fields["code"] = refusal.code
            await outgoing.refuse(refusal)
        except asyncio.CancelledError:  # the time limit of the shutdown is over
            note.fields["code"] = "overloaded"
            await outgoing.refuse(stopping())
        except ClientGone:
            outgoing.status = outgoing.status or GONE
        except Exception as error:
            self._service.metrics.failed()
            self._service.journal.failure(error, id=note.id)
            await outgoing.refuse(ApiError(500, "internal_error", "the server failed at this request."))
        finally:
            # Paths are not logged, only routes.
            route = "/v1/models/{name}" if scope["path"].startswith("/v1/models/") else "other"
            route = scope["path"] if scope["path"] in ROUTES else route
            status, seconds = outgoing.status or GONE, time.monotonic() - begun
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

    def _check(self, scope: Scope) -> None:
        names = Counter(name for name, _ in scope["headers"])
        if names[b"authorization"] + names[b"api-key"] > 1:
            # A proxy may have checked the other one.
            raise ApiError(
                400, "invalid_request", "the request has several keys; send one, by Authorization or api-key."
            )
        if {b"content-length", b"transfer-encoding"} <= names.keys():
            # A proxy may use the other one (request smuggling).
            message = "the request gives its length in two ways; send Content-Length or Transfer-Encoding, not both."
            raise ApiError(400, "invalid_request", message, headers={"Connection": "close"})
        # The parser limits only heads that arrive in pieces.
        head = len(scope["raw_path"]) + len(scope["query_string"])
        if head + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > HEAD_BYTES:
            raise ApiError(431, "too_large", f"the head of the request is longer than {HEAD_BYTES:,} bytes.")
        if self._service.stopping and scope["path"] not in _ALWAYS:
            raise stopping()
        if self._service.accounts.open:
            # Against DNS rebinding: a web page could point its own host name to this machine.
            hosts = [value for name, value in scope["headers"] if name == b"host"]
            if len(hosts) != 1 or not is_loopback(f"http://{hosts[0].decode('latin-1')}"):
                raise ApiError(421, "wrong_host", "this server answers only requests to 127.0.0.1 or localhost.")


class Outgoing:
    """Sends an answer with the headers that every answer has; keeps its status and size."""

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
        """Send the refusal, unless an answer has begun."""
        if self.status:
            return
        content = json.dumps(refusal.body()).encode()
        named = {"Content-Type": "application/json", "Content-Length": str(len(content)), **refusal.headers}
        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in named.items()]
        await self({"type": "http.response.start", "status": refusal.status, "headers": raw})
        await self({"type": "http.response.body", "body": content})
