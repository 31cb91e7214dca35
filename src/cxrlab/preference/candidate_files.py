"""Candidate reports of studies, from one or several files of predictions, joined by id.

All reports under a prediction's `answers` are candidates, else its `report`. Texts stay on disk; the position of every
line is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import DataError
from cxrlab.core.files import unreadable
from cxrlab.core.jsonl import parse_line, read_line, scan_jsonl
from cxrlab.core.model_interfaces import REFUSED
from cxrlab.core.records import Prediction
from cxrlab.core.runs import state
from cxrlab.evaluation.generate import ANSWERS_KEY, PREDICTIONS, explain_how_to_finish
from cxrlab.models.decoding import TRUNCATED

CANDIDATES = "candidates.jsonl"


@dataclass(frozen=True)
class Candidate:
    """One report, and whether it was cut at max_new_tokens."""

    report: str
    truncated: bool = False


def same_text(text: str) -> str:
    """A report in lower case with single spaces: equal texts count as one."""
    return " ".join(text.split()).lower()


def word_count(text: str) -> int:
    """Words of a report, split at white space."""
    return len(text.split())


@dataclass(frozen=True)
class _Place:
    """Position of one line."""

    file: Path
    offset: int
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class CandidateFiles:
    """Candidates of several run folders or files; a study in several has the candidates of all, in this order."""

    def __init__(self, sources: Sequence[Path]) -> None:
        self.files = tuple(candidate_file(source) for source in sources)
        self._places: dict[str, list[_Place]] = {}
        for file in self.files:
            found: dict[str, _Place] = {}
            for offset, number, values in scan_jsonl(file):
                place, key = _Place(file, offset, number), values.get("id")
                if not isinstance(key, str) or not key:
                    raise DataError(f"{place}: a prediction needs a text 'id'; add it.")
                if key in found:
                    raise DataError(f"{place}: the id '{key}' is on line {found[key].line} too; keep one of them.")
                found[key] = place
                self._places.setdefault(key, []).append(place)
        if not self._places:
            raise DataError(f"{self.files[0]} holds no candidate; check that it is the right file.")

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def ids(self) -> tuple[str, ...]:
        """Studies with candidates, in the order of the files."""
        return tuple(self._places)

    def place(self, key: str) -> str:
        """File and line of a study, for messages."""
        return str(self._places[key][0])

    def of(self, key: str) -> tuple[Candidate, ...]:
        """The candidates of one study."""
        found: list[Candidate] = []
        for place in self._places[key]:
            try:
                with place.file.open("rb") as stream:
                    stream.seek(place.offset)
                    line, _ = read_line(stream)
            except OSError as error:
                raise unreadable(error, place.file) from error
            values = parse_line(line, str(place))
            try:
                found += candidates_of(Prediction.from_json(values))
            except DataError as error:
                raise DataError(f"{place}: {error}") from None
        return tuple(found)


def candidate_file(source: Path) -> Path:
    """The file itself, or of a run folder its candidates, else its predictions."""
    if not source.is_dir():
        return source
    names = (CANDIDATES, PREDICTIONS)
    found = next((source / name for name in names if (source / name).is_file()), None)
    if found is None:
        raise DataError(f"{source} has neither {' nor '.join(names)}; name a run of 'cxrlab prefer sample', or a file.")
    if state(source) in ("running", "interrupted"):
        raise DataError(
            f"{source} is a run that has not finished, so that studies are missing; {explain_how_to_finish(source)}, or name "
            f"{found} itself."
        )
    return found


def candidates_of(prediction: Prediction) -> tuple[Candidate, ...]:
    """Every answer of a prediction, or its one report; refusals are left out."""
    answers = prediction.extra.get(ANSWERS_KEY) or [{**prediction.extra, "report": prediction.report}]
    if not isinstance(answers, list) or not all(
        isinstance(answer, Mapping) and isinstance(answer.get("report"), str) for answer in answers
    ):
        raise DataError(
            f"'{ANSWERS_KEY}' must be a list of objects with a text 'report', as 'cxrlab prefer sample' writes."
        )
    reports = [answer for answer in answers if answer.get(REFUSED) is not True]
    return tuple(Candidate(answer["report"], bool(answer.get(TRUNCATED))) for answer in reports)
