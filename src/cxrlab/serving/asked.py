"""What a request asks for: from bytes to the image or the prompt, the indication, and how words are chosen."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any, NoReturn

from cxrlab.models.decoding import Decoding
from cxrlab.models.prompts import asked_indication
from cxrlab.serving.config import Limits
from cxrlab.serving.refusals import invalid, too_large
from cxrlab.serving.wire import ChatRequest, ImagePart, ImageUrl, Message, TextPart, parse_request

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
        text=asked_indication(text) if pictures else text,
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
