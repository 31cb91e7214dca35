"""What an audit may spend, what it has spent, and under whose leave."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from cxrlab.core.errors import ConfigError


@dataclass(frozen=True)
class Price:
    """What the victim's owner charges; all zero where nobody does.

    Args:
        per_query: For each picture that is put to the victim, refusals included.
        per_1k_tokens: For each thousand tokens of its answers.
        currency: Unit of the money, such as USD.
    """

    per_query: float = 0.0
    per_1k_tokens: float = 0.0
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name in ("per_query", "per_1k_tokens"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigError(f"{name}={value} is not a price; give a number of at least 0.")

    def of(self, tokens: int | None) -> float:
        """Price of one answer; where its tokens are unknown they are left out, see `Cost.unknown`."""
        return self.per_query + self.per_1k_tokens * (tokens or 0) / 1000.0

    def told(self, budget: int) -> str:
        """What a budget costs, in words."""
        if not self.per_query and not self.per_1k_tokens:
            return "without a price"
        most = f"{self.per_query:g} {self.currency} each, {self.per_query * budget:,.2f} {self.currency} together"
        more = f"{self.per_1k_tokens:g} {self.currency} for each 1,000 tokens of answers"
        return " and ".join(part for part, due in ((most, self.per_query), (more, self.per_1k_tokens)) if due)


@dataclass(frozen=True)
class Terms:
    """What an audit was allowed; the same whenever its ledger is opened.

    Args:
        victim: Name of the attacked model.
        budget: Most pictures that may be put to it.
        authorised: Who gave leave and why; None for a victim that needs none.
        price: What it charges.
    """

    victim: str
    budget: int
    authorised: str | None = None
    price: Price = field(default_factory=Price)

    def __post_init__(self) -> None:
        if self.budget < 0:
            raise ConfigError(f"budget={self.budget} is not usable; give a whole number from 0.")


@dataclass(frozen=True)
class Authorisation:
    """Who gave leave and why, and when the user said so (UTC)."""

    said: str
    at: str


@dataclass(frozen=True)
class Cost:
    """Money spent.

    Args:
        amount: Of all answers and of attempts that were lost, in `currency`.
        currency: Its unit.
        unknown: Attempts whose tokens are charged but not known; with any, the amount is a lower bound.
    """

    amount: float
    currency: str
    unknown: int


@dataclass(frozen=True)
class Statement:
    """A ledger in numbers.

    Args:
        terms: What was allowed.
        remote: Whether the victim runs elsewhere.
        authorisation: The last one named; None where none was.
        spent: Units booked: answered, being asked, and lost.
        answered: Questions that the victim answered, refusals included.
        refused: Those of them that it declined.
        cached: Questions answered from an earlier one with the same pixels; no unit each.
        lost: Units that brought no answer and were not given back; of a remote victim alone.
        cost: Money.
    """

    terms: Terms
    remote: bool
    authorisation: Authorisation | None
    spent: int
    answered: int
    refused: int
    cached: int
    lost: int
    cost: Cost

    @property
    def left(self) -> int:
        """Units that may still be booked."""
        return self.terms.budget - self.spent
