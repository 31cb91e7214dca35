"""Answers of language models in one SQLite file, by what was asked: a second run is free and needs no connection.

An answer is found by the SHA-256 of everything that decides it. Several runs may read and add at the same time; an
answer that stands there is never replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.files import make_file
from cxrlab.core.protocols import Generated

ANSWERS, REQUESTS = "answers.sqlite", "requests.jsonl"  # of a run folder
VERSION = 1
_PATIENCE_S = 60.0  # how long one writer waits for the others
_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, prompt TEXT NOT NULL, text TEXT NOT NULL, tokens INTEGER,
    mean_logprob REAL, extra TEXT NOT NULL) WITHOUT ROWID
"""


def key_of(*parts: object) -> str:
    """The content hash under which an answer is kept: SHA-256 over every part, in order."""
    told = json.dumps([str(part) for part in parts]).encode()  # half a character is escaped, so that it has a hash too
    return hashlib.sha256(told).hexdigest()


class AnswerStore:
    """The file of answers; use it in a `with` block.

    Args:
        path: The file; made when absent. None keeps answers in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        if path is not None:
            make_file(path)
        where = ":memory:" if path is None else str(path)
        try:
            self._file = sqlite3.connect(where, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False)
            self._prepare()
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        except DataError:
            self._file.close()
            raise

    def __len__(self) -> int:
        with self._lock:
            count: int = self._file.execute("SELECT count(*) FROM answers").fetchone()[0]
        return count

    def get(self, key: str) -> Generated | None:
        """The answer under a key; None where nothing was asked yet."""
        with self._lock, self._told():
            row = self._file.execute(
                "SELECT text, tokens, mean_logprob, extra FROM answers WHERE key = ?", (key,)
            ).fetchone()
        if row is None:
            return None
        text, tokens, mean_logprob, extra = row
        return Generated(text, mean_logprob, tokens, json.loads(extra))

    def add(self, key: str, model: str, prompt: str, answer: Generated) -> None:
        """Keep an answer; it is on file when this returns."""
        row = (key, model, writable(prompt), writable(answer.text), answer.tokens, answer.mean_logprob)
        with self._lock, self._told():
            self._file.execute(
                "INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, json.dumps(dict(answer.extra)))
            )

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._file.close()

    def __enter__(self) -> AnswerStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self) -> None:
        """Make the table of a new file, in one piece: another run may be opening the same one."""
        if self._is_new():
            with self._transaction("BEGIN IMMEDIATE"):
                if self._is_new():
                    self._file.execute(_TABLE)
                    self._file.execute(f"PRAGMA user_version = {VERSION}")

    def _is_new(self) -> bool:
        """Whether nothing stands in the file; what another program put there is refused."""
        with contextlib.nullcontext() if self._file.in_transaction else self._transaction("BEGIN"):
            version = self._file.execute("PRAGMA user_version").fetchone()[0]
            tables = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if version != VERSION and (version or tables):
            raise DataError(f"{self.path} is no file of answers that this program reads; name another one.")
        return bool(version != VERSION)

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._file.execute(begin)
        try:
            yield
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def _unusable(self, error: sqlite3.Error) -> RunError | DataError:
        reason = str(error).strip().rstrip(".") or type(error).__name__
        if isinstance(error, sqlite3.OperationalError):
            return RunError(f"cannot use the file of answers {self.path}: {reason}.")
        return DataError(f"{self.path} is damaged or no file of answers ({reason}); name another one.")


def writable(text: str) -> str:
    """Half a character (a lone surrogate) cannot be written down and becomes a question mark."""
    return text.encode("utf-8", "replace").decode()
