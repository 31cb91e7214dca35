"""Schemas of requests and answers (OpenAI chat completions), and the parsing of a request."""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cxrlab.core.errors import short_repr
from cxrlab.models.decoding import Decoding
from cxrlab.models.prompts import parse_indication
from cxrlab.serving.config import Limits
from cxrlab.serving.errors import invalid, too_large

_MARKS = (b"[", b"{", b",", b":")
_DEFAULT_TOKENS = 512  # default longest answer of a text model


@dataclass(frozen=True)
class ParsedRequest:
    """A valid request."""

    model: str
    picture: str | None  # the image as text (data URL or base64); None for a request of text only
    text: str | None  # the indication beside an image, if any; else the prompt
    words: int  # number of words of text
    decoding: Decoding | None  # None for the model's own settings
    choices: int  # number of answers
    max_tokens: int  # longest answer of a text model
    seed: int  # for a text model
    streamed: bool
    usage_streamed: bool  # whether the last event of a stream has the token counts


def parse_chat_request(body: bytes, limits: Limits) -> ParsedRequest:
    """The request in a body; `ApiError` for anything that is wrong with it."""
    request = validate_request(read_json(body, limits))
    _check_limits(request, limits)
    last = next((message for message in reversed(request.messages) if message.role == "user"), None)
    if last is None:
        raise invalid("no message has the role 'user'; send the question as one.", "messages")
    pictures = [part for part in _parts(last) if isinstance(part, ImagePart)]
    if len(pictures) > 1:
        raise invalid(f"the last user message holds {len(pictures)} pictures; send one per request.", "messages")
    text = _text(last) if pictures else "\n\n".join(filter(None, map(_text, request.messages)))
    if not pictures and not text.strip():
        raise invalid("the request holds neither a picture nor a word; send an image, or text.", "messages")
    picture = pictures[0].image_url if pictures else None
    tokens = request.max_completion_tokens or request.max_tokens
    longest = tokens or Decoding.max_new_tokens
    seed = None if request.seed is None else request.seed % (1 << 62)  # the protocol allows negative seeds
    decoding = None  # requests without settings of their own share batches
    if request.temperature:
        decoding = Decoding(
            strategy="sample",
            temperature=float(request.temperature),
            top_p=1.0 if request.top_p is None else float(request.top_p),
            seed=secrets.randbits(62) if seed is None else seed,
            answers=request.n or 1,
            max_new_tokens=longest,
        )
    elif tokens:
        decoding = Decoding(max_new_tokens=longest)
    return ParsedRequest(
        model=request.model,
        picture=picture.url if isinstance(picture, ImageUrl) else picture,
        text=parse_indication(text) if pictures else text,
        words=len(text.split()),
        decoding=decoding,
        choices=request.n or 1,
        max_tokens=tokens or min(_DEFAULT_TOKENS, limits.tokens),
        seed=seed or 0,
        streamed=bool(request.stream),
        usage_streamed=bool(request.stream_options and request.stream_options.include_usage),
    )


def read_json(body: bytes, limits: Limits) -> Any:
    """Parse JSON; a text that would take much more memory than its bytes is refused before it is parsed."""
    if sum(map(body.count, _MARKS)) > limits.json_marks:
        raise too_large(f"the request has more than {limits.json_marks:,} commas, colons and brackets; send less.")

    def to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):  # a proxy might read the other one of the two
            raise invalid("the request names a field twice; name each once.")
        return found

    def refuse_constant(word: str) -> NoReturn:
        raise ValueError("NaN and Infinity are not JSON")

    try:
        return json.loads(body.decode("utf-8"), parse_constant=refuse_constant, object_pairs_hook=to_object)
    except UnicodeDecodeError:
        raise invalid("the request is not UTF-8; send JSON in that encoding.") from None
    except RecursionError:
        raise invalid("the request is nested too deeply; send plain messages.") from None
    except ValueError as error:
        place = f" (at character {error.pos:,})" if isinstance(error, json.JSONDecodeError) else ""
        raise invalid(f"the request is not valid JSON{place}; send an object with 'model' and 'messages'.") from None


def _check_limits(request: ChatRequest, limits: Limits) -> None:
    parts = [part for message in request.messages for part in _parts(message)]
    texts = [part for part in parts if isinstance(part, str)]
    tokens = max(request.max_tokens or 0, request.max_completion_tokens or 0)
    for count, most, what in (
        (len(request.messages), limits.messages, "messages"),
        (len(parts) - len(texts), limits.images, "pictures"),
        (sum(map(len, texts)), limits.text_characters, "characters of text"),
    ):
        if count > most:
            raise too_large(f"the request has {count:,} {what}; at most {most:,} are accepted.", "messages")
    if (request.n or 1) > limits.choices:
        raise invalid(f"n={request.n} is more than the {limits.choices} answers allowed per request.", "n")
    if tokens > limits.tokens:
        raise invalid(f"{tokens:,} tokens are more than the {limits.tokens:,} allowed per answer.", "max_tokens")
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise invalid("a text contains a lone surrogate; send it in UTF-8.", "messages") from None


