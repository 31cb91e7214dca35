"""A text as stretches that each belong to one section."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cxrlab.core.records import Span
from cxrlab.data.sections.headers import (
    ASIDES,
    BODY,
    COMMENT,
    IMAGE,
    ORGAN,
    PREAMBLE,
    RANK,
    RULE,
    SIGNATURE,
    SUMMARY,
    TECHNIQUE,
    UNNAMED,
    Mark,
    Strength,
)

PARAGRAPH = re.compile(r"\n *\n")
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
    image: bool = False

    @property
    def span(self) -> Span:
        """Its characters [start, end)."""
        return self.start, self.end


def trimmed(text: str, start: int, end: int) -> Span:
    """The same stretch without blanks at its ends; (start, start) where nothing is left."""
    inner = text[start:end]
    left = len(inner) - len(inner.lstrip())
    return (start, start) if left == len(inner) else (start + left, start + len(inner.rstrip()))


class _Ahead:
    """What comes after a mark of a text: all questions are answered from lists made once, in sorted order.

    Wet reads and addenda are small reports beside the body, often with headers of their own, and none of these may
    stand in for the body's. They end at "FINAL REPORT", at a drawn line, or by the order of a text's headers.
    """

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._end = len(marks)
        self._bodies = [at for at, mark in enumerate(marks) if mark.section == BODY]
        self._rules = [at for at, mark in enumerate(marks) if mark.section == RULE]
        self._impressions = [at for at, mark in enumerate(marks) if mark.section == "impression"]
        self._ranked = [
            at for at, mark in enumerate(marks) if mark.section in RANK and mark.strength is not Strength.OUTSIDE
        ]
        # A second report: an impression, then an examination, or anything before a further impression.
        last = self._impressions[-1] if self._impressions else -1
        restarts = [
            (at, following)
            for at, following in zip(self._ranked, self._ranked[1:], strict=False)
            if marks[at].section == "impression"
            and marks[following].section != "impression"
            and (marks[following].section == "examination" or last > following)
        ]
        self._closing = [at for at, _ in restarts]
        self._restarts = [following for _, following in restarts]

    def body_after(self, aside: int, seen: Collection[str]) -> int:
        """Number of the mark at which the body goes on after the aside that begins at mark `aside`.

        Args:
            aside: The aside's own number.
            seen: Which of findings and impression the body already has.

        It is the number of marks where nothing more of the body comes.
        """
        body = self._next(self._bodies, aside)
        if body is not None:
            return body
        if "impression" in seen:
            return self._end
        if "findings" in seen:
            return self._next(self._impressions, aside) or self._end
        ruled = self._next(self._rules, aside)
        if ruled is not None:
            return ruled
        second = bisect_right(self._closing, aside)
        if second < len(self._restarts):
            return self._restarts[second]
        return self._next(self._ranked, aside) or self._end

    def has_impression(self, number: int) -> bool:
        """Whether an impression has its header after mark `number`."""
        return self._next(self._impressions, number) is not None

    @staticmethod
    def _next(numbers: Sequence[int], after: int) -> int | None:
        place = bisect_right(numbers, after)
        return numbers[place] if place < len(numbers) else None


class _Walk:
    """The walk through the marks: which section the text is in, and since where."""

    def __init__(self, text: str) -> None:
        self.text, self.runs = text, list[Run]()
        self.section, self.start, self.merged, self.image = PREAMBLE, 0, False, False
        self.seen = set[str]()  # which of findings and impression are closed and not empty

    def close(self, at: int) -> None:
        """End the section's stretch at `at`."""
        first, last = trimmed(self.text, self.start, at)
        if first < last:
            self.runs.append(Run(self.section, first, last, self.merged, self.image))
            self.seen |= {self.section} & set(_MAIN)

    def turn(self, at: int, section: str, start: int, merged: bool = False) -> None:
        """Close the section at `at`; the next one's text begins at `start`."""
        self.close(at)
        self.section, self.start, self.merged, self.image = section, start, merged, False

    @property
    def has_impression(self) -> bool:
        """Whether the body has come to its impression."""
        return self.section == "impression" or "impression" in self.seen

    def counts(self, mark: Mark) -> bool:
        """Whether a mark is a header where the walk is now."""
        if mark.image and self.section in _DONE and not self.text[self.start : mark.start].strip():
            return False  # "EXAMINATION:" and on the next line "CHEST: FRONTAL VIEW"
        if mark.strength is Strength.OUTSIDE:
            return self.section not in _MAIN
        if mark.section == self.section and not self.text[self.start : mark.start].strip(" "):
            return False  # "INDICATION: History: cough": the second is text
        if mark.strength is Strength.FORWARD:
            return RANK.get(mark.section, 2) >= RANK.get(self.section, 0)
        return True

    def turn_to(self, mark: Mark) -> None:
        """Go on under a header; a comment that counts is the impression, and so is a summary where there is none."""
        if mark.section == ORGAN:
            self.turn(mark.start, "findings", mark.start)
            return
        self.turn(mark.start, mark.section, mark.end, mark.merged)
        self.image = mark.image
        if mark.image:
            name = self.text[mark.start : mark.end].rstrip(":=-–— ")
            self.runs.append(Run(IMAGE, *trimmed(self.text, mark.start, mark.start + len(name))))
        if mark.section == COMMENT or (mark.section == SUMMARY and "impression" not in self.seen):
            self.section = "impression"

    def sign(self, mark: Mark, until: int) -> None:
        """A signature ends the report; a letterhead, with nothing above it, ends at an empty line before `until`."""
        self.turn(mark.start, mark.section, mark.end)
        empty = None if self.runs else PARAGRAPH.search(self.text, mark.end, until)
        if empty:
            self.turn(empty.start(), PREAMBLE, empty.end())

    def rule(self, mark: Mark) -> None:
        """A drawn line parts what stands on both sides; after an impression or a signature the report is over."""
        after = PREAMBLE if self.section in ASIDES else UNNAMED if self.section in _CLOSED_BY_RULE else self.section
        self.turn(mark.start, after, mark.end, self.merged and after == self.section)


def runs(text: str, marks: Sequence[Mark]) -> list[Run]:
    """The stretches of a text in order; what stands before the first header is the preamble."""
    if all(mark.section in (UNNAMED, RULE) for mark in marks):
        marks = ()  # not one header that we know
    walk, ahead = _Walk(text), _Ahead(marks)
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
        elif mark.section == SIGNATURE and walk.counts(mark):
            walk.sign(mark, marks[number + 1].start if number + 1 < len(marks) else len(text))
        elif mark.section == COMMENT and (walk.has_impression or ahead.has_impression(number)):
            continue
        elif walk.counts(mark):
            walk.turn_to(mark)
    walk.close(len(text))
    return walk.runs
