"""How language models are asked in every role: what is kept, what it may cost, how they are reached."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.connection import Connection, free_of
from cxrlab.core.errors import ConfigError

_WITHOUT_EFFECT = ("cache", "max_cost", "price_prompt", "price_answer")


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
    """

    cache: Path | None = None
    max_cost: float | None = None
    price_prompt: float = 0.0
    price_answer: float = 0.0
    connection: Connection = Connection()

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
