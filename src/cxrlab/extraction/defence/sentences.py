"""Reports sentence by sentence, with the headings before them kept apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cxrlab.core.records import Finding, Span
from cxrlab.findings.reader import Reading

# The point of "1.5 cm" has no space behind it; the number of a list ("2.") becomes a sentence that says nothing.
_BREAK = re.compile(r"(?<=[.!?])\s+|\n+")
_LEAD = re.compile(r"(?:[A-Z][A-Za-z ,/]{1,40}:\s+)?")


@dataclass(frozen=True)
class Piece:
    """One sentence of a report.

    Args:
        start: Where `text` begins in the report, behind a heading such as "Lungs: ".
        text: The sentence with its full stop.
        findings: What it says.
        normal: Its words that call something normal, "lungs are clear".
        unread: Whether it sounds like a finding that the vocabulary does not know.
    """

    start: int
    text: str
    findings: tuple[Finding, ...]
    normal: tuple[str, ...]
    unread: bool


def split(text: str) -> list[Span]:
    """Spans of the sentences of a text; nothing but white space lies between them."""
    ends = [match.span() for match in _BREAK.finditer(text)]
    starts = [0, *(end for _, end in ends)]
    stops = [*(start for start, _ in ends), len(text.rstrip())]
    return [(a, b) for a, b in zip(starts, stops, strict=True) if text[a:b].strip()]


def pieces(reading: Reading) -> list[Piece]:
    """The sentences of a report, each with what was read of it; a span belongs where it begins."""
    text, found = reading.text, []
    for start, end in split(text):
        lead = _LEAD.match(text[start:end])
        words = start + (lead.end() if lead else 0)
        found.append(
            Piece(
                start=words,
                text=text[words:end],
                findings=tuple(f for f in reading if f.span and start <= f.span[0] < end),
                normal=tuple(text[a:b] for a, b in reading.normal if start <= a < end),
                unread=any(start <= span[0] < end for span in reading.unread),
            )
        )
    return found
