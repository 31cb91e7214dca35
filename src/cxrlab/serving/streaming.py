"""Answers in the form of the protocol: whole, or as server-sent events.

A report is written together with others and read by the guard before any of it leaves, so a stream begins when the
report is complete; it has the form that streaming clients expect, and the same words.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.serving.wire import ChatAnswer, Choice, Usage, Written

DONE = b"data: [DONE]\n\n"
CAUTION_HEADER = "X-Cxrlab-Caution"
_PIECES = re.compile(r"\s*\S+|\s+")


@dataclass(frozen=True)
class Reply:
    """What a request is answered with.

    Args:
        id: Of the request.
        model: The model that has answered.
        texts: The answers.
        cut: For each, whether it was cut at its longest length.
        prompt_tokens: Tokens that were asked, words where the model does not tell.
        answer_tokens: Tokens that were written, words where the model does not tell.
        cautions: Sentences that whoever reads the answers must know.
    """

    id: str
    model: str
    texts: Sequence[str]
    cut: Sequence[bool]
    prompt_tokens: int
    answer_tokens: int
    cautions: Sequence[str] = ()

    @property
    def headers(self) -> dict[str, str]:
        """The cautions for clients that read no field beyond OpenAI's; a header holds ASCII on one line."""
        told = " ".join(" ".join(self.cautions).split()).encode("ascii", "backslashreplace").decode()
        return {CAUTION_HEADER: told} if told else {}

    @property
    def usage(self) -> Usage:
        """What was used."""
        return Usage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.answer_tokens,
            total_tokens=self.prompt_tokens + self.answer_tokens,
        )

    def whole(self) -> ChatAnswer:
        """All of it at once."""
        choices = [
            Choice(index=place, message=Written(content=text), finish_reason=_reason(cut))
            for place, (text, cut) in enumerate(zip(self.texts, self.cut, strict=True))
        ]
        return ChatAnswer(
            id=f"chatcmpl-{self.id}",
            created=int(time.time()),
            model=self.model,
            choices=choices,
            usage=self.usage,
            cautions=list(self.cautions),
        )

    async def events(self, with_usage: bool) -> AsyncIterator[bytes]:
        """Piece by piece; the pieces put together are the texts, character for character."""
        created = int(time.time())
        for choices, usage in self._pieces():
            if usage is not None and not with_usage:
                continue
            chunk: dict[str, Any] = {
                "id": f"chatcmpl-{self.id}",
                "object": "chat.completion.chunk",
                "created": created,
                "model": self.model,
                "choices": choices,
            }
            if self.cautions:
                chunk["cautions"] = list(self.cautions)
            if with_usage:
                chunk["usage"] = usage
            yield f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()
        yield DONE

    def _pieces(self) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any] | None]]:
        for place, (text, cut) in enumerate(zip(self.texts, self.cut, strict=True)):
            yield [_piece(place, {"role": "assistant", "content": ""})], None
            for part in _PIECES.findall(text):
                yield [_piece(place, {"content": part})], None
            yield [_piece(place, {}, _reason(cut))], None
        yield [], self.usage.model_dump()


def _piece(place: int, delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
    return {"index": place, "delta": delta, "finish_reason": reason, "logprobs": None}


def _reason(cut: bool) -> Any:
    return "length" if cut else "stop"
