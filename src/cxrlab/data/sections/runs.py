"""A text as stretches that each belong to one section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cxrlab.core.records import Span
from cxrlab.data.sections.asides import Ahead
from cxrlab.data.sections.headers import (
    ASIDES,
    BODY,
    COMMENT,
    ORGAN,
    PREAMBLE,
    RANK,
    RULE,
    SIGNATURE,
    SUMMARY,
    TECHNIQUE,
    UNNAMED,
)
from cxrlab.data.sections.mark import Mark, Strength

_MAIN = ("findings", "impression")
_DONE = ("examination", TECHNIQUE)
# What a drawn line closes for good: the report is over, and names or addresses follow.
_CLOSED_BY_RULE = ("impression", SIGNATURE, SUMMARY)


@dataclass(frozen=True)
class Run:
    """One stretch of text.

    Args:
        section: What it belongs to.
        start: First character, blanks left out.
        end: One past the last.
        merged: Whether it is findings and impression in one.
        film: Whether its header is the name of a film.
    """

    section: str
    start: int
    end: int
    merged: bool = False
    film: bool = False

    @property
    def span(self) -> Span:
        """Its characters [start, end)."""
        return self.start, self.end


def trimmed(text: str, start: int, end: int) -> Span:
    """The same stretch without blanks at its ends; (start, start) where nothing is left."""
    inner = text[start:end]
    left = len(inner) - len(inner.lstrip())
    return (start, start) if left == len(inner) else (start + left, start + len(inner.rstrip()))


class _Walk:
    """The walk through the marks: which section the text is in, and since where."""

    def __init__(self, text: str) -> None:
        self.text, self.runs = text, list[Run]()
        self.section, self.start, self.merged, self.film = PREAMBLE, 0, False, False
        self.seen = set[str]()  # which of findings and impression are closed and not empty

    def close(self, at: int) -> None:
        """End the section's stretch at `at`."""
        first, last = trimmed(self.text, self.start, at)
        if first < last:
            self.runs.append(Run(self.section, first, last, self.merged, self.film))
            self.seen |= {self.section} & set(_MAIN)

    def turn(self, at: int, section: str, start: int, merged: bool = False) -> None:
        """Close the section at `at`; the next one's text begins at `start`."""
        self.close(at)
        self.section, self.start, self.merged, self.film = section, start, merged, False

    @property
    def has_impression(self) -> bool:
        """Whether the body has come to its impression."""
        return self.section == "impression" or "impression" in self.seen

    def counts(self, mark: Mark) -> bool:
        """Whether a mark is a header where the walk is now."""
        if mark.film and self.section in _DONE and not self.text[self.start : mark.start].strip():
            return False  # "EXAMINATION:" and on the next line "CHEST: FRONTAL VIEW"
        if mark.strength is Strength.OUTSIDE:
            return self.section not in _MAIN
        if mark.strength is Strength.FORWARD:
            return RANK.get(mark.section, 2) >= RANK.get(self.section, 0)
        return True

    def turn_to(self, mark: Mark) -> None:
        """Go on under a header; a comment that counts is the impression, and so is a summary where there is none."""
        if mark.section == ORGAN:
            self.turn(mark.start, "findings", mark.start)
            return
        self.turn(mark.start, mark.section, mark.end, mark.merged)
        self.film = mark.film
        if mark.section == COMMENT or (mark.section == SUMMARY and "impression" not in self.seen):
            self.section = "impression"

    def rule(self, mark: Mark) -> None:
        """A drawn line parts what stands on both sides; after an impression or a signature the report is over."""
        after = PREAMBLE if self.section in ASIDES else UNNAMED if self.section in _CLOSED_BY_RULE else self.section
        self.turn(mark.start, after, mark.end, self.merged and after == self.section)


def runs(text: str, marks: Sequence[Mark]) -> list[Run]:
    """The stretches of a text in order; what stands before the first header is the preamble."""
    if all(mark.section in (UNNAMED, RULE) for mark in marks):
        marks = ()  # not one header that we know
    walk, ahead = _Walk(text), Ahead(marks)
    resume = 0
    for number, mark in enumerate(marks):
        if mark.section in ASIDES:
            walk.turn(mark.start, mark.section, mark.end)
            resume = ahead.body_after(number, walk.seen)
        elif number < resume:
            if mark.section == RULE:
                walk.turn(mark.start, walk.section, mark.end)
        elif mark.section == RULE:
            walk.rule(mark)
        elif mark.section == BODY:
            walk.turn(mark.start, PREAMBLE, mark.end)
        elif mark.section == COMMENT and (walk.has_impression or ahead.has_impression(number)):
            continue
        elif walk.counts(mark):
            walk.turn_to(mark)
    walk.close(len(text))
    return walk.runs
