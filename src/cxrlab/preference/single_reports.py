"""Pairs taken apart: reports that are good or bad by themselves, as KTO learns from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from cxrlab.core import fields
from cxrlab.core.fields import Record
from cxrlab.core.records import PreferencePair
from cxrlab.preference.candidates import same_text


@dataclass(frozen=True)
class SingleReport(Record):
    """One report that is good or bad by itself: KTO's form.

    Args:
        id: Of the study.
        report: The text.
        desirable: Whether it was chosen more often than rejected.
        score: Its reward, None where nobody gave one.
    """

    what = "a single report"
    checks = {"id": fields.filled, "report": fields.text, "desirable": fields.flag, "score": fields.number()}

    id: str
    report: str
    desirable: bool
    score: float | None = None


def single_reports(pairs: Sequence[PreferencePair]) -> tuple[list[SingleReport], int]:
    """The reports of a study's pairs, each once, and how many were chosen as often as rejected and are left out.

    A report of several pairs is good when it was chosen more often; its score is the mean of its scores. Texts that are
    equal up to case and white space are one report.

    Args:
        pairs: Of one study.
    """
    votes: Counter[str] = Counter()
    scores: dict[str, list[float]] = {}
    spelled: dict[str, str] = {}
    for one in pairs:
        sides = ((one.chosen, one.chosen_score, 1), (one.rejected, one.rejected_score, -1))
        for text, score, vote in sides:
            key = same_text(text)
            spelled.setdefault(key, text)
            votes[key] += vote
            scores.setdefault(key, []).extend([] if score is None else [score])
    study = pairs[0].id if pairs else ""
    rows = [
        SingleReport(study, text, votes[key] > 0, fmean(scores[key]) if scores[key] else None)
        for key, text in spelled.items()
        if votes[key]
    ]
    return rows, len(spelled) - len(rows)
