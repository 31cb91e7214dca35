"""The routes, and their OpenAPI description."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from cxrlab import __version__
from cxrlab.serving.chat import chat, unknown_model
from cxrlab.serving.config import Limits
from cxrlab.serving.docs_page import HEADERS, docs_page
from cxrlab.serving.door import GONE, Door
from cxrlab.serving.holding import ClientGone
from cxrlab.serving.prometheus import CONTENT_TYPE
from cxrlab.serving.refusals import Refused, error_body
from cxrlab.serving.service import Note, Service
from cxrlab.serving.wire import ChatAnswer, ChatRequest, ErrorAnswer, Health, ModelEntry, ModelList

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


def make_app(service: Service) -> Door:
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
    api.add_exception_handler(Refused, _refused)
    api.add_exception_handler(ClientGone, _gone)
    api.add_exception_handler(Exception, _failed)
    return Door(api, service)


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
    assert isinstance(error, Refused)
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
