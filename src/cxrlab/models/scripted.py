"""A text model that answers from a file: for tests, and for answers that were made elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cxrlab.core.connection import Connection
from cxrlab.core.errors import DataError, nearest
from cxrlab.core.files import sha256_of
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.protocols import Generated
from cxrlab.models.loading import Loading

_KEYS = ("contains", "sha256", "answer", "tokens")


@dataclass(frozen=True)
class _Line:
    """One line: the answer to the prompts that hold a text."""

    contains: str
    answer: Generated


class Scripted:
    """Answers each prompt with the line of a JSONL file that fits it.

    A line is `{"sha256": …, "answer": …}`, for the one prompt of that hash, or `{"contains": …, "answer": …}`,
    for every prompt that holds the text; `tokens` may say how many the answer counts. A hash goes before a
    text, an earlier line before a later one; `"contains": ""` fits every prompt. A prompt that no line fits is an
    error.

    Args:
        file: The JSONL file.

    Attributes:
        fingerprint: Tells these answers from others that stood in the file before; see `models.asked_once`.
    """

    USAGES = MappingProxyType({"scripted:FILE": "the answers of a JSONL file, by what the prompt holds"})

    def __init__(self, file: str) -> None:
        self.file = file
        self._by_hash: dict[str, Generated] = {}
        self._lines: list[_Line] = []
        for number, values in read_jsonl(Path(file)):
            self._take(values, f"{file}:{number}")
        self.fingerprint = sha256_of(file)

    @classmethod
    def load(cls, argument: str, connection: Connection | None = None, loading: Loading | None = None) -> Scripted:
        """The model of this file; there is no connection and there are no weights."""
        return cls(argument)

    @property
    def name(self) -> str:
        """`scripted:FILE`."""
        return f"scripted:{self.file}"

    def complete(self, prompts: Sequence[str], *, max_tokens: int = 512, seed: int = 0) -> list[Generated]:
        """The scripted answer to each prompt; length and seed change nothing."""
        return [self._answer(prompt) for prompt in prompts]

    def _answer(self, prompt: str) -> Generated:
        digest = hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()
        if digest in self._by_hash:
            return self._by_hash[digest]
        for line in self._lines:
            if line.contains in prompt:
                return line.answer
        raise DataError(
            f"{self.file} has no answer to a prompt of {len(prompt):,} characters (sha256 {digest}); add a line for it."
        )

    def _take(self, values: Mapping[str, Any], place: str) -> None:
        for key in values:
            if key not in _KEYS:
                raise DataError(f"{place} has an unknown key '{key}'.{nearest(key, _KEYS)} Keys: {', '.join(_KEYS)}.")
        contains, digest, answer, tokens = (values.get(key) for key in _KEYS)
        if not isinstance(answer, str):
            raise DataError(f"{place} needs a text 'answer'.")
        if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0):
            raise DataError(f"{place}: 'tokens' must be a whole number from 0.")
        given = Generated(answer, tokens=tokens)
        if isinstance(digest, str) and contains is None:
            self._by_hash.setdefault(digest.lower(), given)
        elif isinstance(contains, str) and digest is None:
            self._lines.append(_Line(contains, given))
        else:
            raise DataError(f"{place} needs either a text 'contains' or a text 'sha256'.")
