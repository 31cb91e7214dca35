"""Requests to language models: settings, budget, and the store of their answers."""

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
from typing import Literal

from cxrlab.core.egress import Connection, connection_operational_fields
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.files import make_file
from cxrlab.core.model_interfaces import Generated

_OPERATIONAL_FIELDS = ("cache", "max_cost", "price_prompt", "price_answer", "loading.download")


@dataclass(frozen=True)
class LLMLoadSettings:
    """How the weights of a language model on this machine (hf:PATH_OR_ID) are loaded.

    Args:
        device: cpu, cuda, cuda:1 …; auto is the first GPU, else the CPU.
        dtype: float32, bfloat16 or float16 (for GPUs without bfloat16) for the weights; auto keeps the checkpoint's own
            on a GPU, float32 on a CPU.
        trust_remote_code: Run Python files that come with the checkpoint; read them first.
        download: Download a checkpoint that is not on this machine; otherwise nothing is ever downloaded.
        base: Base model of an adapter, when it is not where the adapter's config says.
    """

    device: str = "auto"
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    trust_remote_code: bool = False
    download: bool = False
    base: str | None = None


@dataclass(frozen=True)
class LLMConfig:
    """Settings of requests to a language model.

    Args:
        cache: SQLite file of answers that runs may share; stored answers are not requested again. When left out, that of the
            environment variable CXRLAB_ANSWERS, else answers.sqlite in the run folder.
        max_cost: Stop before this run costs more; no limit when left out.
        price_prompt: Price per 1,000 prompt tokens.
        price_answer: Price per 1,000 generated tokens.
        connection: How a model behind an address is reached.
        loading: How weights on this machine are loaded.
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
            raise ConfigError("max_cost needs price_prompt or price_answer; without a price the cost is always 0.")


def llm_operational_fields(prefix: str = "llm") -> tuple[str, ...]:
    """Dotted names of the settings that may differ on resume, for `Run.open(operational=…)`."""
    return (
        *(f"{prefix}.{name}" for name in _OPERATIONAL_FIELDS),
        *connection_operational_fields(f"{prefix}.connection"),
    )


PROMPT_TOKENS = "prompt_tokens"  # key of an answer's extra values, where the model counts them
_CHARACTERS_PER_TOKEN = 4  # of English text, for models that do not count


class BudgetSpent(RunError):
    """The next batch could cost more than is left."""


@dataclass
class Budget:
    """Tokens used and their price."""

    limit: float | None = None  # Maximum total cost, in the currency of the prices; None for no limit
    price_prompt: float = 0.0  # Per 1,000 prompt tokens
    price_answer: float = 0.0  # Per 1,000 generated tokens
    prompt_tokens: int = 0  # So far
    answer_tokens: int = 0  # So far
    # Largest ratio so far of the model's own count to the estimate from a prompt's length: its tokens may be shorter,
    # and its template adds some.
    tokens_per_estimate: float = 1.0

    @property
    def spent(self) -> float:
        """Total price so far."""
        return self.cost(self.prompt_tokens, self.answer_tokens)

    def cost(self, prompt_tokens: float, answer_tokens: float) -> float:
        return (prompt_tokens * self.price_prompt + answer_tokens * self.price_answer) / 1000

    def add(self, prompt_tokens: int, answer_tokens: int, estimated: int = 0) -> None:
        """Count tokens that were paid for; `estimated` is the estimate for the prompt before it was sent, or 0."""
        self.prompt_tokens += prompt_tokens
        self.answer_tokens += answer_tokens
        if estimated:
            self.tokens_per_estimate = max(self.tokens_per_estimate, prompt_tokens / estimated)

    def covers(self, estimated: int, answer_tokens: int) -> bool:
        """Whether the rest pays for prompts of so many estimated tokens and for the longest possible answers."""
        most = self.cost(estimated * self.tokens_per_estimate, answer_tokens)
        return self.limit is None or self.spent + most <= self.limit

    def require(self, estimated: int, answer_tokens: int) -> None:
        """Raise `BudgetSpent` when a batch of so many tokens may cost more than is left."""
        if not self.covers(estimated, answer_tokens):
            most = self.cost(estimated * self.tokens_per_estimate, answer_tokens)
            raise BudgetSpent(
                f"stopped within the budget: {self.spent:.4f} of the max-cost {self.limit:g} are spent and the next "
                f"batch may cost {most:.4f}; everything so far is kept. Raise --llm.max-cost and run the same command to continue."
            )


def estimate_tokens(text: str) -> int:
    """Tokens of a text, estimated from its length."""
    return math.ceil(len(text) / _CHARACTERS_PER_TOKEN)


def count_tokens(prompt: str, answer: Generated) -> tuple[int, int]:
    """Prompt and answer tokens: the model's own counts where it gives any, else estimates."""
    prompt_tokens, answer_tokens = answer.extra.get(PROMPT_TOKENS), answer.tokens
    return (
        prompt_tokens if type(prompt_tokens) is int and prompt_tokens >= 0 else estimate_tokens(prompt),
        answer_tokens if type(answer_tokens) is int and answer_tokens >= 0 else estimate_tokens(answer.text),
    )


