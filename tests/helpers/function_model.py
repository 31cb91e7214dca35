"""A text model whose answer is a function of the prompt; it records its prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cxrlab.core.model_interfaces import Generated


class FunctionModel:
    """Answers each prompt with `function(prompt)`.

    Args:
        function: Returns the text of the answer, or a `Generated`.
        name: Name of the model.
        extra: `Generated.extra` of every answer given as text.
    """

    def __init__(
        self,
        function: Callable[[str], str | Generated],
        name: str = "answering",
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.prompts: list[str] = []  # in the order of the calls
        self.calls = 0
        self._function, self._extra = function, dict(extra or {})

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """One answer per prompt; length and seed are ignored."""
        self.calls += 1
        self.prompts.extend(prompts)
        return [self._answer(prompt) for prompt in prompts]

    def _answer(self, prompt: str) -> Generated:
        answer = self._function(prompt)
        return answer if isinstance(answer, Generated) else Generated(answer, extra=self._extra)
