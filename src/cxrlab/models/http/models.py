"""Any report model behind an OpenAI-compatible address that takes pictures: a black box that is asked image by image."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cxrlab.core.endpoints import Connection
from cxrlab.core.errors import DataError
from cxrlab.core.llm import replace_lone_surrogates
from cxrlab.core.protocols import REFUSED, Capabilities, Generated
from cxrlab.models.decoding import Decoding
from cxrlab.models.http.client import (
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
    from cxrlab.core.protocols import Image
    from cxrlab.models.baselines import Library

# What a server answers in place of a report: (status, code).
REFUSALS = (
    (403, "refused_by_guard"),
    (403, "account_blocked"),
    *((400, code) for code in OBJECTIONS),
    *((429, code) for code in SPENT),
)
_SLACK = 1e-4  # a resampled or perturbed image may leave [0, 1] by rounding
_DEFAULT = Decoding()


class HttpReportModel:
    """A report model over a connection.

    An image is sent as a PNG of 8 bits at its own size, beside the words of the prompts. How the model chooses its
    words is the server's business: it is asked for temperature 0, a seed and at most 256 tokens. Where the server
    declines,
    the answer has its words and `refused: True`.

    Args:
        client: What sends.
        prompts: What is asked; the default row when None.
    """

    USAGES = MappingProxyType(
        {"http://HOST/v1#MODEL": "any model behind an OpenAI-compatible address that takes pictures (https too)"}
    )

    def __init__(self, client: ChatClient, prompts: Prompts | None = None) -> None:
        self._chat = Chat(client)
        self._prompts = prompts or load_prompts()
        self._lock = threading.Lock()
        self._accounts: dict[str, int] = {}

    @classmethod
    def load(
        cls,
        argument: str,
        library: Library | None = None,
        loading: LoadSettings | None = None,
        *,
        synthetic: bool = False,
    ) -> HttpReportModel:
        """The model at this address; nothing is asked yet.

        Args:
            argument: The address.
            library: Not looked at.
            loading: Connection and prompts.
            synthetic: See `ChatClient`.
        """
        connection, prompts = (loading.connection, loading.prompts) if loading is not None else (None, None)
        return cls(ChatClient(argument, connection, synthetic=synthetic), load_prompts(prompts))

    @property
    def name(self) -> str:
        """The address, as the user wrote it."""
        return self._chat.client.name

    @property
    def capabilities(self) -> Capabilities:
        """It runs elsewhere; several images at once are under way together."""
        return Capabilities(batch=True, black_box=True)

    def generate(self, images: Sequence[Image], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """One answer an image, in order.

        Raises:
            EndpointUnreachable: When nobody listened for any of the images, so that nothing was asked.
            EndpointError: When an image got no answer otherwise.
        """
        return self._answered(images, indications, [0] * len(images))

    def for_accounts(self, accounts: Sequence[str]) -> ReportModelForAccounts:
        """The model as it answers its next images, each asked by the account in the same place.

        The first account that is ever seen asks by the first key of the environment variable, the second by the second
        and so on, from the first again when there are more accounts than keys.
        """
        with self._lock:
            keys = [self._accounts.setdefault(account, len(self._accounts)) for account in accounts]
        return ReportModelForAccounts(self, keys)

    def _answered(
        self, images: Sequence[Image], indications: Sequence[str | None] | None, keys: Sequence[int]
    ) -> list[Generated]:
        reasons = list(indications) if indications is not None else [None] * len(images)
        if not len(images) == len(reasons) == len(keys):
            raise DataError(f"{len(images)} images, {len(reasons)} indications and {len(keys)} accounts do not match.")
        pictures = [_checked(image, number) for number, image in enumerate(images)]
        reached = threading.Event()

        def one(place: int, stop: threading.Event) -> Generated:
            try:
                told = self._ask(pictures[place], reasons[place], keys[place], stop)
            except EndpointUnreachable:
                raise
            except EndpointError:
                reached.set()
                raise
            reached.set()
            return told

        try:
            found = dict(run_concurrently(one, len(pictures), self._chat.client.connection.concurrency))
        except EndpointUnreachable as error:
            if not reached.is_set():
                raise
            told = str(error)
        else:
            return [found[place] for place in range(len(pictures))]
        raise EndpointError(told)  # some images got through: it cannot be said that nothing was asked

    def _ask(self, picture: Any, reason: str | None, key: int, stop: threading.Event) -> Generated:
        asked = replace_lone_surrogates(self._prompts.ask(reason))
        parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": data_url(picture)}}]
        if asked:  # a row that asks nothing leaves the image alone: some servers take no part without a word
            parts.insert(0, {"type": "text", "text": asked})
        try:
            told = self._chat.ask(parts, max_tokens=_DEFAULT.max_new_tokens, seed=_DEFAULT.seed, key=key, stop=stop)
        except EndpointError as error:
            if (error.status, error.code) not in REFUSALS:
                raise
            return Generated(error.said, extra={REFUSED: True})
        if REFUSAL in told.extra and not told.text:
            return Generated(told.extra[REFUSAL], tokens=told.tokens, extra={**told.extra, REFUSED: True})
        if told.extra.get(FINISH_REASON) == FILTERED:
            return Generated("", tokens=told.tokens, extra={**told.extra, REFUSED: True})
        return told


class ReportModelForAccounts:
    """A report model for one batch of images, each of them asked by one of its keys.

    Args:
        reporter: The model.
        keys: Number of the key for each image.
    """

    def __init__(self, reporter: HttpReportModel, keys: Sequence[int]) -> None:
        self._reporter, self._keys = reporter, tuple(keys)

    @property
    def name(self) -> str:
        """The model's."""
        return self._reporter.name

    @property
    def capabilities(self) -> Capabilities:
        """The model's."""
        return self._reporter.capabilities

    def generate(self, images: Sequence[Image], indications: Sequence[str | None] | None = None) -> list[Generated]:
        """One answer an image, in order; as many images as there are accounts."""
        return self._reporter._answered(images, indications, self._keys)


