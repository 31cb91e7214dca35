"""Report models and text models behind an OpenAI-compatible endpoint, as black boxes."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from cxrlab.core.egress import Connection
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.llm_requests import replace_lone_surrogates
from cxrlab.core.model_interfaces import REFUSED, Capabilities, Generated, TextRequest
from cxrlab.models.decoding import Decoding
from cxrlab.models.http_client import (
    FILTERED,
    FINISH_REASON,
    OBJECTIONS,
    REFUSAL,
    SPENT,
    Chat,
    ChatClient,
    EndpointError,
    EndpointUnreachable,
    run_concurrently,
)
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.prompts import Prompts, load_prompts

if TYPE_CHECKING:
    from cxrlab.core.model_interfaces import Image
    from cxrlab.models.baselines import Library

# Refusals that stand in place of a report: (status, code).
REFUSALS = (
    (403, "refused_by_guard"),
    (403, "account_blocked"),
    *((400, code) for code in OBJECTIONS),
    *((429, code) for code in SPENT),
)
_SLACK = 1e-4  # a resampled or perturbed image may leave [0, 1] by rounding
_DEFAULT = Decoding()
Answered = TypeVar("Answered")  # to one image: an answer, or several


class HttpReportModel:
    """A report model at an endpoint.

    An image is sent as an 8-bit PNG at its own size, with the prompt. `generate` requests temperature 0, a seed and at
    most 256 tokens. `answers` takes greedy decoding and sampling, several answers in one request where the server allows
    it, and requests log-probabilities. A refusal of the server is an answer with `refused: True`.
    """

    USAGES = MappingProxyType(
        {"http://HOST/v1#MODEL": "any model at an OpenAI-compatible address that accepts images (https too)"}
    )

    def __init__(self, client: ChatClient, prompts: Prompts | None = None) -> None:
        self._chat = Chat(client)
        self._prompts = prompts or load_prompts()
        self._lock = threading.Lock()
        self._accounts: dict[str, int] = {}
        self._stop: threading.Event | None = None

    @classmethod
    def load(
        cls,
        argument: str,
        library: Library | None = None,
        loading: LoadSettings | None = None,
        *,
        synthetic: bool = False,
    ) -> HttpReportModel:
        """The model at an address; no request is sent yet. `library` is not used."""
        connection, prompts = (loading.connection, loading.prompts) if loading is not None else (None, None)
        return cls(ChatClient(argument, connection, synthetic=synthetic), load_prompts(prompts))

    @property
    def name(self) -> str:
        """The address, as the user wrote it."""
        return self._chat.client.name

    @property
    def capabilities(self) -> Capabilities:
        """A black box; a batch of images is sent concurrently."""
        return Capabilities(batch=True, black_box=True)

    def generate(self, images: Sequence[Image], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """One answer per image, in order.

        Raises:
            EndpointUnreachable: If no request reached the server.
            EndpointError: If an image got no answer otherwise.
        """
        return self.generate_with_keys(images, indications, [0] * len(images))

    @property
    def concurrency(self) -> int:
        """Most simultaneous requests."""
        return self._chat.client.connection.concurrency

    def until(self, stop: threading.Event) -> HttpReportModel:
        """The same model, which retries nothing once `stop` is set."""
        bound = copy.copy(self)
        bound._stop = stop
        return bound

    def answers(
        self,
        images: Sequence[Image],
        indications: Sequence[str | None] | None = None,
        decoding: Decoding | None = None,
    ) -> list[list[Generated]]:
        """`decoding.answers` answers for each image; a refusal is the only answer to its image.

        Samples of an image are drawn by the server from a seed that depends on the image, its prompt and
        `decoding.seed`. Their log-probabilities are those that the server gives.
        """
        chosen = decoding or _DEFAULT
        if chosen.strategy not in ("greedy", "sample"):
            raise ConfigError(
                f"strategy={chosen.strategy} is not part of the protocol of '{self.name}'; give "
                "--decoding.strategy greedy or sample."
            )
        return self._of_each(images, indications, [0] * len(images), partial(self._several, chosen))

    def for_accounts(self, accounts: Sequence[str]) -> ReportModelForAccounts:
        """The model for one batch of images, each sent by the account at the same position.

        Accounts take the API keys of the environment variable in the order in which they first appear, cyclically.
        """
        with self._lock:
            keys = [self._accounts.setdefault(account, len(self._accounts)) for account in accounts]
        return ReportModelForAccounts(self, keys)

    def generate_with_keys(
        self, images: Sequence[Image], indications: Sequence[str | None] | None, keys: Sequence[int]
    ) -> list[Generated]:
        """`generate`, with the index of the API key that sends each image."""
        return self._of_each(images, indications, keys, self._one)

    def _of_each(
        self,
        images: Sequence[Image],
        indications: Sequence[str | None] | None,
        keys: Sequence[int],
        ask: Callable[[list[dict[str, Any]], int, threading.Event], Answered],
    ) -> list[Answered]:
        """What `ask` returns for the parts of each image's message, in order; it also gets the key and `stop`."""
        reasons = list(indications) if indications is not None else [None] * len(images)
        if not len(images) == len(reasons) == len(keys):
            raise DataError(f"{len(images)} images, {len(reasons)} indications and {len(keys)} accounts do not match.")
        pictures = [_checked(image, number) for number, image in enumerate(images)]
        reached = threading.Event()

        def one(place: int, stop: threading.Event) -> Answered:
            try:
                answer = ask(self._parts(pictures[place], reasons[place]), keys[place], self._stop or stop)
            except EndpointUnreachable:
                raise
            except EndpointError:
                reached.set()
                raise
            reached.set()
            return answer

        try:
            places = iter(range(len(pictures)))
            found = dict(run_concurrently(one, lambda: next(places, None), self.concurrency))
        except EndpointUnreachable as error:
            if not reached.is_set():
                raise
            message = str(error)
        else:
            return [found[place] for place in range(len(pictures))]
        raise EndpointError(message)  # some images were sent, so the server was not unreachable

    def _parts(self, picture: Any, reason: str | None) -> list[dict[str, Any]]:
        prompt = replace_lone_surrogates(self._prompts.ask(reason))
        parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": data_url(picture)}}]
        if prompt:  # some servers refuse an empty text part
            parts.insert(0, {"type": "text", "text": prompt})
        return parts

    def _one(self, parts: list[dict[str, Any]], key: int, stop: threading.Event) -> Generated:
        settings = {"temperature": 0, "seed": _DEFAULT.seed, "max_tokens": _DEFAULT.max_new_tokens}
        return self._request(parts, settings, key, stop)[0]

    def _several(
        self, decoding: Decoding, parts: list[dict[str, Any]], key: int, stop: threading.Event
    ) -> list[Generated]:
        """All answers of one image: in one request, or in several from a server that gives fewer at a time."""
        settings: dict[str, Any] = {"temperature": 0, "seed": decoding.seed, "max_tokens": decoding.max_new_tokens}
        if decoding.strategy == "sample":
            text = json.dumps([decoding.seed, parts]).encode()
            seed = int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1  # servers take 31 bits
            settings |= {"temperature": decoding.temperature, "top_p": decoding.top_p, "seed": seed}
        found: list[Generated] = []
        while len(found) < decoding.answers:
            left = decoding.answers - len(found)
            more: dict[str, Any] = {"logprobs": True, **({"n": left} if left > 1 else {})}
            now = {**settings, **more, "seed": (settings["seed"] + len(found)) % (1 << 31)}
            answers = self._request(parts, now, key, stop)[:left]
            found += [answer for answer in answers if not answer.refused]
            if any(answer.refused for answer in answers):  # it would refuse this image again
                return found or answers[:1]
        return found

    def _request(
        self, parts: list[dict[str, Any]], settings: Mapping[str, Any], key: int, stop: threading.Event
    ) -> list[Generated]:
        """The answers to one request; refusals are marked."""
        try:
            answers = self._chat.answers(parts, settings, key=key, stop=stop)
        except EndpointError as error:
            if (error.status, error.code) not in REFUSALS:
                raise
            return [Generated(error.server_message, extra={REFUSED: True})]
        return [_marked(answer) for answer in answers]


