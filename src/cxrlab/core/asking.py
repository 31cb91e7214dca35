"""How language models are asked in every role: what is kept, what it may cost, how they are reached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrlab.core.connection import Connection, free_of
from cxrlab.core.errors import ConfigError

_WITHOUT_EFFECT = ("cache", "max_cost", "price_prompt", "price_answer", "loading.download")


@dataclass(frozen=True)
class TextLoading:
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
class Asking:
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
    loading: TextLoading = TextLoading()

    def __post_init__(self) -> None:
        for name in ("max_cost", "price_prompt", "price_answer"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name}={value} is not a price; give a number of at least 0.")
        if self.max_cost is not None and not self.price_prompt and not self.price_answer:
            raise ConfigError("max_cost needs price_prompt or price_answer; without a price nothing costs anything.")


def free_asking(prefix: str = "asking") -> tuple[str, ...]:
    """Dotted names of the settings that may differ when a run goes on, for `Run.open(free=…)`."""
    return (*(f"{prefix}.{name}" for name in _WITHOUT_EFFECT), *free_of(f"{prefix}.connection"))
