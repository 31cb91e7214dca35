"""A report with one finding taken out or put in, in words that the reader understands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cxrlab.findings.reader import read


def without_finding(report: str, name: str) -> str:
    """A report without the sentences that state this observation present; a sentence that denies it in their place."""
    spans = [one.span for one in read(report) if one.present and one.observation == name and one.span is not None]
    return " ".join([*_sentences_without(report, spans), f"There is no {name}."])


def with_finding(report: str, name: str) -> str:
    """A report that begins by stating an observation; sentences that deny it are left out."""
    spans = [one.span for one in read(report) if not one.present and one.observation == name and one.span is not None]
    return " ".join([f"There is {name}.", *_sentences_without(report, spans)])


def _sentences_without(report: str, spans: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Sentences that none of the spans lies in."""
    start = 0
    for end in _sentence_ends(report):
        text = report[start:end].strip()
        if text and not any(first < end and last > start for first, last in spans):
            yield text
        start = end


def _sentence_ends(text: str) -> list[int]:
    ends = [place + 1 for place, letter in enumerate(text[:-1]) if letter in ".!?" and text[place + 1].isspace()]
    return [*ends, len(text)]
