"""How language models are asked in every role: what is kept, what it may cost, how they are reached."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from cxrlab.core.endpoints import Connection, connection_operational_fields
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import make_file
from cxrlab.core.protocols import Generated

_WITHOUT_EFFECT = ("cache", "max_cost", "price_prompt", "price_answer", "loading.download")


@dataclass(frozen=True)
class LLMLoadSettings:
    """How the weights of a language model on this machine (hf:PATH_OR_ID) are opened.

    Args:
        device: cpu, cuda, cuda:1 …; auto takes the first GPU, else the processor.
        dtype: float32 or bfloat16 for the weights; auto keeps the checkpoint's own on a GPU, float32 on a processor.
        trust_remote_code: Run Python files that come with the checkpoint; read them first.
        download: Fetch a checkpoint that is not on this machine; otherwise nothing is ever fetched.
        base: Model that an adapter stands on, when it is not where the adapter says.
    """

    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    trust_remote_code: bool = False
    download: bool = False
    base: str | None = None


@dataclass(frozen=True)
class LLMConfig:
    """Settings of asking a language model.

    Args:
        cache: SQLite file of answers that runs may share: what stands there is not asked again; that of the environment
            variable CXRLAB_ANSWERS, else answers.sqlite in the run folder, when left out.
        max_cost: Stop before this run costs more; no limit when left out.
        price_prompt: Price of 1,000 tokens asked.
        price_answer: Price of 1,000 tokens answered.
        connection: How a model behind an address is reached.
        loading: How weights on this machine are opened.
    """

    cache: Path | None = None
    max_cost: float | None = None
    price_prompt: float = 0.0
    price_answer: float = 0.0
    connection: Connection = Connection()
    loading: LLMLoadSettings = LLMLoadSettings()

    def __post_init__(self) -> None:
        for name in ("max_cost", "price_prompt", "price_answer"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name}={value} is not a price; give a number of at least 0.")
        if self.max_cost is not None and not self.price_prompt and not self.price_answer:
            raise ConfigError("max_cost needs price_prompt or price_answer; without a price nothing costs anything.")


def llm_operational_fields(prefix: str = "llm") -> tuple[str, ...]:
    """Dotted names of the settings that may differ when a run goes on, for `Run.open(operational=…)`."""
    return (*(f"{prefix}.{name}" for name in _WITHOUT_EFFECT), *connection_operational_fields(f"{prefix}.connection"))


PROMPT_TOKENS = "prompt_tokens"  # key of an answer's extra values, where the model counts them
_CHARACTERS = 4  # of English text to a token, for models that do not count


class BudgetSpent(RunError):
    """The next batch could cost more than is left."""


@dataclass
class Budget:
    """Tokens and their price.

    Args:
        limit: Most that all kept answers together may cost, in the currency of the prices; None for no limit.
        price_prompt: Price of 1,000 tokens asked.
        price_answer: Price of 1,000 tokens answered.
        prompt_tokens: Tokens asked so far.
        answer_tokens: Tokens answered so far.
        tokens_per_estimate: Tokens, by the model's count, that a estimated token of a prompt was at most: its words may be shorter
            than English ones, and its template adds some.
    """

    limit: float | None = None
    price_prompt: float = 0.0
    price_answer: float = 0.0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    tokens_per_estimate: float = 1.0

    @property
    def spent(self) -> float:
        """Price of everything booked."""
        return self.cost(self.prompt_tokens, self.answer_tokens)

    def cost(self, prompt_tokens: float, answer_tokens: float) -> float:
        """Price of so many tokens."""
        return (prompt_tokens * self.price_prompt + answer_tokens * self.price_answer) / 1000

    def add(self, prompt_tokens: int, answer_tokens: int, estimated: int = 0) -> None:
        """Count tokens that were paid for.

        Args:
            prompt_tokens: Tokens asked.
            answer_tokens: Tokens answered.
            estimated: How many the prompt was taken for; 0 where nobody estimated.
        """
        self.prompt_tokens += prompt_tokens
        self.answer_tokens += answer_tokens
        if estimated:
            self.tokens_per_estimate = max(self.tokens_per_estimate, prompt_tokens / estimated)

    def covers(self, estimated: int, answer_tokens: int) -> bool:
        """Whether what is left pays for prompts of so many estimated tokens and for the most that can be answered."""
        return (
            self.limit is None
            or self.spent + self.cost(estimated * self.tokens_per_estimate, answer_tokens) <= self.limit
        )

    def require(self, estimated: int, answer_tokens: int) -> None:
        """Refuse with `BudgetSpent` what may cost more than is left.

        Args:
            estimated: Tokens that will be asked, estimated.
            answer_tokens: The most that can be answered.
        """
        if not self.covers(estimated, answer_tokens):
            most = self.cost(estimated * self.tokens_per_estimate, answer_tokens)
            raise BudgetSpent(
                f"stopped before spending: {self.spent:.4f} of the max-cost {self.limit:g} are spent and the next "
                f"batch may cost {most:.4f}; everything so far is kept. Raise it and run the same command to go on."
            )


def estimate_tokens(text: str) -> int:
    """Tokens of a text, estimated from its length."""
    return math.ceil(len(text) / _CHARACTERS)


def count_tokens(prompt: str, answer: Generated) -> tuple[int, int]:
    """Tokens asked and answered: the model's own counts where it gives any, else a guess."""
    asked, answered = answer.extra.get(PROMPT_TOKENS), answer.tokens
    return (
        asked if type(asked) is int and asked >= 0 else estimate_tokens(prompt),
        answered if type(answered) is int and answered >= 0 else estimate_tokens(answer.text),
    )


ANSWERS, REQUESTS = "answers.sqlite", "requests.jsonl"  # of a run folder
VERSION = 1
_PATIENCE_S = 60.0  # how long one writer waits for the others
_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, prompt TEXT NOT NULL, text TEXT NOT NULL, tokens INTEGER,
    mean_logprob REAL, extra TEXT NOT NULL) WITHOUT ROWID
"""


def answer_key(*parts: object) -> str:
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
        row = (
            key,
            model,
            replace_lone_surrogates(prompt),
            replace_lone_surrogates(answer.text),
            answer.tokens,
            answer.mean_logprob,
        )
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


def replace_lone_surrogates(text: str) -> str:
    """Half a character (a lone surrogate) cannot be written down and becomes a question mark."""
    return text.encode("utf-8", "replace").decode()
