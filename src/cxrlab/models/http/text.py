"""Any language model behind an OpenAI-compatible address: vLLM, Ollama, Azure, OpenAI, `transformers serve`."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from types import MappingProxyType

from cxrlab.core.answer_store import writable
from cxrlab.core.connection import Connection
from cxrlab.core.protocols import Generated
from cxrlab.models.http.chat import FILTERED, FINISH_REASON, OBJECTIONS, Chat
from cxrlab.models.http.client import ChatClient
from cxrlab.models.http.crowd import as_they_come
from cxrlab.models.http.errors import EndpointError
from cxrlab.models.loading import Loading

TOO_LONG = "context_length_exceeded"  # OpenAI's code; others say it in words
_TOO_LONG = re.compile(rf"{TOO_LONG}|context (?:length|window|size)", re.I)


class HttpText:
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
        loading: Loading | None = None,
        *,
        synthetic: bool = False,
    ) -> HttpText:
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
                return self._chat.ask(writable(prompts[place]), max_tokens=max_tokens, seed=seed, stop=stop)
            except EndpointError as error:
                reason = _objection(error)
                if reason is None:
                    raise
                return Generated("", extra={FINISH_REASON: reason})  # one prompt, not the whole run

        return as_they_come(one, len(prompts), self._chat.client.connection.concurrency)


def _objection(error: EndpointError) -> str | None:
    """What a server has against one prompt: what it says, or its length; None where the whole run is concerned."""
    if error.code in OBJECTIONS:
        return FILTERED
    too_long = error.status in (400, 413, 422) and _TOO_LONG.search(f"{error.code} {error.said}")
    return TOO_LONG if too_long else None
