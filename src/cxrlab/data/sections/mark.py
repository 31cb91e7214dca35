"""One header of a text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Strength(Enum):
    """When a mark counts."""

    ALWAYS = "always"
    FORWARD = "only forward in the usual order of a report: elsewhere the same words are text"
    OUTSIDE = "only outside findings and impression, where the same words are text"


@dataclass(frozen=True)
class Mark:
    """Where a header stands and what it heads.

    Args:
        start: Its first character.
        end: Where the text after it begins.
        section: What it heads.
        strength: When it counts.
        merged: Whether it heads findings and impression in one.
        film: Whether it is the name of a film.
    """

    start: int
    end: int
    section: str
    strength: Strength = Strength.ALWAYS
    merged: bool = False
    film: bool = False

    def moved(self, by: int) -> Mark:
        """The same mark so many characters later."""
        return replace(self, start=self.start + by, end=self.end + by)