def _parts(message: Message) -> list[str | ImagePart]:
    """Texts and images of a message, in order."""
    if message.content is None or isinstance(message.content, str):
        return [message.content] if message.content else []
    return [part.text if isinstance(part, TextPart) else part for part in message.content]


def _text(message: Message) -> str:
    return "\n".join(part for part in _parts(message) if isinstance(part, str))


_LARGEST = 2**63 - 1
_DIGITS = 20
_Url = Annotated[str, Field(min_length=1, description="data:image/png;base64,… (PNG or JPEG), or base64 alone.")]


class _RequestModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class ImageUrl(_RequestModel):
    """An image as a data URL."""

    url: _Url
    detail: str | None = None


class ImagePart(_RequestModel):
    """An image in a message."""

    type: Literal["image_url"]
    image_url: ImageUrl | _Url


class TextPart(_RequestModel):
    """A text in a message."""

    type: Literal["text"]
    text: str


class Message(_RequestModel):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Annotated[TextPart | ImagePart, Field(discriminator="type")]] | None = None


class StreamOptions(_RequestModel):
    """Options of a streamed answer."""

    include_usage: bool | None = None


class ChatRequest(_RequestModel):
    """A request for a report, or for an answer of the text model."""

    model: str = Field(min_length=1, max_length=500, description="A name that /v1/models lists.")
    messages: list[Message] = Field(
        min_length=1, description="The last user message holds the image, and beside it the indication."
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=_LARGEST, description="Number of answers.")
    max_tokens: int | None = Field(None, ge=1, le=_LARGEST, description="Longest answer.")
    max_completion_tokens: int | None = Field(
        None, ge=1, le=_LARGEST, description="The newer name of max_tokens; takes precedence over max_tokens."
    )
    temperature: float | None = Field(None, ge=0, le=2, description="0 or absent: greedy decoding.")
    top_p: float | None = Field(None, gt=0, le=1, description="Used with a temperature above 0.")
    seed: int | None = Field(
        None,
        ge=-_LARGEST - 1,
        lt=_LARGEST + 1,
        description="The same seed samples the same answers; random when absent.",
    )


class AnswerMessage(BaseModel):
    """The message of an answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Choice(BaseModel):
    """One answer."""

    index: int
    message: AnswerMessage
    finish_reason: Literal["stop", "length"]
    logprobs: None = None


class Usage(BaseModel):
    """Token counts of an answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatAnswer(BaseModel):
    """All answers to a request; with `stream` they come as server-sent events instead."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    cautions: list[str] = Field(
        default_factory=list, description="Beyond OpenAI's protocol: warnings for the reader of the report."
    )


class ModelEntry(BaseModel):
    """An available model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["cxrlab"] = "cxrlab"


class ModelList(BaseModel):
    """The available models."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


class Health(BaseModel):
    """Whether the server can answer."""

    status: Literal["ok", "stopping", "hung", "dead"]


class ErrorDetail(BaseModel):
    """The error itself."""

    message: str
    type: str
    code: str
    param: str | None


class ErrorAnswer(BaseModel):
    """Body of every error."""

    error: ErrorDetail


def validate_request(values: Any) -> ChatRequest:
    """The request, or an error that names the first wrong field and does not quote long values."""
    if not isinstance(values, dict):
        raise invalid(f"the request is {_kind(values)}; send a JSON object with 'model' and 'messages'.")
    try:
        return ChatRequest.model_validate(values)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
    # For a value of several allowed types, the deepest complaint is about the intended one.
    first = max(errors, key=lambda one: len(one["loc"]))
    # The dotted path of the field, without the names of alternative types that pydantic adds.
    path, kept = first["loc"], list[str]()
    for number, step in enumerate(path):
        of_a_part = number > 1 and isinstance(path[number - 1], int) and kept[-2:-1] == ["content"]
        if isinstance(step, int) or (step in _FIELDS and not of_a_part):
            kept.append(str(step))
    param, value = ".".join(kept), first["input"]
    if first["type"] == "missing":
        raise invalid(f"'{param}' is missing; give it.", param)
    if first["type"].startswith("union_tag"):
        raise invalid(f"'{param}' is a part that is neither 'text' nor 'image_url'; send only those.", param)
    shown = short_repr(value) if isinstance(value, (int, float)) else ""
    shown = shown if 0 < len(shown) <= _DIGITS else _kind(value)
    problem = re.sub("^(Input|String|List|Value error,) ", "", str(first["msg"]))
    raise invalid(f"'{param}' is {shown}; it {problem[:1].lower()}{problem[1:]}.", param)


_FIELDS = {
    name for kind in (ChatRequest, Message, TextPart, ImagePart, ImageUrl, StreamOptions) for name in kind.model_fields
}


def _kind(value: Any) -> str:
    """The type of a JSON value, in words."""
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
