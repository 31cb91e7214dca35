"""The sentences of a report that state present findings, and how two reports differ.

Most sentences of a report are negations or normal statements, and which of them a radiologist writes
is not visible on the radiograph. A contrastive encoder, which matches reports to radiographs, learns from the other sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty
from cxrlab.findings.reader import read

NOTHING_PRESENT = "No finding."
_END = re.compile(r"(?<=[.!?;])\s+(?=\S)")


def listed(findings: Iterable[Finding]) -> str:
    """What is present in the terms of the vocabulary, without sentences: 'mild left pleural effusion; cardiomegaly'."""
    terms = []
    for one in (finding for finding in findings if finding.present):
        possible = one.certainty if one.certainty is Certainty.POSSIBLE else None
        words = (possible, one.severity, one.side, one.observation, one.location, one.tip)
        terms.append(" ".join(str(word) for word in words if word))
    return "; ".join(dict.fromkeys(terms)) or NOTHING_PRESENT


def present_sentences(text: str) -> str:
    """The sentences of a report that state something present or possible, in order and unchanged.

    `NOTHING_PRESENT` where none does: a normal report, or one whose findings the reader does not know.
    """
    spans = [finding.span for finding in read(text) if finding.present and finding.span is not None]
    kept, start = [], 0
    for end in (*(match.start() for match in _END.finditer(text)), len(text)):
        if any(first < end and last > start for first, last in spans):
            kept.append(text[start:end].strip())
        start = end
    return " ".join(kept) or NOTHING_PRESENT


def changed_spans(before: str, after: str) -> dict[str, list[list[Any]]]:
    """Places in both reports whose findings differ: lost or changed in the first, new or changed in the second."""
    old, new = ([one for one in read(text) if one.present and one.span] for text in (before, after))
    return {
        "before": [[*one.span, word] for one in old if one.span and (word := _change_kind(one, new, "lost"))],
        "after": [[*one.span, word] for one in new if one.span and (word := _change_kind(one, old, "new"))],
    }


def _change_kind(finding: Finding, others: Sequence[Finding], alone: str) -> str | None:
    """`alone` if the other report lacks the finding, `changed` if it differs there, None if it is the same."""
    same = [one for one in others if one.observation == finding.observation]
    if not same:
        return alone
    return None if any((one.side, one.severity) == (finding.side, finding.severity) for one in same) else "changed"
