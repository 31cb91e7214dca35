"""A language model that is asked everything once: answers are kept, paid for within a limit, and written down.

    answers.sqlite   every answer by what was asked, unless a file that runs share is named
    requests.jsonl   every request of this run with its answer, and whether it was paid for or found

A run that was stopped goes on with the first prompt that has no answer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from cxrlab.core.answer_store import ANSWERS, AnswerStore, key_of
from cxrlab.core.asking import Asking
from cxrlab.core.budget import Budget
from cxrlab.core.errors import RunError
from cxrlab.core.jsonl import JsonlAppender, read_jsonl
from cxrlab.core.protocols import Generated, TextModel

REQUESTS = "requests.jsonl"
CACHE_VARIABLE = "CXRLAB_CACHE"
PROMPT_TOKENS = "prompt_tokens"  # key of an answer's extra values, where the model counts them
_AT_ONCE = 64  # prompts between two looks at the purse
_CHARACTERS = 4  # of English text to a token, for models that do not count


@runtime_checkable
class AnswersAsTheyCome(Protocol):
    """A text model that hands out each answer when it is there, so that a stop loses only what was under way."""

    def completions(
        self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0
    ) -> Iterator[tuple[int, Generated]]:
        """Place of the prompt and its answer, in any order."""
        ...


@runtime_checkable
class KnowsItsWeights(Protocol):
    """A text model whose name does not say which weights it runs: two of one name may answer differently."""

    @property
    def fingerprint(self) -> str:
        """What tells these weights from others."""
        ...


class AskedOnce:
    """Asks what has no answer yet; use it in a `with` block, or close it.

    Args:
        model: The language model.
        asking: Cache and limit.
        folder: Run folder for `requests.jsonl` and, unless another file is named, the answers; None keeps both in
            memory. It is not made before the first answer comes.
    """

    def __init__(self, model: TextModel, asking: Asking | None = None, folder: Path | None = None) -> None:
        self._model, self._asking, self._folder = model, asking or Asking(), folder
        self.budget = Budget(self._asking.max_cost, self._asking.price_prompt, self._asking.price_answer)
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
            self._write(key, known[key], answer, max_tokens, seed, paid=False)
        missing = {key: prompt for key, prompt in known.items() if key not in answers}
        for part in _parts(list(missing), _AT_ONCE if self.budget.limit is not None else len(missing)):
            self._ask({key: missing[key] for key in part}, max_tokens, seed, answers)
        return [answers[key] for key in keys]

    def close(self) -> None:
        """Close the files; closing twice is allowed, and asking opens them again."""
        if self._requests is not None:
            self._requests.close()
        if self._store is not None:
            self._store.close()
        self._store, self._requests = None, None

    def __enter__(self) -> AskedOnce:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, prompts: Mapping[str, str], max_tokens: int, seed: int, answers: dict[str, Generated]) -> None:
        """Ask these, after making sure that they may be paid for; each answer is kept when it comes."""
        keys, texts = list(prompts), list(prompts.values())
        self.budget.allow(sum(map(guessed_tokens, texts)), max_tokens * len(texts))
        store = self._opened()
        for place, answer in _coming(self._model, texts, max_tokens, seed):
            key = keys[place]
            store.add(key, self.name, texts[place], answer)
            answers[key] = answer
            self._write(key, texts[place], answer, max_tokens, seed, paid=True)
        if lost := [key for key in keys if key not in answers]:
            raise RunError(f"{self.name} left {len(lost)} of {len(keys)} prompts without an answer; use another model.")

    def _key(self, prompt: str, max_tokens: int, seed: int) -> str:
        weights = self._model.fingerprint if isinstance(self._model, KnowsItsWeights) else ""
        return key_of(self.name, weights, max_tokens, seed, prompt)

    def _write(
        self, key: str, prompt: str, answer: Generated, max_tokens: int, seed: int, *, paid: bool
    ) -> None:
        """Note a request of this run, once, and book what it cost."""
        if key in self._written:
            return
        self._written.add(key)
        asked, answered = tokens_of(prompt, answer)
        self.paid, self.found = self.paid + paid, self.found + (not paid)
        if paid:
            self.budget.book(asked, answered)
        if self._requests is not None:
            record = {"id": key, "model": self.name, "max_tokens": max_tokens, "seed": seed, "paid": paid}
            told = {PROMPT_TOKENS: asked, "tokens": answered, "prompt": prompt, "answer": answer.text}
            self._requests.append({**record, **told})

    def _opened(self) -> AnswerStore:
        if self._store is None:
            self._store = AnswerStore(self._cache())
            if self._folder is not None:
                self._requests = JsonlAppender(self._folder / REQUESTS)
                self._recall(self._folder / REQUESTS)
        return self._store

    def _cache(self) -> Path | None:
        if self._asking.cache is not None:
            return self._asking.cache
        if shared := os.environ.get(CACHE_VARIABLE):
            return Path(shared)
        return self._folder / ANSWERS if self._folder is not None else None

    def _recall(self, file: Path) -> None:
        """What an earlier start of this run has asked and paid for."""
        for _, record in read_jsonl(file):
            if (key := str(record.get("id"))) not in self._written:
                self._written.add(key)
                self.paid, self.found = self.paid + bool(record.get("paid")), self.found + (not record.get("paid"))
                if record.get("paid"):
                    self.budget.book(_count(record.get(PROMPT_TOKENS)), _count(record.get("tokens")))


def guessed_tokens(text: str) -> int:
    """Tokens of a text, guessed from its length."""
    return math.ceil(len(text) / _CHARACTERS)


def tokens_of(prompt: str, answer: Generated) -> tuple[int, int]:
    """Tokens asked and answered: the model's own counts where it gives any, else a guess."""
    asked, answered = answer.extra.get(PROMPT_TOKENS), answer.tokens
    return (
        asked if type(asked) is int and asked >= 0 else guessed_tokens(prompt),
        answered if type(answered) is int and answered >= 0 else guessed_tokens(answer.text),
    )


def _coming(model: TextModel, texts: Sequence[str], max_tokens: int, seed: int) -> Iterator[tuple[int, Generated]]:
    if isinstance(model, AnswersAsTheyCome):
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
