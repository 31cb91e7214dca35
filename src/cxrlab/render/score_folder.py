"""What a page takes from a scored run: the numbers, the errors by kind, and a few studies from best to worst."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrlab.core.errors import DataError, shown
from cxrlab.core.files import read_json
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import ReportError
from cxrlab.core.vocabulary import ErrorKind
from cxrlab.render.shapes import SCORES as SCORES_SHAPE
from cxrlab.render.shapes import check

SCORES, PER_STUDY = "scores.json", "per_study.jsonl"
COMPARISON, VALIDATION = "comparison.json", "validation.json"
SHOWN = 6  # studies on a page


@dataclass(frozen=True)
class MarkedStudy:
    """A study with both texts and what is wrong with the second."""

    id: str
    reference: str
    candidate: str
    errors: tuple[ReportError, ...]


@dataclass(frozen=True)
class ScoreFolder:
    """The scored part of a run.

    Args:
        scores: Content of scores.json.
        kinds: (kind, significant) → number of errors over all studies.
        studies: A few, from the fewest significant errors to the most.
    """

    scores: Mapping[str, Any]
    kinds: Mapping[tuple[ErrorKind, bool], int]
    studies: tuple[MarkedStudy, ...]


def read_scored(path: Path) -> ScoreFolder | None:
    """The scored part of a run folder; None when the run did not score."""
    if not (path / SCORES).is_file():
        return None
    scores = read_json(path / SCORES)
    if not isinstance(scores, dict) or not isinstance(scores.get("metrics"), dict):
        raise DataError(f"{path / SCORES} holds no 'metrics'; score again.")
    check(scores, SCORES_SHAPE, str(path / SCORES))
    if bare := [name for name, score in scores["metrics"].items() if "value" not in score]:
        raise DataError(f"{path / SCORES}: '{bare[0]}' has no 'value'; score again.")
    file = path / PER_STUDY
    kinds: Counter[tuple[ErrorKind, bool]] = Counter()
    rank: list[tuple[int, int, str]] = []  # a test set may be large: its texts are read in a second walk
    for number, record in read_jsonl(file) if file.is_file() else ():
        errors = _errors(record, f"{file}:{number}")
        kinds.update((error.kind, error.significant) for error in errors)
        if isinstance(record.get("reference"), str):
            rank.append((sum(error.significant for error in errors), len(errors), str(record.get("id"))))
    wanted = spread([key for _, _, key in sorted(rank)], SHOWN)
    found: dict[str, MarkedStudy] = {}
    for number, record in read_jsonl(file) if wanted else ():
        if (key := str(record.get("id"))) in wanted:
            found[key] = _study(record, f"{file}:{number}")
    return ScoreFolder(scores, kinds, tuple(found[key] for key in wanted))


def spread(keys: Sequence[str], count: int) -> list[str]:
    """`count` of these at even distances, first and last among them; all when there are fewer."""
    if len(keys) <= count:
        return list(keys)
    return [keys[round(place * (len(keys) - 1) / (count - 1))] for place in range(count)]


def _errors(record: Mapping[str, Any], place: str) -> tuple[ReportError, ...]:
    errors = record.get("errors") or ()
    if not isinstance(errors, (list, tuple)):
        raise DataError(f"{place}: 'errors' is {shown(errors)}; it must be a list.")
    try:
        return tuple(map(ReportError.from_json, errors))
    except DataError as error:
        raise DataError(f"{place}: {error}") from None


def _study(record: Mapping[str, Any], place: str) -> MarkedStudy:
    candidate = record.get("candidate")
    return MarkedStudy(
        id=str(record.get("id")),
        reference=str(record["reference"]),
        candidate=candidate if isinstance(candidate, str) else "",
        errors=_errors(record, place),
    )