def _marked(answer: Generated) -> Generated:
    """The answer, marked if it is a refusal."""
    if REFUSAL in answer.extra and not answer.text:
        return replace(answer, text=answer.extra[REFUSAL], extra={**answer.extra, REFUSED: True})
    if answer.extra.get(FINISH_REASON) == FILTERED:
        return Generated("", tokens=answer.tokens, extra={**answer.extra, REFUSED: True})
    return answer


class ReportModelForAccounts:
    """A report model for one batch of images, each of them sent with its own API key."""

    def __init__(self, model: HttpReportModel, keys: Sequence[int]) -> None:
        self._model, self._keys = model, tuple(keys)
        self.name, self.capabilities = model.name, model.capabilities

    def generate(self, images: Sequence[Image], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """One answer per image, in order; as many images as there are accounts."""
        return self._model.generate_with_keys(images, indications, self._keys)


def data_url(picture: Any) -> str:
    """An image [H, W] or [H, W, 3] in [0, 1] as the data URL of an 8-bit PNG."""
    from cxrlab.core.image_codec import encode_png, to_uint8

    return f"data:image/png;base64,{base64.b64encode(encode_png(to_uint8(picture))).decode('ascii')}"


def _checked(image: Any, number: int) -> Any:
    """The image as an array, checked before any image of the batch is sent (and paid for)."""
    import numpy as np

    array = np.asarray(image)
    if array.dtype.kind != "f":
        raise DataError(f"image {number} holds {array.dtype}; scale it to float32 in [0, 1] first.")
    if not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)) or 0 in array.shape:
        raise DataError(f"image {number} has the shape {list(array.shape)}; give [H, W] or [H, W, 3].")
    low, high = float(array.min()), float(array.max())
    if not (low >= -_SLACK and high <= 1 + _SLACK):  # NaN fails both
        raise DataError(f"image {number} holds values from {low:g} to {high:g}; pixels must be in [0, 1].")
    return array


