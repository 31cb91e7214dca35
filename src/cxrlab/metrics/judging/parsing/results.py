"""What became of a judge's answer: counts, a grade or a choice, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cxrlab.core.vocabulary import ErrorKind

SIGNIFICANT, INSIGNIFICANT, MATCHED = "significant", "insignificant", "matched"
WEIGHTS = (SIGNIFICANT, INSIGNIFICANT)
Cell = tuple[str, ErrorKind]  # one of `WEIGHTS`, and a kind
CELLS: tuple[Cell, ...] = tuple((weight, kind) for weight in WEIGHTS for kind in ErrorKind)


def told(cell: Cell) -> str:
    """A cell in words, for reasons."""
    return f"{cell[1].value.replace('_', ' ')}, {cell[0]}"


class Reading(StrEnum):
    """How much of an answer could be read."""

    PARSED = "parsed"
    PARTIAL = "partial"
    FAILED = "failed"
    NOT_ASKED = "not asked"


@dataclass(frozen=True)
class Parsed:
    """Counts that a judge gave.

    Args:
        status: Parsed when every count that was asked for is there, partial when some are, failed when none is or
            when the answer contradicts itself.
        counts: The counts that are there; a missing cell is unknown, never 0.
        matched: Findings that both reports have; None where the answer does not tell.
        reason: What is missing or wrong, in words; None for an answer that was read whole.
    """

    status: Reading
    counts: Mapping[Cell, float] = field(default_factory=dict)
    matched: float | None = None
    reason: str | None = None

    def total(self, cells: Iterable[Cell] = CELLS) -> float | None:
        """The sum over some cells; None where one of them is missing."""
        values = [self.counts.get(cell) for cell in cells]
        return None if any(value is None for value in values) else sum(value or 0.0 for value in values)

    def plain(self) -> dict[str, Any]:
        """The counts as a record: weight → kind → count, with the cells that are there."""
        told: dict[str, dict[str, float]] = {weight: {} for weight in WEIGHTS}
        for weight, kind in CELLS:
            if (weight, kind) in self.counts:
                told[weight][kind.value] = self.counts[weight, kind]
        return told


@dataclass(frozen=True)
class ParsedGrade:
    """A grade that a judge gave.

    Args:
        status: Parsed or failed; a grade is never partial.
        value: On the scale that was asked for; None where it failed.
        reason: Why it failed.
    """

    status: Reading
    value: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class ParsedChoice:
    """Which of two a judge chose.

    Args:
        status: Parsed or failed.
        value: "first", "second" or "equal"; None where it failed.
        reason: Why it failed.
    """

    status: Reading
    value: str | None = None
    reason: str | None = None
