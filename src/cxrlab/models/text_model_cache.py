"""A language model that is asked everything once: answers are kept, paid for within a limit, and written down.

    answers.sqlite   every answer by what was asked, unless a file that runs share is named
    requests.jsonl   every request of this run with its answer, and whether it was paid for or found

A run that was stopped goes on with the first prompt that has no answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from cxrlab.core.errors import RunError
from cxrlab.core.jsonl import JsonlAppender, read_jsonl
from cxrlab.core.llm import (
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
from cxrlab.core.protocols import Generated, TextModel

CACHE_VARIABLE = "CXRLAB_ANSWERS"  # a file; CXRLAB_CACHE is a folder of models that were put together
_AT_ONCE = 64  # prompts between two looks at the purse


@runtime_checkable
class StreamsCompletions(Protocol):
    """A text model that hands out each answer when it is there, so that a stop loses only what was under way."""

    def completions(
        self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0
    ) -> Iterator[tuple[int, Generated]]:
        """Place of the prompt and its answer, in any order."""
        ...


@runtime_checkable
class HasFingerprint(Protocol):
    """A text model whose name does not say which weights it runs: two of one name may answer differently."""

    @property
    def fingerprint(self) -> str:
        """What tells these weights from others."""
        ...


class CachedTextModel:
    """Asks what has no answer yet; use it in a `with` block, or close it.

    Args:
        model: The language model.
        llm: Cache and limit.
        folder: Run folder for `requests.jsonl` and, unless another file is named, the answers; None keeps both in
            memory. It is not made before the first answer comes.
        budget: The purse, where several models of a run share one; that of `llm` when None.
    """

    def __init__(
        self,
        model: TextModel,
        llm: LLMConfig | None = None,
        folder: Path | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._model, self._llm, self._folder = model, llm or LLMConfig(), folder
        self.budget = purse(self._llm) if budget is None else budget
        self.paid = self.found = 0
        self._store: AnswerStore | None = None
        self._requests: JsonlAppender | None = None
        self._written: set[str] = set()

    @property
    def name(self) -> str:
        """The model's."""
        return self._model.name

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """One answer a prompt, in order; a prompt that occurs twice is asked once.

        Raises:
            BudgetSpent: Before more is spent than the limit; what was answered until then is kept.
        """
        if not prompts:
            return []
        store = self._opened()
        keys = [self._key(prompt, max_tokens, seed) for prompt in prompts]
        answers = {key: found for key in dict.fromkeys(keys) if (found := store.get(key)) is not None}
        known = dict(zip(keys, prompts, strict=True))
        for key, answer in answers.items():
            # In a file of this run alone it was paid for by this run: a kill came before its request was written down.
            self._write(key, known[key], answer, max_tokens, seed, paid=self._cache_is_own)
        missing = {key: prompt for key, prompt in known.items() if key not in answers}
        while missing:
            part = list(missing)[: self._affordable(list(missing.values()), max_tokens)]
            self._ask({key: missing.pop(key) for key in part}, max_tokens, seed, answers)
        return [answers[key] for key in keys]

    def recall(self) -> None:
        """Count what earlier starts of this run have asked, also where nothing is left to ask."""
        if self._folder is not None and (self._folder / REQUESTS).is_file():
            self._open_requests(self._folder / REQUESTS)

    def close(self) -> None:
        """Close the files; closing twice is allowed, and asking opens them again."""
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
        """How many prompts may go at once: all without a limit, else what the purse holds, and at least one.

        The first goes alone: it tells how many tokens the model counts where we guess one.
        """
        if self.budget.limit is None:
            return len(texts)
        if not self.paid:
            return 1
        most = sizes = 0
        for text in texts[:_AT_ONCE]:
            sizes += estimate_tokens(text)
            if not self.budget.covers(sizes, max_tokens * (most + 1)):
                break
            most += 1
        return max(most, 1)

    def _ask(self, prompts: Mapping[str, str], max_tokens: int, seed: int, answers: dict[str, Generated]) -> None:
        """Ask these, after making sure that they may be paid for; each answer is kept when it comes."""
        keys, texts = list(prompts), list(prompts.values())
        self.budget.require(sum(map(estimate_tokens, texts)), max_tokens * len(texts))
        store = self._opened()
        for place, answer in _coming(self._model, texts, max_tokens, seed):
            key = keys[place]
            store.add(key, self.name, texts[place], answer)
            # As it is kept: a run that goes on, or another that was faster with the same prompt, finds these words.
            answers[key] = store.get(key) or answer
            self._write(key, texts[place], answers[key], max_tokens, seed, paid=True)
        if lost := [key for key in keys if key not in answers]:
            raise RunError(f"{self.name} left {len(lost)} of {len(keys)} prompts without an answer; use another model.")

    def _key(self, prompt: str, max_tokens: int, seed: int) -> str:
        weights = self._model.fingerprint if isinstance(self._model, HasFingerprint) else ""
        return answer_key(self.name, weights, max_tokens, seed, prompt)

    def _write(self, key: str, prompt: str, answer: Generated, max_tokens: int, seed: int, *, paid: bool) -> None:
        """Note a request of this run, once, and book what it cost."""
        if key in self._written:
            return
        self._written.add(key)
        asked, answered = count_tokens(prompt, answer)
        self.paid, self.found = self.paid + paid, self.found + (not paid)
        if paid:
            self.budget.add(asked, answered, estimate_tokens(prompt))
        if self._requests is not None:
            record = {"id": key, "model": self.name, "max_tokens": max_tokens, "seed": seed, "paid": paid}
            told = {
                PROMPT_TOKENS: asked,
                "tokens": answered,
                "prompt": replace_lone_surrogates(prompt),
                "answer": answer.text,
            }
            self._requests.append({**record, **told})

    def _opened(self) -> AnswerStore:
        if self._store is None:
            self._store = AnswerStore(self._cache())
            if self._folder is not None:
                self._open_requests(self._folder / REQUESTS)
        return self._store

    @property
    def _cache_is_own(self) -> bool:
        return self._folder is not None and self._cache() == self._folder / ANSWERS

    def _open_requests(self, file: Path) -> None:
        """Open the requests before they are counted: that cuts off a line that a kill has torn."""
        if self._requests is None:
            self._requests = JsonlAppender(file)
            self._recall(file)

    def _cache(self) -> Path | None:
        if self._llm.cache is not None:
            return self._llm.cache
        if shared := os.environ.get(CACHE_VARIABLE):
            return Path(shared)
        return self._folder / ANSWERS if self._folder is not None else None

    def _recall(self, file: Path) -> None:
        """What an earlier start of this run has asked this model and paid for."""
        for _, record in read_jsonl(file):
            if record.get("model") == self.name and (key := str(record.get("id"))) not in self._written:
                self._written.add(key)
                self.paid, self.found = self.paid + bool(record.get("paid")), self.found + (not record.get("paid"))
                if record.get("paid"):
                    asked, answered = (_count(record.get(name)) for name in (PROMPT_TOKENS, "tokens"))
                    self.budget.add(asked, answered, estimate_tokens(str(record.get("prompt"))))


def purse(llm: LLMConfig) -> Budget:
    """What a run may spend, with nothing spent."""
    return Budget(llm.max_cost, llm.price_prompt, llm.price_answer)


def _coming(model: TextModel, texts: Sequence[str], max_tokens: int, seed: int) -> Iterator[tuple[int, Generated]]:
    if isinstance(model, StreamsCompletions):
        yield from model.completions(texts, max_tokens=max_tokens, seed=seed)
        return
    for places in _parts(range(len(texts)), _AT_ONCE):
        given = model.complete([texts[place] for place in places], max_tokens=max_tokens, seed=seed)
        if len(given) != len(places):
            raise RunError(f"{model.name} gave {len(given)} answers to {len(places)} prompts; use another model.")
        yield from zip(places, given, strict=True)


def _parts(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), max(1, most)):
        yield items[start : start + max(1, most)]


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0
