"""What the parts of an extraction audit hand to one another."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]


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
