"""The words of the protocol: what a request and an answer look like. The OpenAPI description is made of these.

Fields that OpenAI's protocol has and this server does not heed (`tools`, `stop`, `response_format` …) are passed over,
since clients send many; a field that is heeded must have its type.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cxrlab.core.errors import shown
from cxrlab.serving.refusals import Refused, invalid

_LARGEST = 2**63 - 1
_DIGITS = 20
_Url = Annotated[str, Field(min_length=1, description="data:image/png;base64,… (PNG or JPEG), or base64 alone.")]


class _Asked(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class ImageUrl(_Asked):
    """Where a picture is: in the address itself."""

    url: _Url
    detail: str | None = None


class ImagePart(_Asked):
    """A picture in a message."""

    type: Literal["image_url"]
    image_url: ImageUrl | _Url


class TextPart(_Asked):
    """A text in a message."""

    type: Literal["text"]
    text: str


class Message(_Asked):
    """One message."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Annotated[TextPart | ImagePart, Field(discriminator="type")]] | None = None


class StreamOptions(_Asked):
    """How an answer is streamed."""

    include_usage: bool | None = None


class ChatRequest(_Asked):
    """A request for a report, or for the answer of the text model."""

    model: str = Field(min_length=1, max_length=500, description="A name that /v1/models lists.")
    messages: list[Message] = Field(
        min_length=1, description="The last user message holds the image, and beside it the indication."
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=_LARGEST, description="Answers wanted.")
    max_tokens: int | None = Field(None, ge=1, le=_LARGEST, description="Longest answer.")
    max_completion_tokens: int | None = Field(
        None, ge=1, le=_LARGEST, description="The newer name of max_tokens, which it beats."
    )
    temperature: float | None = Field(None, ge=0, le=2, description="0 or absent: the likeliest words.")
    top_p: float | None = Field(None, gt=0, le=1, description="Heeded with a temperature above 0.")
    seed: int | None = Field(
        None,
        ge=-_LARGEST - 1,
        lt=_LARGEST + 1,
        description="The same seed draws the same words; a fresh one when absent.",
    )


class Written(BaseModel):
    """The message of an answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Choice(BaseModel):
    """One answer."""

    index: int
    message: Written
    finish_reason: Literal["stop", "length"]
    logprobs: None = None


class Usage(BaseModel):
    """What an answer has used."""

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
        default_factory=list, description="Beyond OpenAI's protocol: what whoever reads the report must know."
    )


class ModelEntry(BaseModel):
    """A model that can be asked."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["cxrlab"] = "cxrlab"


class ModelList(BaseModel):
    """The models that can be asked."""

    object: Literal["list"] = "list"
    data: list[ModelEntry]


class Health(BaseModel):
    """Whether the server can answer."""

    status: Literal["ok", "stopping", "hung", "dead"]


class ErrorInside(BaseModel):
    """What is wrong."""

    message: str
    type: str
    code: str
    param: str | None


class ErrorAnswer(BaseModel):
    """Every error."""

    error: ErrorInside


def parse_request(values: Any) -> ChatRequest:
    """The request, or a refusal that names the first field that is wrong; nothing that was sent is quoted at length."""
    if not isinstance(values, dict):
        raise invalid(f"the request is {_kind(values)}; send a JSON object with 'model' and 'messages'.")
    try:
        return ChatRequest.model_validate(values)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> Refused:
    # Of a value that may be one of several kinds, the deepest complaint is about the kind that was meant.
    first = max(error.errors(include_url=False, include_context=False), key=lambda one: len(one["loc"]))
    param = _place(first["loc"])
    if first["type"] == "missing":
        return invalid(f"'{param}' is missing; give it.", param)
    if first["type"].startswith("union_tag"):
        return invalid(f"'{param}' is a part that is neither 'text' nor 'image_url'; send those alone.", param)
    said = re.sub("^(Input|String|List|Value error,) ", "", str(first["msg"]))
    return invalid(f"'{param}' is {_told(first['input'])}; it {said[:1].lower()}{said[1:]}.", param)


def _place(steps: tuple[int | str, ...]) -> str:
    """The dotted place of a field, without the names of the kinds that it may have."""
    kept: list[str] = []
    for number, step in enumerate(steps):
        of_a_part = number > 1 and isinstance(steps[number - 1], int) and kept[-2:-1] == ["content"]
        if isinstance(step, int) or (step in _FIELDS and not of_a_part):
            kept.append(str(step))
    return ".".join(kept)


_FIELDS = {
    name for kind in (ChatRequest, Message, TextPart, ImagePart, ImageUrl, StreamOptions) for name in kind.model_fields
}


def _told(value: Any) -> str:
    """A number as it is, so that its sender finds it, unless it is a very long one; of anything else the kind."""
    number = shown(value) if isinstance(value, (int, float)) else ""
    return number if 0 < len(number) <= _DIGITS else _kind(value)


def _kind(value: Any) -> str:
    """What a value of JSON is, in words."""
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