ANSWERS, REQUESTS = "answers.sqlite", "requests.jsonl"  # of a run folder
VERSION = 1
_LOCK_TIMEOUT_S = 60.0
_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY, model TEXT NOT NULL, prompt TEXT NOT NULL, text TEXT NOT NULL, tokens INTEGER,
    mean_logprob REAL, extra TEXT NOT NULL) WITHOUT ROWID
"""


def answer_key(*parts: object) -> str:
    """The key of an answer: SHA-256 over every part, in order."""
    text = json.dumps([str(part) for part in parts])  # lone surrogates are escaped, so that they have a hash too
    return hashlib.sha256(text.encode()).hexdigest()


class AnswerStore:
    """The SQLite file of answers; use it in a `with` block. A path of None keeps answers in memory."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.Lock()
        if path is not None:
            make_file(path)
        where = ":memory:" if path is None else str(path)
        try:
            self._file = sqlite3.connect(where, timeout=_LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
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
        """The answer under a key; None where there is none yet."""
        with self._lock, self._naming_the_file():
            row = self._file.execute(
                "SELECT text, tokens, mean_logprob, extra FROM answers WHERE key = ?", (key,)
            ).fetchone()
        if row is None:
            return None
        text, tokens, mean_logprob, extra = row
        try:
            return Generated(text, mean_logprob, tokens, json.loads(extra))
        except ValueError:
            raise self._damaged() from None

    def add(self, key: str, model: str, prompt: str, answer: Generated) -> None:
        """Store an answer; it is on disk when this returns."""
        texts = map(replace_lone_surrogates, (prompt, answer.text))
        row = (key, model, *texts, answer.tokens, answer.mean_logprob, json.dumps(dict(answer.extra)))
        with self._lock, self._naming_the_file():
            self._file.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._file.close()

    def __enter__(self) -> AnswerStore:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _prepare(self) -> None:
        """Make the table of a new file, in one piece: another run may be opening the same one."""
        if self._is_new():
            with self._transaction("BEGIN IMMEDIATE"):
                if self._is_new():
                    self._file.execute(_TABLE)
                    self._file.execute(f"PRAGMA user_version = {VERSION}")

    def _is_new(self) -> bool:
        """Whether the file is empty; one of another program is a `DataError`."""
        with contextlib.nullcontext() if self._file.in_transaction else self._transaction("BEGIN"):
            version = self._file.execute("PRAGMA user_version").fetchone()[0]
            tables = self._file.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if version != VERSION and (version or tables):
            raise DataError(f"{self.path} is not an answer file of this program; give another one.")
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
    def _naming_the_file(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._unusable(error) from None  # its words may quote an answer

    def _unusable(self, error: sqlite3.Error) -> RunError | DataError:
        # Not SQLite's own error: it is about a text that is no UTF-8, and quotes it.
        if getattr(error, "sqlite_errorcode", None) is None:
            return self._damaged()
        reason = str(error).strip().rstrip(".") or type(error).__name__
        if isinstance(error, sqlite3.OperationalError):
            return RunError(f"cannot use the answer file {self.path}: {reason}.")
        return self._damaged(f" ({reason})")

    def _damaged(self, reason: str = "") -> DataError:
        return DataError(f"{self.path} is damaged or not an answer file{reason}; give another one.")


def replace_lone_surrogates(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot encode, replaced by question marks."""
    return text.encode("utf-8", "replace").decode()
