"""What a request asks for: from bytes to the image or the prompt, the indication, and how words are chosen."""

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
from cxrlab.serving.errors import ApiError, invalid, too_large

_MARKS = (b"[", b"{", b",", b":")
_DEFAULT_TOKENS = 512  # of a text model, where the request does not say


@dataclass(frozen=True)
class Asked:
    """A request that was understood.

    Args:
        model: The model that was named.
        picture: The image as text (data URL or base64); None for a request of text alone.
        text: Beside an image its indication, None where there is none; else the prompt.
        words: Words of text that were sent.
        decoding: How the model is told to choose its words; None leaves it to the model.
        choices: Answers wanted.
        max_tokens: Longest answer of a text model.
        seed: For a text model.
        streamed: Whether the answer is wanted in pieces.
        usage_streamed: Whether the last piece tells what was used.
    """

    model: str
    picture: str | None
    text: str | None
    words: int
    decoding: Decoding | None
    choices: int
    max_tokens: int
    seed: int
    streamed: bool
    usage_streamed: bool


def understand(body: bytes, limits: Limits) -> Asked:
    """What the bytes of a request ask for; everything that is wrong with them is a `Refused`."""
    request = parse_request(read_json(body, limits))
    _check_counts(request, limits)
    last = _last_user(request)
    pictures = [part for part in _parts(last) if isinstance(part, ImagePart)]
    if len(pictures) > 1:
        raise invalid(f"the last user message holds {len(pictures)} pictures; a report is written for one.", "messages")
    text = _text(last) if pictures else "\n\n".join(filter(None, map(_text, request.messages)))
    if not pictures and not text.strip():
        raise invalid("the request holds neither a picture nor a word; send an image, or text.", "messages")
    drawn = (request.temperature or 0.0) > 0.0
    tokens = request.max_completion_tokens or request.max_tokens
    return Asked(
        model=request.model,
        picture=_url(pictures[0]) if pictures else None,
        text=parse_indication(text) if pictures else text,
        words=len(text.split()),
        decoding=_decoding(request, tokens, drawn),
        choices=request.n or 1,
        max_tokens=tokens or min(_DEFAULT_TOKENS, limits.tokens),
        seed=_seed(request.seed) if request.seed is not None else 0,
        streamed=bool(request.stream),
        usage_streamed=bool(request.stream_options and request.stream_options.include_usage),
    )


def read_json(body: bytes, limits: Limits) -> Any:
    """The value of a JSON text; what would take much more memory than its bytes is refused before it is read."""
    if sum(map(body.count, _MARKS)) > limits.json_marks:
        raise too_large(f"the request has more than {limits.json_marks:,} commas, colons and brackets; send less.")
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_number, object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise invalid("the request is not UTF-8; send JSON in that encoding.") from None
    except RecursionError:
        raise invalid("the request is nested too deeply; send plain messages.") from None
    except ValueError as error:
        place = f" (at character {error.pos:,})" if isinstance(error, json.JSONDecodeError) else ""
        raise invalid(f"the request is not valid JSON{place}; send an object with 'model' and 'messages'.") from None


def _no_number(word: str) -> NoReturn:
    raise ValueError("not a number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; what names a field twice is read in one way by a proxy and in another by us."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise invalid("the request names a field twice; name each once.")
    return found


def _check_counts(request: ChatRequest, limits: Limits) -> None:
    parts = [part for message in request.messages for part in _parts(message)]
    texts = [part for part in parts if isinstance(part, str)]
    tokens = max(request.max_tokens or 0, request.max_completion_tokens or 0)
    for count, most, what in (
        (len(request.messages), limits.messages, "messages"),
        (len(parts) - len(texts), limits.images, "pictures"),
        (sum(map(len, texts)), limits.text_characters, "characters of text"),
    ):
        if count > most:
            raise too_large(f"the request has {count:,} {what}; at most {most:,} are taken.", "messages")
    if (request.n or 1) > limits.choices:
        raise invalid(f"n={request.n} is more than the {limits.choices} answers that one request may ask for.", "n")
    if tokens > limits.tokens:
        raise invalid(f"{tokens:,} tokens are more than the {limits.tokens:,} that one answer may have.", "max_tokens")
    for text in texts:
        if not _is_whole(text):
            raise invalid("a text holds half a character (a lone surrogate); send it in UTF-8.", "messages")


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parts(message: Message) -> list[str | ImagePart]:
    """Texts and pictures of a message, in order."""
    if message.content is None or isinstance(message.content, str):
        return [message.content] if message.content else []
    return [part.text if isinstance(part, TextPart) else part for part in message.content]


def _text(message: Message) -> str:
    return "\n".join(part for part in _parts(message) if isinstance(part, str))


def _url(part: ImagePart) -> str:
    return part.image_url.url if isinstance(part.image_url, ImageUrl) else part.image_url


def _last_user(request: ChatRequest) -> Message:
    for message in reversed(request.messages):
        if message.role == "user":
            return message
    raise invalid("no message has the role 'user'; send the question as one.", "messages")


def _decoding(request: ChatRequest, tokens: int | None, drawn: bool) -> Decoding | None:
    """None where the request leaves everything to the model, so that such requests are answered together."""
    longest = tokens or Decoding.max_new_tokens
    if not drawn:
        return Decoding(max_new_tokens=longest) if tokens else None
    seed = secrets.randbits(62) if request.seed is None else _seed(request.seed)
    return Decoding(
        strategy="sample",
        temperature=float(request.temperature or 0.0),
        top_p=1.0 if request.top_p is None else float(request.top_p),
        seed=seed,
        answers=request.n or 1,
        max_new_tokens=longest,
    )


def _seed(seed: int) -> int:
    """A seed as generators here take it; the protocol's may be negative."""
    return seed % (1 << 62)


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


def _refusal(error: ValidationError) -> ApiError:
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
    number = short_repr(value) if isinstance(value, (int, float)) else ""
    return number if 0 < len(number) <= _DIGITS else _kind(value)


def _kind(value: Any) -> str:
    """What a value of JSON is, in words."""
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
