"""Report text into findings: what is said to be there, to be absent or to be possible, and where it says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from cxrlab.core.errors import DataError, shown
from cxrlab.core.records import Finding, Span
from cxrlab.findings.reading.drafts import Draft, understand
from cxrlab.findings.reading.phrases import load
from cxrlab.findings.reading.sentences import of_the_chest, sentences
from cxrlab.findings.reading.tokens import tokens


@dataclass(frozen=True)
class Reading(Sequence[Finding]):
    """What a text says. It is itself the sequence of its findings.

    Args:
        text: What was read, unchanged; every span points into it.
        findings: Statements in the order of the text, each with the span of the words that carry it.
        normal: Spans of statements that something is normal or clear without naming an observation.
        unread: Spans of sentences that sound like a finding and say nothing the vocabulary knows.
    """

    text: str
    findings: tuple[Finding, ...] = ()
    normal: tuple[Span, ...] = ()
    unread: tuple[Span, ...] = ()

    @property
    def speaks(self) -> bool:
        """Whether the text says anything of a film: a finding, a denial, or that something is normal."""
        return bool(self.findings or self.normal)

    @overload
    def __getitem__(self, index: int) -> Finding: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Finding, ...]: ...
    def __getitem__(self, index: int | slice) -> Finding | tuple[Finding, ...]:
        return self.findings[index]

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)


def read(text: str | None) -> Reading:
    """Every statement of a report about the film; None, not-a-number and text without a word give an empty reading."""
    if text is None or text != text:  # not-a-number is what a data frame holds where there is no report
        return Reading("")
    if not isinstance(text, str):
        raise DataError(f"a report is text, not {shown(text)}; give the text, or None where there is none.")
    tables = load()
    found = tokens(text, tables.spelling)
    drafts: list[Draft] = []
    normal: list[Span] = []
    unread: list[Span] = []
    for sentence in of_the_chest(sentences(found, tables.find(found))):
        result = understand(sentence, drafts)
        drafts += result.drafts
        normal += [(found[first].start, found[last - 1].end) for first, last in result.normal]
        if result.alarmed and not result.drafts and not result.normal:
            unread.append((found[sentence.first].start, found[sentence.last - 1].end))
    findings = tuple(draft.finding((found[draft.first].start, found[draft.last - 1].end)) for draft in drafts)
    return Reading(text, findings, tuple(normal), tuple(unread))
