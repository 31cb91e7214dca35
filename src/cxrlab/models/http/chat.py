"""One question and its answer in the protocol of chat completions, always by the same settings.

Temperature 0 and a seed; a server that knows one of the settings by another name, or not at all, is asked again
without it, once for all.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from cxrlab.core.budget import PROMPT_TOKENS
from cxrlab.core.protocols import CAUTIONS, Generated
from cxrlab.models.decoding import TRUNCATED
from cxrlab.models.http.client import ChatClient
from cxrlab.models.http.errors import EndpointError, names

FINISH_REASON = "finish_reason"  # of an answer without a word: why the server stopped
REFUSAL = "refusal"  # words that a server keeps apart from the answer because they decline to give one
UNHEEDED = "unheeded"  # settings that the server does not know, so that the answer need not be the same next time
FILTERED = "content_filter"  # code and finish reason of what a provider's filter stopped
OBJECTIONS = (FILTERED, "invalid_prompt")  # codes of a refusal of one prompt for what it says; the second is OpenAI's
_MOST_TOKENS = 10**9  # of one question or answer; a server that counts more cannot count
_LONGER_NAME = {"max_tokens": "max_completion_tokens"}
_UNSUPPORTED = re.compile(r"unsupported|not support|not permitted|unrecogni[sz]ed|unknown|extra_forbidden", re.I)


class Chat:
    """Asks a server and remembers which settings it knows.

    Args:
        client: What sends.
    """

    def __init__(self, client: ChatClient) -> None:
        self.client = client
        # Setting → its name at this server; None where it has none. Threads may all find out the same at once.
        self._known: dict[str, str | None] = {name: name for name in ("temperature", "seed", "max_tokens")}

    def ask(
        self,
        content: str | Sequence[Mapping[str, Any]],
        *,
        max_tokens: int,
        seed: int,
        key: int = 0,
        stop: threading.Event | None = None,
    ) -> Generated:
        """The answer to one message of a user.

        Args:
            content: A text, or parts of text and pictures.
            max_tokens: Longest answer.
            seed: For servers that draw.
            key: Which of the keys asks.
            stop: Once set, nothing new is tried.
        """
        messages = [{"role": "user", "content": content}]
        values = {"temperature": 0, "seed": seed, "max_tokens": max_tokens}
        while True:
            known = dict(self._known)
            settings = {name: values[own] for own, name in known.items() if name is not None}
            try:
                found = self.client.ask({"messages": messages, **settings}, key=key, stop=stop)
            except EndpointError as error:
                if not self._adapt(error, known):
                    raise
                continue
            return answer_of(found, [name for name in ("temperature", "seed") if known[name] is None])

    def _adapt(self, error: EndpointError, known: Mapping[str, str | None]) -> bool:
        """Whether the server objected to a setting that can be named otherwise or left out; each but once."""
        if error.status not in (400, 422):
            return False
        for own, name in known.items():
            blamed = name is not None and (error.param == name or names(error.said, name))
            if name is None or not blamed or not _UNSUPPORTED.search(f"{error.code} {error.said}"):
                continue
            longer = _LONGER_NAME.get(own)
            if longer is None:
                self._known[own] = None
                return True
            if name != longer and names(error.said, longer):
                self._known[own] = longer
                return True
        return False


def answer_of(found: Mapping[str, Any], unheeded: Sequence[str] = ()) -> Generated:
    """The answer in a completion: its words, or none and the reason; never words that the server did not give.

    Args:
        found: The JSON of a completion with at least one choice.
        unheeded: Settings that the server does not know.
    """
    choice = found["choices"][0]
    message, reason = choice["message"], choice.get("finish_reason")
    text = _text(message.get("content"))
    usage = found.get("usage")
    counted = usage if isinstance(usage, dict) else {}
    extra: dict[str, Any] = {}
    if (asked := _count(counted.get("prompt_tokens"))) is not None:
        extra[PROMPT_TOKENS] = asked
    if reason == "length" or (reason == FILTERED and text):  # a filter may stop an answer in the middle
        extra[TRUNCATED] = True
    if not text:
        extra[FINISH_REASON] = reason if isinstance(reason, str) else None
    if isinstance(message.get("refusal"), str) and message["refusal"].strip():
        extra[REFUSAL] = message["refusal"].strip()
    if isinstance(told := found.get(CAUTIONS), list) and (said := [one for one in told if isinstance(one, str)]):
        extra[CAUTIONS] = said
    if unheeded:
        extra[UNHEEDED] = list(unheeded)
    return Generated(text, tokens=_count(counted.get("completion_tokens")), extra=extra)


def _text(content: Any) -> str:
    """The words of an answer, which some servers give in parts; nothing where there are none."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        content = "".join(part for part in parts if isinstance(part, str))
    return content.strip() if isinstance(content, str) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None
