"""Records of an extraction audit: images, queries, answers, prices and the summary of a ledger."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from cxrlab.core.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]


PICTURES = "pictures"  # folder of a run: every image that was sent, by its sha256


@dataclass(frozen=True, eq=False)
class QueryImage:
    """A query image, whose pixels are drawn or read each time they are asked for: thousands do not fit in memory."""

    key: str  # unique in its pool
    source: Pixels | Callable[[], Pixels]  # the pixels, or what makes them: always the same ones
    in_domain: bool | None = None  # whether it is a chest radiograph, if known
    planned: str | None = None  # the `fingerprint` that `source` checks its pixels against

    @property
    def pixels(self) -> Pixels:
        """uint8 [H, W], or [H, W, 3] in colour."""
        return self.source() if callable(self.source) else self.source

    @cached_property
    def sha256(self) -> str:
        """The `fingerprint` of its pixels."""
        return self.planned or fingerprint(self.pixels)


@dataclass(frozen=True)
class Query:
    """One answered query, as the ledger keeps it."""

    number: int  # place in the audit, from 0
    round: int  # round of the attack, from 0
    key: str  # name of the pool's image behind it
    sha256: str  # `fingerprint` of the pixels that were sent
    report: str  # the answer
    refused: bool = False  # whether the victim declined; the report is then its refusal
    tokens: int | None = None  # tokens of the answer; None if the victim does not report them
    cost: float = 0.0  # in the currency of the price
    seconds: float = 0.0  # time to the answer, this image's share of its batch
    cached: bool = False  # answered from an earlier query with the same pixels; it cost nothing and was not sent
    account: str = "attacker"  # account that sent it


def fingerprint(pixels: Pixels) -> str:
    """The sha256 of an image: its height, its width and, in colour, 3; then its pixels row by row."""
    head = f"{'x'.join(map(str, pixels.shape))}:".encode()
    return hashlib.sha256(head + pixels.tobytes()).hexdigest()


@dataclass(frozen=True)
class PendingQuery:
    """A query that is not answered yet; the fields are those of `Query`."""

    number: int
    round: int
    key: str
    sha256: str
    account: str = "attacker"


@dataclass(frozen=True)
class Response:
    """The kept part of one answer; the fields are those of `Query`."""

    report: str
    refused: bool = False
    tokens: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Price:
    """What the victim's owner charges; all zero if nothing.

    Args:
        per_query: For each image sent to the victim, refusals included.
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
        """Price of one answer, without its tokens if they are unknown; see `Cost.unknown`."""
        return self.per_query + self.per_1k_tokens * (tokens or 0) / 1000.0

    def describe(self, budget: int) -> str:
        """What a budget costs, in words."""
        if not self.per_query and not self.per_1k_tokens:
            return "without a price"
        most = f"{self.per_query:g} {self.currency} each, {self.per_query * budget:,.2f} {self.currency} together"
        more = f"{self.per_1k_tokens:g} {self.currency} for each 1,000 tokens of answers"
        return " and ".join(part for part, due in ((most, self.per_query), (more, self.per_1k_tokens)) if due)


@dataclass(frozen=True)
class AuditScope:
    """What an audit may do, the same whenever its ledger is opened: victim, most queries, authorisation, price."""

    victim: str
    budget: int
    authorised: str | None = None
    price: Price = field(default_factory=Price)

    def __post_init__(self) -> None:
        if self.budget < 0:
            raise ConfigError(f"budget={self.budget} is not usable; give a whole number from 0.")


@dataclass(frozen=True)
class Authorisation:
    """Who authorised the audit and why, and when the user stated it (UTC)."""

    text: str
    at: str


@dataclass(frozen=True)
class Cost:
    """Money spent."""

    amount: float  # of all answers and lost attempts, in `currency`
    currency: str
    unknown: int  # attempts whose tokens are charged but not known; with any, the amount is a lower bound


@dataclass(frozen=True)
class LedgerSummary:
    """A ledger in numbers."""

    terms: AuditScope
    remote: bool  # whether the victim runs elsewhere
    authorisation: Authorisation | None  # the last one given
    spent: int  # units reserved: answered, in flight, and lost
    answered: int  # queries that the victim answered, refusals included
    refused: int
    cached: int  # queries answered from an earlier one with the same pixels; they take no unit
    lost: int  # units without an answer that were not given back; of a remote victim alone
    cost: Cost

    @property
    def left(self) -> int:
        """Units that may still be reserved."""
        return self.terms.budget - self.spent
