"""An answer in pieces, as servers send it that know no other way (`transformers serve` up to 4.57): put together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_DONE = b"[DONE]"


def whole(data: bytes) -> bytes:
    """The completion that server-sent events amount to, as JSON.

    Anything else comes back as it is, and so does a stream that broke off or that ends in an error: half an answer is
    none.
    """
    events = [line[5:].strip() for line in data.splitlines() if line.startswith(b"data:")]
    if not events:
        return data
    try:
        chunks = [json.loads(event) for event in events if event != _DONE]
        return _completion(chunks, ended=_DONE in events) or data
    except (ValueError, TypeError, AttributeError, RecursionError):
        return data


def _completion(chunks: list[Mapping[str, Any]], *, ended: bool) -> bytes | None:
    message = {"content": "", "refusal": ""}
    reason = usage = None
    for chunk in chunks:
        if "error" in chunk:
            return None
        usage = chunk.get("usage") or usage
        for choice in chunk.get("choices") or ():  # some chunks count tokens, or tell of a filter, and have none
            if choice.get("index", 0) == 0:
                reason = choice.get("finish_reason") or reason
                for name in message:
                    message[name] += (choice.get("delta") or {}).get(name) or ""
    if reason is None and not ended:
        return None
    return json.dumps({"choices": [{"message": message, "finish_reason": reason}], "usage": usage}).encode()
