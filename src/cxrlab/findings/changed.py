"""Where two reports of one film differ in what they find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cxrlab.core.records import Finding
from cxrlab.findings.reader import read


def changed_spans(before: str, after: str) -> dict[str, list[list[Any]]]:
    """Places in both reports whose findings differ: lost or changed in the first, new or changed in the second."""
    old, new = ([one for one in read(text) if one.present and one.span] for text in (before, after))
    return {
        "before": [[*one.span, word] for one in old if one.span and (word := _fate(one, new, "lost"))],
        "after": [[*one.span, word] for one in new if one.span and (word := _fate(one, old, "new"))],
    }


def _fate(finding: Finding, others: Sequence[Finding], alone: str) -> str | None:
    """What became of a finding in the other report; None when it stands there as it is."""
    same = [one for one in others if one.observation == finding.observation]
    if not same:
        return alone
    return None if any((one.side, one.severity) == (finding.side, finding.severity) for one in same) else "changed"
