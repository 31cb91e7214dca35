"""The routes, and their OpenAPI description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from cxrlab import __version__
from cxrlab.serving.chat import chat, unknown_model
from cxrlab.serving.config import Limits
from cxrlab.serving.errors import ApiError, error_body
from cxrlab.serving.middleware import GONE, RequestMiddleware
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
    """The application around a service."""
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
    _add_description(api, service.limits)
    api.add_exception_handler(HTTPException, _no_route)
    api.add_exception_handler(ApiError, _refused)
    api.add_exception_handler(ClientGone, _gone)
    api.add_exception_handler(Exception, _failed)
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
        summary="A report for an image, or the text model's answer.",
    )
    async def chat_completions(request: Request) -> Response:
        return await chat(service, request, _note(request))


def _add_models(api: FastAPI, service: Service) -> None:
    def entry(name: str) -> ModelEntry:
        return ModelEntry(id=name, created=service.created)

    @api.get("/v1/models", responses=_errors(401, 421, 431, 503), summary="The models that can be asked.")
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
        summary="Whether the server can answer.",
    )
    async def healthz() -> JSONResponse:
        state = service.health()
        return JSONResponse({"status": state}, 200 if state == "ok" else 503)

    @api.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses=_errors(401, 421, 431),
        summary="Counters for Prometheus.",
    )
    async def metrics(request: Request) -> Response:
        service.accounts.identify(request.headers)
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)


def _add_description(api: FastAPI, limits: Limits) -> None:
    described = _description(api, limits)
    page = docs_page(described)

    @api.get("/openapi.json", include_in_schema=False)
    async def openapi() -> JSONResponse:
        return JSONResponse(described)

    @api.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(page, headers=HEADERS)


def _description(api: FastAPI, limits: Limits) -> dict[str, Any]:
    """The OpenAPI description; the request is added here, since the route reads its body by itself, within limits."""
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
            operation["responses"].pop("422", None)  # a name of a model is any text
    return described


async def _no_route(request: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "invalid_request")
    said = {404: "there is nothing at this path; /docs lists what there is.", 405: "this path takes another method."}
    _note(request).fields["code"] = code
    message = said.get(status, "this request cannot be answered.")
    return JSONResponse(error_body(status, code, message), status, headers)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    _note(request).fields["code"] = error.code
    return JSONResponse(error.body(), error.status, error.headers)


async def _gone(request: Request, error: Exception) -> Response:
    """For the log alone: nobody reads it."""
    return Response(status_code=GONE)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    """What a client is told of a defect; the door writes down its class and its place."""
    note = _note(request)
    note.fields["code"] = "internal_error"
    said = f"the server failed at this request; its log has the reason under {note.id}."
    return JSONResponse(error_body(500, "internal_error", said), 500)


# The browser is told as well: no script, nothing from elsewhere.
HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font:14px/1.4 ui-monospace,monospace}pre{background:#f3f3f3;padding:1rem;overflow:auto}"
    "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:.2rem .6rem;text-align:left;vertical-align:top}"
)
_EXAMPLE = """curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' -d '{
  "model": "NAME OF /v1/models",
  "messages": [{"role": "user", "content": [
    {"type": "text", "text": "Dyspnea."},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}]}]
}'"""


def docs_page(described: Mapping[str, Any]) -> str:
    """The page of an OpenAPI description."""
    info = described["info"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        '<p>For programs: <a href="openapi.json">openapi.json</a>.</p>',
        "<h2>Example</h2>",
        f"<pre>{escape(_EXAMPLE)}</pre>",
        "<h2>Paths</h2>",
        *_paths(described["paths"]),
        "<h2>Fields</h2>",
        *(_fields(name, schema) for name, schema in sorted(described["components"]["schemas"].items())),
    ]
    head = f'<meta charset="utf-8"><title>{escape(info["title"])}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _paths(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in paths.items():
        for method, operation in operations.items():
            rows = "".join(
                f"<tr><td>{escape(status)}</td><td>{escape(answer['description'])}</td></tr>"
                for status, answer in sorted(operation["responses"].items())
            )
            head = f"<h3><code>{method.upper()} {escape(path)}</code></h3><p>{escape(operation['summary'])}</p>"
            yield f"{head}<table><tr><th>status</th><th></th></tr>{rows}</table>"


def _fields(name: str, schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    rows = "".join(
        f"<tr><td><code>{escape(key)}</code></td><td>{escape(_kind(field))}{' (needed)' if key in needed else ''}</td>"
        f"<td>{escape(field.get('description', ''))}</td></tr>"
        for key, field in schema.get("properties", {}).items()
    )
    told = escape(schema.get("description", ""))
    return f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{told}</p><table>{rows}</table>'


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
