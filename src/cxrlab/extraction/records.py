"""What the parts of an extraction audit hand to one another."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cxrlab.core.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]


PICTURES = "pictures"  # folder of a run: every picture that was asked, by its sha256


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture that may be asked about.

    Args:
        key: Its name, unique in the pool.
        pixels: uint8 [H, W], 255 is white.
        in_domain: Whether it is a chest radiograph; None where nobody knows.
    """

    key: str
    pixels: Pixels
    in_domain: bool | None = None


@dataclass(frozen=True)
class Query:
    """One question that the victim has answered, as the ledger keeps it.

    Args:
        number: Place in the audit, from 0.
        round: Round in which it was asked, from 0.
        key: Name of the pool's picture behind it.
        sha256: Of the pixels that were asked; see `fingerprint`.
        report: The answer.
        refused: Whether the victim declined to answer; the report is then what it said instead.
        tokens: Tokens of the answer; None when the victim does not tell.
        cost: Money, in the unit of the price.
        seconds: Time until the answer came, this picture's share of its batch.
        cached: Answered from an earlier query with the same pixels; it cost nothing and was not asked.
        account: Under which account it was asked.
    """

    number: int
    round: int
    key: str
    sha256: str
    report: str
    refused: bool = False
    tokens: int | None = None
    cost: float = 0.0
    seconds: float = 0.0
    cached: bool = False
    account: str = "attacker"


def fingerprint(pixels: Pixels) -> str:
    """The sha256 of a picture: its height and width, then its pixels row by row."""
    head = f"{pixels.shape[0]}x{pixels.shape[1]}:".encode()
    return hashlib.sha256(head + pixels.tobytes()).hexdigest()


@dataclass(frozen=True)
class PendingQuery:
    """A question that is to be put.

    Args:
        number: Place in the audit, from 0.
        round: Round, from 0.
        key: Name of the pool's picture behind it.
        sha256: Of the pixels; see `records.fingerprint`.
        account: Under which account.
    """

    number: int
    round: int
    key: str
    sha256: str
    account: str = "attacker"


@dataclass(frozen=True)
class Response:
    """What is kept of one answer.

    Args:
        report: Its words.
        refused: Whether the victim declined; the report is then what it said instead.
        tokens: Tokens of the answer; None when the victim does not tell.
        seconds: Time until it came, this picture's share of its batch.
    """

    report: str
    refused: bool = False
    tokens: int | None = None
    seconds: float = 0.0


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
class AuditScope:
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
class LedgerSummary:
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

    terms: AuditScope
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
