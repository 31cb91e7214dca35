"""Pairs of a reference and a candidate, and batches of them with what several metrics share.

No pair is ever dropped. A pair whose texts are missing or empty stays in the batch with a status, and the tally of
each metric shows whether the pair has a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from cxrlab.core.errors import DataError
from cxrlab.core.records import Finding

if TYPE_CHECKING:
    from cxrlab.findings.reader import Reading
    from cxrlab.metrics.finding_comparison import Comparison


class Status(StrEnum):
    """Whether a pair has both texts."""

    SCORED = "scored"
    NO_REFERENCE = "no reference"  # null: the source has no such text; no metric has a value
    EMPTY_REFERENCE = "empty reference"  # text without a word
    EMPTY_CANDIDATE = "empty candidate"
    MISSING_CANDIDATE = "missing candidate"  # scored as an empty report
    BOTH_EMPTY = "both empty"


@dataclass(frozen=True)
class Context:
    """Age in years and indication, None when unknown; they can change whether an error is significant."""

    age: float | None = None
    indication: str | None = None


@dataclass(frozen=True)
class Pair:
    """One reference and one candidate."""

    id: str  # study, or `study#k`
    reference: str | None  # text; None when the source has none
    candidate: str | None  # text; None when there is no prediction (scored as an empty report)
    patient: str = ""  # groups pairs for intervals; the id where unknown
    # The exact findings of the reference where the corpus carries them; None to read its text.
    findings: tuple[Finding, ...] | None = None
    context: Context = Context()  # age and indication

    @property
    def status(self) -> Status:
        """Whether both texts are there and have a word."""
        if self.reference is None:
            return Status.NO_REFERENCE
        if self.candidate is None:
            return Status.MISSING_CANDIDATE
        empty = wordless(self.reference), wordless(self.candidate)
        if all(empty):
            return Status.BOTH_EMPTY
        return Status.EMPTY_REFERENCE if empty[0] else Status.EMPTY_CANDIDATE if empty[1] else Status.SCORED

    @property
    def answerable(self) -> bool:
        """Whether the reference has a word or exact findings; a pair without a reference never counts."""
        return self.reference is not None and (self.findings is not None or not wordless(self.reference))


def wordless(text: str) -> bool:
    """True for text without a letter or digit besides de-identification masks (`___`, `XXXX`)."""
    return not any(c.isalnum() for c in text.replace("XXXX", " "))


class Batch:
    """Pairs in order, at least one, with what is computed once and shared by the metrics.

    Args:
        readings: Of texts; shared between batches of the same references.
        whole: The batch that these pairs are a part of.
        things: Merged findings by the identity of the findings; shared likewise.
    """

    def __init__(
        self,
        pairs: Sequence[Pair],
        readings: dict[str, Reading] | None = None,
        whole: Batch | None = None,
        things: dict[int, tuple[Finding, ...]] | None = None,
    ) -> None:
        if not pairs:
            raise DataError("there is nothing to score: no pair of a reference and a candidate was given.")
        self.pairs = tuple(pairs)
        self._readings = {} if readings is None else readings
        self._whole = whole
        self._things = {} if things is None else things

    def __len__(self) -> int:
        return len(self.pairs)

    def with_candidates(self, candidates: Sequence[str]) -> Batch:
        """The same references with other candidates, in order; readings are shared."""
        pairs = [replace(pair, candidate=text) for pair, text in zip(self.pairs, candidates, strict=True)]
        return Batch(pairs, self._readings, self._whole, self._things)

    def part(self, start: int, size: int) -> Batch:
        """At most `size` pairs as a batch of their own, which knows the whole; this batch where it is no larger."""
        return self if len(self) <= size else Batch(self.pairs[start : start + size], whole=self)

    @cached_property
    def all_references(self) -> tuple[str, ...]:
        """Reference texts by which rarity is weighed: those of the whole batch where this one is a part of it."""
        own = (pair.reference for pair in self.pairs)
        return tuple(text for text in own if text is not None) if self._whole is None else self._whole.all_references

    @property
    def is_part(self) -> bool:
        """Whether this is a part of a larger batch."""
        return self._whole is not None

    @cached_property
    def references(self) -> tuple[str, ...]:
        """Reference texts, "" where there is none."""
        return tuple(pair.reference or "" for pair in self.pairs)

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """Candidate texts, "" where there is none."""
        return tuple(pair.candidate or "" for pair in self.pairs)

    @cached_property
    def statuses(self) -> tuple[Status, ...]:
        """Status of each pair."""
        return tuple(pair.status for pair in self.pairs)

    def read(self, text: str) -> Reading:
        """The findings in a text, read once however often it occurs."""
        from cxrlab.findings.reader import read

        if text not in self._readings:
            self._readings[text] = read(text)
        return self._readings[text]

    @cached_property
    def reference_findings(self) -> tuple[tuple[Finding, ...], ...]:
        """Exact findings of each reference where the pair has them, else those read from its text."""
        return tuple(
            self.read(pair.reference or "").findings if pair.findings is None else pair.findings for pair in self.pairs
        )

    @cached_property
    def candidate_findings(self) -> tuple[tuple[Finding, ...], ...]:
        """Findings read from each candidate's text."""
        return tuple(self.read(text).findings for text in self.candidates)

    @cached_property
    def merged_findings(self) -> tuple[tuple[tuple[Finding, ...], tuple[Finding, ...]], ...]:
        """Merged findings of reference and candidate of each pair, with both sides of a chest stated alike."""
        from cxrlab.findings.merge_statements import merged, paired

        def things(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
            # By identity, since readings and pairs keep their findings: references are merged once for all candidates.
            if id(findings) not in self._things:
                self._things[id(findings)] = merged(findings)
            return self._things[id(findings)]

        both = [
            (things(reference), things(candidate))
            for reference, candidate in zip(self.reference_findings, self.candidate_findings, strict=True)
        ]
        return tuple((paired(left, right), paired(right, left)) for left, right in both)

    @cached_property
    def comparisons(self) -> tuple[Comparison | None, ...]:
        """The comparison of each pair finding by finding; None where the reference has nothing to compare with."""
        from cxrlab.metrics.finding_comparison import compare_pair

        return tuple(compare_pair(self, index) for index in range(len(self)))
