"""A text model for tests that answers by the content of the prompt and records its prompts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from cxrlab.core.model_interfaces import Generated


def answer(**sections: str | None) -> str:
    """A well-formed answer; sections that are not given are null."""
    return json.dumps({name: sections.get(name) for name in ("examination", "indication", "findings", "impression")})


class FakeModel:
    """Answers each prompt with `reply(prompt)`; `calls` holds the prompts of every call."""

    def __init__(self, reply: Callable[[str], str], name: str = "fake:one", tokens: int | None = 20) -> None:
        self.name = name
        self.calls: list[list[str]] = []
        self._reply = reply
        self._tokens = tokens

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        self.calls.append(list(prompts))
        return [Generated(self._reply(prompt), tokens=self._tokens) for prompt in prompts]

    @property
    def prompts(self) -> list[str]:
        return [prompt for call in self.calls for prompt in call]
