"""Readers' feedback on reports, from a CSV or JSONL file whose columns have one of three forms.

    id, chosen, rejected                      which of two reports is better
    id, report, rating                        a number, higher is better
    id, report, significant, insignificant    error counts

A column `reader` is optional; other columns are ignored. Where readers disagree on a pair, the majority decides; ratings
and error counts of several readers are averaged. Errors name file and row, and never quote a report.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from cxrlab.core.errors import DataError, did_you_mean, short_repr
from cxrlab.core.records import PreferencePair
from cxrlab.data.corpus import Corpus
from cxrlab.evaluation.report_files import Row, fill_ids, read_rows
from cxrlab.metrics.report_pairs import wordless
from cxrlab.preference.candidate_files import same_text

PAIRS, RATINGS, ERRORS = "pairs", "ratings", "errors"
FORMS: Mapping[str, tuple[str, ...]] = {
    PAIRS: ("chosen", "rejected"),
    RATINGS: ("report", "rating"),
    ERRORS: ("report", "significant", "insignificant"),
}
READER = "reader"
_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
_KNOWN = "; ".join(f"id, {', '.join(columns)} ({form})" for form, columns in FORMS.items())


@dataclass(frozen=True)
class RatedStudy:
    """Reports of one study with the mean reward that readers gave them."""

    id: str
    reports: tuple[str, ...]
    rewards: tuple[float, ...]


@dataclass(frozen=True)
class Feedback:
    """The feedback in a file."""

    form: str  # pairs, ratings or errors
    rated: tuple[RatedStudy, ...] = ()  # studies with rated reports, in the order of the file; empty for pairs
    # Study → pairs by majority, in the order of the file; empty for the other forms. The scores are the shares of
    # readers for either report.
    pairs: Mapping[str, tuple[PreferencePair, ...]] = field(default_factory=dict)
    contradicted: int = 0  # pairs on which the readers' votes are equal

    @property
    def judge(self) -> str:
        """Name of the judge in the pairs."""
        return f"readers:{self.form}"


def read_feedback(path: Path, corpus: Corpus, minor_weight: float = 0.1) -> Feedback:
    """Read a CSV, TSV or JSONL file and check every row against its corpus; studies of the test split are refused.

    An insignificant error costs `minor_weight`, a significant one 1.
    """
    if path.suffix.lower() not in _ENDINGS or path.is_dir():
        raise DataError(f"{path} is not a feedback file; give one that ends in {', '.join(_ENDINGS)}.")
    rows = fill_ids([row for _, row in read_rows(path)])
    first = rows[0]
    whole = [form for form, columns in FORMS.items() if all(name in first.values for name in columns)]
    if len(whole) > 1:
        raise DataError(f"{first.place} has the columns of {' and of '.join(whole)}; keep those of one: {_KNOWN}.")
    if not whole:
        near = max(FORMS, key=lambda form: sum(name in first.values for name in FORMS[form]))
        missing = next(name for name in FORMS[near] if name not in first.values)
        hint = did_you_mean(missing, map(str, first.values))
        raise DataError(f"{first.place}: the column '{missing}' is missing.{hint} Feedback has the columns {_KNOWN}.")
    (form,) = whole
    held_out = frozenset(corpus.ids("test"))
    for row in rows:
        if not row.id:
            raise DataError(f"{row.place}: the column 'id' is missing; give the study of every row.")
        for name in FORMS[form]:
            if name not in row.values:
                raise DataError(
                    f"{row.place}: the column '{name}' is missing, which the first row has; give every row all."
                )
        if row.id not in corpus:
            raise DataError(
                f"{row.place}: there is no study '{row.id}' in {corpus.path}.{did_you_mean(row.id, corpus.ids())} "
                "Correct the id, or name the corpus that the feedback is about."
            )
        if row.id in held_out:
            raise DataError(
                f"{row.place}: study '{row.id}' is of the test split, which is kept for measuring; take its rows out."
            )
    return _paired(rows) if form == PAIRS else _rated(rows, form, minor_weight)


def _paired(rows: Sequence[Row]) -> Feedback:
    """Pairs by majority vote on every two reports of a study."""
    votes: dict[tuple[str, frozenset[str]], Counter[str]] = {}
    spelled: dict[tuple[str, str], str] = {}
    seen = _Seen()
    for row in rows:
        chosen, rejected = _text(row, "chosen"), _text(row, "rejected")
        better, worse = same_text(chosen), same_text(rejected)
        if better == worse:
            raise DataError(f"{row.place}: chosen and rejected are the same text; take the row out.")
        for key, text in ((better, chosen), (worse, rejected)):
            spelled.setdefault((row.id, key), text)
        two = (row.id, frozenset((better, worse)))
        seen.take(row, two, "these two reports")
        votes.setdefault(two, Counter({better: 0, worse: 0}))[better] += 1
    pairs: dict[str, list[PreferencePair]] = {}
    contradicted = 0
    for (study, _), count in votes.items():
        (better, most), (worse, least) = count.most_common()
        if most == least:
            contradicted += 1
            continue
        chosen, rejected = spelled[study, better], spelled[study, worse]
        shares = (most / count.total(), least / count.total())
        pairs.setdefault(study, []).append(PreferencePair(study, chosen, rejected, f"readers:{PAIRS}", *shares))
    return Feedback(PAIRS, pairs={study: tuple(found) for study, found in pairs.items()}, contradicted=contradicted)


def _rated(rows: Sequence[Row], form: str, minor_weight: float) -> Feedback:
    """Mean reward of every report of a study."""
    rewards: dict[str, dict[str, list[float]]] = {}
    spelled: dict[tuple[str, str], str] = {}
    seen = _Seen()
    for row in rows:
        text = _text(row, "report")
        key = same_text(text)
        spelled.setdefault((row.id, key), text)
        seen.take(row, (row.id, key), "this report")
        if form == RATINGS:
            reward = _number(row, "rating")
        else:
            reward = -_number(row, "significant", least=0) - minor_weight * _number(row, "insignificant", least=0)
        rewards.setdefault(row.id, {}).setdefault(key, []).append(reward)
    rated = [
        RatedStudy(study, tuple(spelled[study, key] for key in given), tuple(map(fmean, given.values())))
        for study, given in rewards.items()
    ]
    return Feedback(form, rated=tuple(rated))


class _Seen:
    """Refuses a second judgement of one reader on the same reports; rows without a reader count as different readers."""

    def __init__(self) -> None:
        self._places: dict[object, str] = {}

    def take(self, row: Row, what: object, words: str) -> None:
        """Record one judgement."""
        given = row.values.get(READER)
        reader = "" if given is None else str(given).strip()
        if not reader:
            return
        before = self._places.setdefault((reader, what), row.place)
        if before != row.place:
            raise DataError(f"{row.place}: reader '{reader}' has judged {words} at {before} already; keep one of them.")


def _text(row: Row, column: str) -> str:
    value = row.values[column]
    if not isinstance(value, str) or wordless(value):
        raise DataError(f"{row.place}: '{column}' is empty; a report needs words. Take the row out.")
    return value.strip()


def _number(row: Row, column: str, least: float = -math.inf) -> float:
    value = row.values[column]
    try:
        number = math.nan if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not least <= number < math.inf or number == -math.inf:
        limits = f" of at least {least:g}" if least > -math.inf else ""
        raise DataError(f"{row.place}: '{column}' is {short_repr(value)}; give a number{limits}.")
    return number