TOO_LONG = "context_length_exceeded"  # OpenAI's code; other servers write a sentence
_TOO_LONG = re.compile(rf"{TOO_LONG}|context (?:length|window|size)", re.I)


class HttpTextModel:
    """A text model at an endpoint.

    An empty answer has the server's reason under `finish_reason`; a cut one has `truncated`. Reasoning that a server
    sends apart from the answer is ignored.
    """

    USAGES = MappingProxyType(
        {"http://HOST/v1#MODEL": "any language model at an OpenAI-compatible address (https too)"}
    )

    def __init__(self, client: ChatClient) -> None:
        self._chat = Chat(client)

    @classmethod
    def load(
        cls,
        argument: str,
        connection: Connection | None = None,
        loading: LoadSettings | None = None,
        *,
        synthetic: bool = False,
    ) -> HttpTextModel:
        """The model at an address; no request is sent yet."""
        return cls(ChatClient(argument, connection, synthetic=synthetic))

    @property
    def name(self) -> str:
        """The address, as the user wrote it."""
        return self._chat.client.name

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """One answer per prompt, in order."""
        requests = [TextRequest(prompt, max_tokens, seed) for prompt in prompts]
        left = iter(requests)
        found = dict(self.answers(lambda: next(left, None)))
        return [found[request] for request in requests]

    def answers(self, take: Callable[[], TextRequest | None]) -> Iterator[tuple[TextRequest, Generated]]:
        """Requests and their answers, as they arrive; after a failure running requests still finish.

        Args:
            take: Returns the next request, None while there is none; called again after each answer.
        """

        def one(request: TextRequest, stop: threading.Event) -> Generated:
            text = replace_lone_surrogates(request.prompt)
            try:
                return self._chat.ask(text, max_tokens=request.max_tokens, seed=request.seed, stop=stop)
            except EndpointError as error:
                return _refused_prompt(error)

        return run_concurrently(one, take, self._chat.client.connection.concurrency)

    def batch_line(self, key: str, request: TextRequest) -> dict[str, Any]:
        """A request as a line of a file for a batch endpoint."""
        text = replace_lone_surrogates(request.prompt)
        url = urlsplit(self._chat.client.address.url("chat/completions")).path
        body = self._chat.request(text, max_tokens=request.max_tokens, seed=request.seed)
        return {"custom_id": key, "method": "POST", "url": url, "body": body}

    def answer_in_batch(self, line: Mapping[str, Any], request: TextRequest) -> Generated:
        """The answer in a line that a batch endpoint wrote, as a live request would give it.

        Raises:
            EndpointError: If the line holds none.
        """
        response = line.get("response")
        response = response if isinstance(response, dict) else {}
        status, body = response.get("status_code"), response.get("body")
        if type(status) is not int or body is None:  # never sent: expired or cancelled
            status, body = 0, {"error": line.get("error")}
        try:
            return self._chat.answer_in(json.dumps(body).encode(), status, replace_lone_surrogates(request.prompt))
        except EndpointError as error:
            return _refused_prompt(error)


def _refused_prompt(error: EndpointError) -> Generated:
    """The empty answer to a prompt that was refused for its content or length, which ends no run; else raises."""
    if error.code in OBJECTIONS:
        return Generated("", extra={FINISH_REASON: FILTERED})
    if error.status in (400, 413, 422) and _TOO_LONG.search(f"{error.code} {error.server_message}"):
        return Generated("", extra={FINISH_REASON: TOO_LONG})
    raise error
