"""A cache around a language model: each prompt is sent once, within a cost limit, and every request is recorded.

    answers.sqlite   every answer, unless another file is shared between runs
    requests.jsonl   every request of this run with its answer, and whether it was paid for or cached

An interrupted run continues with the first prompt without an answer.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cxrlab.core.errors import ConfigError, RunError
from cxrlab.core.jsonl import JsonlAppender, read_jsonl
from cxrlab.core.llm_requests import (
    ANSWERS,
    PROMPT_TOKENS,
    REQUESTS,
    AnswerStore,
    Budget,
    LLMConfig,
    answer_key,
    count_tokens,
    estimate_tokens,
    replace_lone_surrogates,
)
from cxrlab.core.model_interfaces import Generated, StreamsAnswers, TextModel, TextRequest
from cxrlab.models.batch_files import BatchAnswers, write_batch
from cxrlab.models.http_models import HttpTextModel

CACHE_VARIABLE = "CXRLAB_ANSWERS"  # a file; CXRLAB_CACHE is a folder of assembled models
_BATCH = 64  # prompts per batch


@runtime_checkable
class StreamsCompletions(Protocol):
    """A text model that yields each answer as it arrives, so that an interruption loses only running requests."""

    def completions(
        self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0
    ) -> Iterator[tuple[int, Generated]]:
        """Index of a prompt and its answer, in any order."""
        ...


@runtime_checkable
class HasFingerprint(Protocol):
    """A text model whose name does not identify its weights."""

    @property
    def fingerprint(self) -> str:
        """Hash of the weights."""
        ...


class CachedTextModel:
    """A text model that sends only prompts without a cached answer; use it in a `with` block, or close it.

    Args:
        llm: Cache file and cost limit.
        folder: Run folder for `requests.jsonl` and, unless another file is named, the answers; None keeps both in
            memory. It is created with the first answer.
        budget: Shared by several models of a run; default: that of `llm`.
    """

    def __init__(
        self,
        model: TextModel,
        llm: LLMConfig | None = None,
        folder: Path | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._model, self._llm, self._folder = model, llm or LLMConfig(), folder
        self.budget = new_budget(self._llm) if budget is None else budget
        self.paid = self.found = 0
        self._batch: BatchAnswers | None = None
        self._store: AnswerStore | None = None
        self._requests: JsonlAppender | None = None
        self._recorded: set[str] = set()

    @property
    def name(self) -> str:
        """The model's."""
        return self._model.name

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """One answer per prompt, in order; repeated prompts are sent once.

        Raises:
            BudgetSpent: Before the limit is exceeded; earlier answers are kept.
        """
        requests = [TextRequest(prompt, max_tokens, seed) for prompt in prompts]
        left = iter(requests)
        answers = dict(self.answers(lambda: next(left, None), batch=len(prompts)))
        return [answers[request] for request in requests]

    def answers(
        self, take: Callable[[], TextRequest | None], batch: int = _BATCH
    ) -> Iterator[tuple[TextRequest, Generated]]:
        """Requests and their answers, as they arrive; each answer is stored before it is yielded.

        A new request is sent as soon as another one is answered, by a model that can take it; others get batches.

        Args:
            take: Returns the next request, None while there is none; called again after each answer.
            batch: Requests per batch.

        Raises:
            BudgetSpent: Before the limit is exceeded, after running requests are answered.
        """
        found: deque[tuple[TextRequest, Generated]] = deque()
        running: dict[str, list[TextRequest]] = {}  # by key; equal requests wait for the first
        held: list[TextRequest] = []  # what the budget does not cover while others run

        def take_missing() -> TextRequest | None:
            """The next request without a stored answer."""
            while request := held.pop() if held else take():
                key = self._key(request)
                if key in running:
                    running[key].append(request)
                elif answer := self.find(request):
                    found.append((request, answer))
                elif not self._affordable(request, [requests[0] for requests in running.values()]):
                    held.append(request)
                    return None
                else:
                    running[key] = [request]
                    return request
            return None

        model = self._model
        more = True
        while more:
            more = False
            if isinstance(model, StreamsAnswers):
                sent = model.answers(take_missing)
            else:
                sent = _batches(model, take_missing, batch)
            for request, given in sent:
                more, key = True, self._key(request)
                answer = self._keep(key, request, given)
                for each in running.pop(key):
                    yield each, answer
                while found:
                    yield found.popleft()
            if running:
                raise RunError(f"{self.name} gave no answer to {len(running)} prompts; use another model.")
            while found:
                more = True
                yield found.popleft()

    def find(self, request: TextRequest) -> Generated | None:
        """The stored answer to a request; None if there is none."""
        key = self._key(request)
        answer = self._open_store().get(key)
        if answer is None and self._batch is not None:
            given = self._batch.get(key, request)
            return None if given is None else self._keep(key, request, given)
        if answer is not None:
            # In a cache of this run only it was paid for by this run: a kill came before its request was recorded.
            own = self._folder is not None and self._cache_file() == self._folder / ANSWERS
            self._record(key, request, answer, paid=own)
        return answer

    def write_batch(self, requests: Iterable[TextRequest], file: Path | None) -> int:
        """Number of different requests, which are written to `file` for a batch endpoint; None counts them only."""
        model, keys = self._endpoint(), set[str]()

        def lines() -> Iterator[dict[str, Any]]:
            for request in requests:
                if (key := self._key(request)) not in keys:
                    keys.add(key)
                    yield model.batch_line(key, request)

        if file is None:
            deque(lines(), maxlen=0)
        else:
            write_batch(lines(), file)
        return len(keys)

    def read_batch(self, files: Sequence[Path]) -> None:
        """Take answers from output files of a batch endpoint before anything is sent."""
        self._batch = BatchAnswers(files, self._endpoint())

    def batch_problems(self) -> str:
        """What is wrong with the answers that were read, as lines of text; see `BatchAnswers.problems`."""
        return "" if self._batch is None else self._batch.problems(self._recorded)

    def _endpoint(self) -> HttpTextModel:
        if isinstance(self._model, HttpTextModel):
            return self._model
        raise ConfigError(f"{self.name} has no batch files; name the model by its address, http(s)://HOST/v1#MODEL.")

    def recall(self) -> None:
        """Count the requests of earlier starts of this run, even if none is left to send."""
        if self._folder is not None and (self._folder / REQUESTS).is_file():
            self._open_requests(self._folder / REQUESTS)

    def close(self) -> None:
        """Close the files; closing twice is allowed, and `complete` opens them again."""
        if self._requests is not None:
            self._requests.close()
        if self._store is not None:
            self._store.close()
        self._store, self._requests = None, None

    def __enter__(self) -> CachedTextModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _key(self, request: TextRequest) -> str:
        weights = self._model.fingerprint if isinstance(self._model, HasFingerprint) else ""
        return answer_key(self.name, weights, request.max_tokens, request.seed, request.prompt)

    def _affordable(self, request: TextRequest, running: Sequence[TextRequest]) -> bool:
        """Whether the budget covers a request beside the running ones; raises if it does not and nothing runs.

        The first is sent alone, to calibrate our estimate of token counts.
        """
        if self.budget.limit is None:
            return True
        if running and not self.paid:
            return False
        estimated = sum(estimate_tokens(one.prompt) for one in (*running, request))
        longest = sum(one.max_tokens for one in (*running, request))
        if not running:
            self.budget.require(estimated, longest)
        return self.budget.covers(estimated, longest)

    def _keep(self, key: str, request: TextRequest, answer: Generated) -> Generated:
        """Store and record an answer that was paid for; another run may have been faster with the same request."""
        store = self._open_store()
        store.add(key, self.name, request.prompt, answer)
        kept = store.get(key) or answer
        self._record(key, request, kept, paid=True)
        return kept

    def _record(self, key: str, request: TextRequest, answer: Generated, *, paid: bool) -> None:
        """Record a request of this run once, with its cost."""
        if key in self._recorded:
            return
        self._recorded.add(key)
        prompt_tokens, tokens = count_tokens(request.prompt, answer)
        self.paid, self.found = self.paid + paid, self.found + (not paid)
        if paid:
            self.budget.add(prompt_tokens, tokens, estimate_tokens(request.prompt))
        if self._requests is not None:
            record = {"id": key, "model": self.name, "max_tokens": request.max_tokens, "seed": request.seed}
            record |= {"paid": paid, PROMPT_TOKENS: prompt_tokens, "tokens": tokens}
            self._requests.append({**record, "prompt": replace_lone_surrogates(request.prompt), "answer": answer.text})

    def _open_store(self) -> AnswerStore:
        if self._store is None:
            self._store = AnswerStore(self._cache_file())
            if self._folder is not None:
                self._open_requests(self._folder / REQUESTS)
        return self._store

    def _open_requests(self, file: Path) -> None:
        """Open the requests and count those of earlier starts of this run."""
        if self._requests is not None:
            return
        self._requests = JsonlAppender(file)  # first, since it removes a line that a kill left incomplete
        for _, record in read_jsonl(file):
            if record.get("model") == self.name and (key := str(record.get("id"))) not in self._recorded:
                self._recorded.add(key)
                self.paid, self.found = self.paid + bool(record.get("paid")), self.found + (not record.get("paid"))
                if record.get("paid"):
                    counts = (record.get(name) for name in (PROMPT_TOKENS, "tokens"))
                    asked, answered = (count if type(count) is int and count >= 0 else 0 for count in counts)
                    self.budget.add(asked, answered, estimate_tokens(str(record.get("prompt"))))

    def _cache_file(self) -> Path | None:
        if self._llm.cache is not None:
            return self._llm.cache
        if shared := os.environ.get(CACHE_VARIABLE):
            return Path(shared)
        return self._folder / ANSWERS if self._folder is not None else None


def new_budget(llm: LLMConfig) -> Budget:
    """The budget of a run, with nothing spent."""
    return Budget(llm.max_cost, llm.price_prompt, llm.price_answer)


def _batches(
    model: TextModel, take: Callable[[], TextRequest | None], size: int
) -> Iterator[tuple[TextRequest, Generated]]:
    """Requests and their answers, batch by batch."""
    while batch := list(islice(iter(take, None), size)):
        for settings in dict.fromkeys((one.max_tokens, one.seed) for one in batch):
            requests = [one for one in batch if (one.max_tokens, one.seed) == settings]
            prompts = [request.prompt for request in requests]
            max_tokens, seed = settings
            if isinstance(model, StreamsCompletions):
                for place, answer in model.completions(prompts, max_tokens=max_tokens, seed=seed):
                    yield requests[place], answer
                continue
            answers = model.complete(prompts, max_tokens=max_tokens, seed=seed)
            if len(answers) != len(prompts):
                raise RunError(
                    f"{model.name} gave {len(answers)} answers to {len(prompts)} prompts; use another model."
                )
            yield from zip(requests, answers, strict=True)
