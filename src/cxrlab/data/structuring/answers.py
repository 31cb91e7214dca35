"""Answers of a language model, kept by what was asked: a stopped run goes on without asking anything twice.

One line an answer in a JSONL file, in the order in which they came. Only the places of the lines are
held in memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.json_form import dumps
from cxrlab.core.jsonl import JsonlAppender, parse_line
from cxrlab.core.protocols import Generated
from cxrlab.data.structuring.budget import Budget

# Characters of English text to a token, for models that do not count.
_CHARACTERS = 4
_COUNTS = ("prompt_tokens", "tokens")


def key_of(*parts: str | int) -> str:
    """The content hash under which an answer is kept: SHA-256 over every part, in order."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()


def guessed_tokens(text: str) -> int:
    """Tokens of a text, guessed from its length."""
    return math.ceil(len(text) / _CHARACTERS)


def _counted(told: object, text: str) -> int:
    """The model's own count where it is one, else a guess: a count that is none must not spoil the file."""
    return told if type(told) is int and told >= 0 else guessed_tokens(text)


@dataclass(frozen=True)
class Kept:
    """One answer and what it took: its text, tokens asked and tokens answered."""

    text: str
    prompt_tokens: int
    tokens: int


class Answers:
    """The file of answers, open for reading and adding; use it in a `with` block.

    Args:
        path: The file; made when absent.
        budget: Books what every answer cost, those of earlier runs included.
    """

    def __init__(self, path: Path, budget: Budget) -> None:
        self.path = path
        self._budget = budget
        self._places: dict[bytes, int] = {}
        self._lines = JsonlAppender(path)
        self._stream = path.open("rb")
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise RunError(f"{path} is being written by another run; wait for it, or name another file.") from None
        self._end = self._index()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        return bytes.fromhex(key) in self._places

    def __getitem__(self, key: str) -> Kept:
        """The answer under a key."""
        self._stream.seek(self._places[bytes.fromhex(key)])
        record = parse_line(self._stream.readline(), str(self.path))
        return Kept(record["text"], record["prompt_tokens"], record["tokens"])

    def add(self, key: str, prompt: str, answer: Generated) -> None:
        """Keep an answer and book its cost; it is on file when this returns."""
        asked = _counted(answer.extra.get("prompt_tokens"), prompt)
        answered = _counted(answer.tokens, answer.text)
        text = answer.text.encode("utf-8", "replace").decode()  # half a character cannot be written down
        record = {"key": key, "prompt_tokens": asked, "tokens": answered, "text": text}
        self._lines.append(record)
        self._places[bytes.fromhex(key)] = self._end
        self._end += len(dumps(record).encode()) + 1
        self._budget.book(asked, answered)

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._stream.close()
        self._lines.close()

    def __enter__(self) -> Answers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _index(self) -> int:
        """Learn where every answer stands and what it cost; returns the length of the file."""
        place = 0
        for number, line in enumerate(self._stream, 1):
            if line.strip():
                where = f"{self.path}:{number}"
                record = parse_line(line, where)
                self._places[_checked(record, where)] = place
                self._budget.book(*(record[name] for name in _COUNTS))
            place += len(line)
        return place


def _checked(record: dict[str, Any], where: str) -> bytes:
    """The hash of a kept answer; a line that is none is refused."""
    counts = [record.get(name) for name in _COUNTS]
    if isinstance(record.get("text"), str) and all(isinstance(count, int) and count >= 0 for count in counts):
        with contextlib.suppress(ValueError):
            return bytes.fromhex(str(record.get("key")))
    raise DataError(f"{where} is not a kept answer; delete the line, or name another file.")