def data_url(picture: Any) -> str:
    """A picture [H, W] or [H, W, 3] in [0, 1] as the data URL of a PNG of 8 bits."""
    from cxrlab.core.image_codec import encode_png, to_uint8

    return f"data:image/png;base64,{base64.b64encode(encode_png(to_uint8(picture))).decode('ascii')}"


def _checked(image: Any, number: int) -> Any:
    """The image as an array, after a look at what would else fail after others were paid for."""
    import numpy as np

    radiograph = np.asarray(image)
    if radiograph.dtype.kind != "f":
        raise DataError(f"image {number} holds {radiograph.dtype}; scale it to float32 in [0, 1] first.")
    if not (radiograph.ndim == 2 or (radiograph.ndim == 3 and radiograph.shape[2] == 3)) or 0 in radiograph.shape:
        raise DataError(f"image {number} has the shape {list(radiograph.shape)}; give [H, W] or [H, W, 3].")
    low, high = float(radiograph.min()), float(radiograph.max())
    if not (low >= -_SLACK and high <= 1 + _SLACK):  # not a number fails both
        raise DataError(f"image {number} holds values from {low:g} to {high:g}; pixels must be in [0, 1].")
    return radiograph


TOO_LONG = "context_length_exceeded"  # OpenAI's code; others say it in words
_TOO_LONG = re.compile(rf"{TOO_LONG}|context (?:length|window|size)", re.I)


class HttpTextModel:
    """A text model over a connection.

    An answer without a word has the server's reason under `finish_reason`; one that was cut has `truncated`.
    What a thinking model writes apart from its answer is passed over.

    Args:
        client: What sends.
    """

    USAGES = MappingProxyType(
        {"http://HOST/v1#MODEL": "any language model behind an OpenAI-compatible address (https too)"}
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
        """The model at this address; nothing is asked yet, and `synthetic` is that of `ChatClient`."""
        return cls(ChatClient(argument, connection, synthetic=synthetic))

    @property
    def name(self) -> str:
        """The address, as the user wrote it."""
        return self._chat.client.name

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """One answer a prompt, in order."""
        found = dict(self.completions(prompts, max_tokens=max_tokens, seed=seed))
        return [found[place] for place in range(len(prompts))]

    def completions(
        self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0
    ) -> Iterator[tuple[int, Generated]]:
        """Place of a prompt and its answer, as they come; after a failure what is under way still comes."""

        def one(place: int, stop: threading.Event) -> Generated:
            try:
                return self._chat.ask(
                    replace_lone_surrogates(prompts[place]), max_tokens=max_tokens, seed=seed, stop=stop
                )
            except EndpointError as error:
                reason = _objection(error)
                if reason is None:
                    raise
                return Generated("", extra={FINISH_REASON: reason})  # one prompt, not the whole run

        return run_concurrently(one, len(prompts), self._chat.client.connection.concurrency)


def _objection(error: EndpointError) -> str | None:
    """What a server has against one prompt: what it says, or its length; None where the whole run is concerned."""
    if error.code in OBJECTIONS:
        return FILTERED
    too_long = error.status in (400, 413, 422) and _TOO_LONG.search(f"{error.code} {error.said}")
    return TOO_LONG if too_long else None
