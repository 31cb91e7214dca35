"""Text models that count their requests in place of sending them, for plans: number, tokens and price."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from cxrlab.core.egress import EgressData, check_egress, check_encrypted, check_key_recipients, hide_credentials
from cxrlab.core.llm_requests import LLMConfig, estimate_tokens
from cxrlab.core.model_interfaces import Generated, TextRequest
from cxrlab.core.plan import Work
from cxrlab.models.llm_cache import new_budget

NOTE = "answers that are stored already, and requests that follow from an answer, such as another try."


class CountedModels:
    """Counting models by name; what may not be sent to a model is refused, as by `TextModels`."""

    def __init__(self, llm: LLMConfig, data: Iterable[EgressData] = (), *, folder: bool = True) -> None:
        self._llm, self._data, self._folder = llm, tuple(data), folder
        self._open: dict[str, CountedModel] = {}

    def __call__(self, name: str) -> CountedModel:
        """The model of this name."""
        if name not in self._open:
            connection = self._llm.connection
            check_key_recipients((*self._open, name), connection.key_variable)
            check_egress(
                name, self._data, connection.egress_permission, "--llm.connection", has_run_folder=self._folder
            )
            check_encrypted(name, connection, "--llm.connection")
            self._open[name] = CountedModel(name)
        return self._open[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The models that were opened."""
        return tuple(self._open)

    def work(self) -> list[Work]:
        """The requests of each model, with their tokens and, where prices are given, the most that they cost."""
        return [
            request_work(name, len(model.requests), model.prompt_tokens, sum(model.requests.values()), self._llm)
            for name, model in self._open.items()
            if model.requests
        ]


def request_work(model: str, count: int, prompt_tokens: int, answer_tokens: int, llm: LLMConfig) -> Work:
    """Requests to a language model; answers have as many tokens at most."""
    priced = llm.price_prompt or llm.price_answer
    price = new_budget(llm).cost(prompt_tokens, answer_tokens) if priced else None
    name = f"requests to {hide_credentials(model)}"
    return Work(name, "request", count, prompt_tokens=prompt_tokens, answer_tokens=answer_tokens, price=price)


class CountedModel:
    """A text model that keeps its requests and answers nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.requests: dict[tuple[str, int], int] = {}  # prompt and seed → most tokens of the answer

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, estimated from their lengths."""
        return sum(estimate_tokens(prompt) for prompt, _ in self.requests)

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """Empty answers."""
        for prompt in prompts:
            self.requests[prompt, seed] = max_tokens
        return [Generated("") for _ in prompts]

    def find(self, request: TextRequest) -> Generated | None:
        """No answer is stored."""
        return None

    def answers(self, take: Callable[[], TextRequest | None], batch: int) -> Iterator[tuple[TextRequest, Generated]]:
        """Empty answers, in order."""
        while (request := take()) is not None:
            yield request, self.complete([request.prompt], max_tokens=request.max_tokens, seed=request.seed)[0]

    def write_batch(self, requests: Iterable[TextRequest], file: Path | None) -> int:
        """Count requests without sending them."""
        for request in requests:
            self.complete([request.prompt], max_tokens=request.max_tokens, seed=request.seed)
        return len(self.requests)
