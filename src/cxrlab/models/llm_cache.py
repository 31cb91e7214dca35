"""A cache around a language model: each prompt is sent once, within a cost limit, and every request is recorded.

    answers.sqlite   every answer, unless another file is shared between runs
    requests.jsonl   every request of this run with its answer, and whether it was paid for or cached

An interrupted run continues with the first prompt without an answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, runtime_checkable

from cxrlab.core.errors import RunError
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
from cxrlab.core.model_interfaces import Generated, TextModel

CACHE_VARIABLE = "CXRLAB_ANSWERS"  # a file; CXRLAB_CACHE is a folder of assembled models
_BATCH = 64  # prompts between two checks of the budget


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
        if not prompts:
            return []
        store = self._open_store()
        weights = self._model.fingerprint if isinstance(self._model, HasFingerprint) else ""
        keys = [answer_key(self.name, weights, max_tokens, seed, prompt) for prompt in prompts]
        answers = {key: found for key in dict.fromkeys(keys) if (found := store.get(key)) is not None}
        known = dict(zip(keys, prompts, strict=True))
        for key, answer in answers.items():
            # In a cache of this run only it was paid for by this run: a kill came before its request was recorded.
            own = self._folder is not None and self._cache_file() == self._folder / ANSWERS
            self._record(key, known[key], answer, max_tokens, seed, paid=own)
        missing = {key: prompt for key, prompt in known.items() if key not in answers}
        while missing:
            part = list(missing)[: self._affordable(list(missing.values()), max_tokens)]
            self._ask({key: missing.pop(key) for key in part}, max_tokens, seed, answers)
        return [answers[key] for key in keys]

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _affordable(self, texts: Sequence[str], max_tokens: int) -> int:
        """How many prompts may be sent at once: all without a limit, else what the budget covers, at least one.

        The first is sent alone, to calibrate our estimate of token counts.
        """
        if self.budget.limit is None:
            return len(texts)
        if not self.paid:
            return 1
        most = sizes = 0
        for text in texts[:_BATCH]:
            sizes += estimate_tokens(text)
            if not self.budget.covers(sizes, max_tokens * (most + 1)):
                break
            most += 1
        return max(most, 1)

    def _ask(self, prompts: Mapping[str, str], max_tokens: int, seed: int, answers: dict[str, Generated]) -> None:
        """Send these prompts if the budget covers them; each answer is stored as it arrives."""
        keys, texts = list(prompts), list(prompts.values())
        self.budget.require(sum(map(estimate_tokens, texts)), max_tokens * len(texts))
        store = self._open_store()
        for place, answer in _stream(self._model, texts, max_tokens, seed):
            key = keys[place]
            store.add(key, self.name, texts[place], answer)
            # As stored: another run may have been faster with the same prompt.
            answers[key] = store.get(key) or answer
            self._record(key, texts[place], answers[key], max_tokens, seed, paid=True)
        if lost := [key for key in keys if key not in answers]:
            raise RunError(f"{self.name} gave no answer to {len(lost)} of {len(keys)} prompts; use another model.")

    def _record(self, key: str, prompt: str, answer: Generated, max_tokens: int, seed: int, *, paid: bool) -> None:
        """Record a request of this run once, with its cost."""
        if key in self._recorded:
            return
        self._recorded.add(key)
        prompt_tokens, tokens = count_tokens(prompt, answer)
        self.paid, self.found = self.paid + paid, self.found + (not paid)
        if paid:
            self.budget.add(prompt_tokens, tokens, estimate_tokens(prompt))
        if self._requests is not None:
            record = {"id": key, "model": self.name, "max_tokens": max_tokens, "seed": seed, "paid": paid}
            record |= {PROMPT_TOKENS: prompt_tokens, "tokens": tokens}
            self._requests.append({**record, "prompt": replace_lone_surrogates(prompt), "answer": answer.text})

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


def _stream(model: TextModel, texts: Sequence[str], max_tokens: int, seed: int) -> Iterator[tuple[int, Generated]]:
    if isinstance(model, StreamsCompletions):
        yield from model.completions(texts, max_tokens=max_tokens, seed=seed)
        return
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        answers = model.complete(batch, max_tokens=max_tokens, seed=seed)
        if len(answers) != len(batch):
            raise RunError(f"{model.name} gave {len(answers)} answers to {len(batch)} prompts; use another model.")
        yield from enumerate(answers, start)
