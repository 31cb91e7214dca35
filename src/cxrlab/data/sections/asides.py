"""Wet reads and addenda: where the body of the report goes on after one.

Both are small reports beside the body, often with headers of their own, and none of these may stand in for
the body's. A text says where they end by "FINAL REPORT", by a drawn line, or by the order of its headers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence

from cxrlab.data.sections.headers import BODY, RANK, RULE
from cxrlab.data.sections.mark import Mark, Strength


class Ahead:
    """What comes after a mark of a text: all questions are answered from lists made once, in sorted order."""

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
