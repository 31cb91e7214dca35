"""A text model for tests: its answer is a function of the prompt, and it counts what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cxrlab.core.protocols import Generated


class FunctionModel:
    """Answers each prompt with `function(prompt)`.

    Args:
        function: From a prompt to the answer's text, or to a whole `Generated`.
        name: What it calls itself.
        extra: Goes into `Generated.extra` of every answer that is given as text.
    """

    def __init__(
        self,
        function: Callable[[str], str | Generated],
        name: str = "answering",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.prompts: list[str] = []  # every prompt, in the order of asking
        self.calls = 0
        self._function, self._extra = function, dict(extra or {})

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """One answer a prompt; length and seed change nothing."""
        self.calls += 1
        self.prompts.extend(prompts)
        return [self._answer(prompt) for prompt in prompts]

    def _answer(self, prompt: str) -> Generated:
        answer = self._function(prompt)
        return answer if isinstance(answer, Generated) else Generated(answer, extra=self._extra)
