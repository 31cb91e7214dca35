"""What an audit has on file: the truth of each study, and what each model said of each image that it was shown.

The sweep writes these lines; everything in numbers is made from them and from nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from cxrlab.core import fields
from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.fields import Record
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import Finding
from cxrlab.metrics.tally import Matrix

TRUTH = "truth.jsonl"
ANSWERS = "answers.jsonl"


def _label(value: Any, key: str) -> int:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value in (0, 1):
        return int(value)
    raise DataError(
        f"'{key}' is {short_repr(value)}; it must be 1 (present) or 0 (absent), or be left out where unknown."
    )


@dataclass(frozen=True)
class StudyTruth(Record):
    """What is known of one study.

    Args:
        id: Of the study.
        patient: Whom it belongs to; patients are drawn together.
        reference: The report that is right; None where there is none.
        findings: Exact findings where the corpus carries them.
        labels: Label of the protocol → 1 present, 0 absent. A missing label is unknown.
    """

    what = "the truth of a study"
    checks = {
        "id": fields.non_empty_text,
        "patient": fields.non_empty_text,
        "reference": fields.text,
        "findings": fields.list_of(fields.parsed_by(Finding.from_json)),
        "labels": fields.mapping_of(_label),
    }

    id: str
    patient: str
    reference: str | None = None
    findings: tuple[Finding, ...] | None = None
    labels: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageAnswer(Record):
    """What a model said of one image.

    Args:
        report: What it wrote; None where it writes none.
        mean_logprob: Mean log-probability of the tokens that it wrote.
        tokens: How many it wrote.
        loss: Mean -log p of the reference's tokens.
        label_probs: Label → probability of being present, where it was asked.
        labels: Label → 1 or 0 as read off the report; only where a report was written.
        refused: True where it refused to write one; what it said instead is not kept. None otherwise.
    """

    what = "the answer to an image"
    checks = {
        "report": fields.text,
        "mean_logprob": fields.number(),
        "tokens": fields.integer(),
        "loss": fields.number(),
        "label_probs": fields.mapping_of(fields.number(0, 1)),
        "labels": fields.mapping_of(_label),
        "refused": fields.boolean,
    }

    report: str | None = None
    mean_logprob: float | None = None
    tokens: int | None = None
    loss: float | None = None
    label_probs: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    refused: bool | None = None


@dataclass(frozen=True)
class AttackTrace(Record):
    """How an attack went on one image.

    Args:
        start: Objective before.
        end: Objective after.
        broken: Whether the attack reached its aim.
        linf: Largest change of a pixel that was made, on the scale from 0 to 1.
        l2: Root of the summed squared changes.
        passes: Times that the model was run.
        zero_gradients: Share of steps whose gradient was 0 everywhere.
    """

    what = "the trace of an attack"
    checks = {
        "start": fields.number(or_undefined=True),
        "end": fields.number(or_undefined=True),
        "broken": fields.boolean,
        "linf": fields.number(low=0),
        "l2": fields.number(low=0),
        "passes": fields.integer(),
        "zero_gradients": fields.number(0, 1, or_undefined=True),
    }

    start: float
    end: float
    broken: bool
    linf: float
    l2: float
    passes: int
    zero_gradients: float


@dataclass(frozen=True)
class Answer(Record):
    """One examined image.

    Args:
        id: See `answer_id`.
        model: Short key of the model that looked: a is the one under audit, b, c … those that it is compared with.
        condition: See `conditions.parse_condition`.
        study: Whose image it is.
        image: What was said of it.
        crafted_on: Key of the model whose weaknesses the change was made for; None for clean, noise and corruptions.
        uint8: What was said of the same image after rounding to 8 bits; None where that was not asked.
        attack: How the attack went; None where there was none.
    """

    what = "an examined image"
    checks = {
        "id": fields.non_empty_text,
        "model": fields.non_empty_text,
        "condition": fields.non_empty_text,
        "crafted_on": fields.non_empty_text,
        "study": fields.non_empty_text,
        "image": fields.parsed_by(ImageAnswer.from_json),
        "uint8": fields.parsed_by(ImageAnswer.from_json),
        "attack": fields.parsed_by(AttackTrace.from_json),
    }

    id: str
    model: str
    condition: str
    study: str
    image: ImageAnswer
    crafted_on: str | None = None
    uint8: ImageAnswer | None = None
    attack: AttackTrace | None = None


def answer_id(model: str, condition: str, study: str, crafted_on: str | None = None) -> str:
    """`a|pgd@2/255|s1`, or `b<a|pgd@2/255|s1` where b is shown an image that was crafted on a."""
    who = model if crafted_on in (None, model) else f"{model}<{crafted_on}"
    return f"{who}|{condition}|{study}"


def read_truth(file: Path) -> Iterator[StudyTruth]:
    """The studies of a file, one at a time."""
    return _records(file, StudyTruth)


def read_answers(file: Path) -> Iterator[Answer]:
    """The examined images of a file, one at a time."""
    return _records(file, Answer)


_R = TypeVar("_R", bound=Record)


def _records(file: Path, kind: type[_R]) -> Iterator[_R]:
    for number, values in read_jsonl(file):
        try:
            yield kind.from_json(values)
        except DataError as error:
            raise DataError(f"{file}:{number}: {error}") from None


CLEAN = "clean"
WORST = "worst"  # the most harmful of all attacks of at most this size, study by study
SEVERITIES = range(1, 6)

_SHAPE = re.compile(r"(?P<name>[^@:|\s]+)(:(?P<objective>[^@:|\s]+))?@(?P<strength>[^@|\s]+)")
_FRACTION = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")
_DECIMAL = re.compile(r"\d*\.\d+(e-?\d+)?|\d+e-\d+")


@dataclass(frozen=True)
class Condition:
    """One condition, taken apart.

    Args:
        text: As it stands on file.
        kind: clean, attack or corruption.
        name: Of the attack (`pgd`) or the corruption (`blur`); "clean".
        objective: What the attack aims at, where it has several aims; else None.
        eps: Radius, on the scale of pixels from 0 to 1; None where it is no attack.
        eps_text: As it was written, such as 2/255.
        severity: 1 to 5; None where it is no corruption.
    """

    text: str
    kind: Literal["clean", "attack", "corruption"]
    name: str
    objective: str | None = None
    eps: float | None = None
    eps_text: str | None = None
    severity: int | None = None

    @property
    def attack(self) -> str:
        """Attack and objective without the size: what one curve is drawn of."""
        return self.name if self.objective is None else f"{self.name}:{self.objective}"


@cache
def parse_condition(text: str) -> Condition:
    """Take a condition apart; a whole number after the @ is a severity, a fraction or decimal a radius."""
    if text == CLEAN:
        return Condition(text, "clean", CLEAN)
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise _wrong(text, "it is neither 'clean' nor a name, an @ and a strength")
    name, objective, strength = shape["name"], shape["objective"], shape["strength"]
    if strength.isdecimal():
        if objective is not None or int(strength) not in SEVERITIES:
            raise _wrong(text, "a whole number is the severity of a corruption, from 1 to 5, which has no objective")
        return Condition(text, "corruption", name, severity=int(strength))
    eps = _eps(strength)
    if eps is None:
        raise _wrong(text, "the size of an attack is a fraction or a decimal of at least 0")
    return Condition(text, "attack", name, objective, eps, strength)


def _eps(strength: str) -> float | None:
    if fraction := _FRACTION.fullmatch(strength):
        below = float(fraction[2])
        return float(fraction[1]) / below if below else None
    return float(strength) if _DECIMAL.fullmatch(strength) else None


def _wrong(text: str, why: str) -> DataError:
    return DataError(f"the condition '{text}' cannot be read: {why}; write it like clean, pgd@2/255 or blur@3.")


NO_REPORT = -1
TRACED = ("linf", "l2", "passes", "broken", "zero_gradients")

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Said:
    """What one model said of N images; not-a-number where it said nothing.

    Args:
        reports: Number of the text in `Evidence.texts`, [N]; -1 where no report was written.
        logprob: Mean log-probability of the tokens written, [N].
        loss: Mean -log p of the reference's tokens, [N].
        probs: Probability of being present for each label, [N, L].
        labels: 1 or 0 for each label as read off the report, [N, L].
    """

    reports: NDArray[np.int64]
    logprob: Matrix
    loss: Matrix
    probs: Matrix
    labels: Matrix

    @property
    def written(self) -> Flags:
        """Where there is a report, [N]."""
        written: Flags = self.reports != NO_REPORT
        return written

    @classmethod
    def nothing(cls, studies: int, labels: int) -> Said:
        """Room for that many studies, nothing said yet."""
        lone, table = np.full(studies, np.nan), np.full((studies, labels), np.nan)
        return cls(np.full(studies, NO_REPORT, np.int64), lone, lone.copy(), table, table.copy())

    def chosen(self, others: Iterable[Said], report: NDArray[np.intp], asked: NDArray[np.intp]) -> Said:
        """For each study the report of one of several and the answers of one of several.

        Args:
            others: Further ones, numbered from 1; this one is 0.
            report: Whose report is taken, [N].
            asked: Whose probabilities are taken, [N].
        """
        every, row = [self, *others], np.arange(len(self.reports))
        return Said(
            np.stack([one.reports for one in every])[report, row],
            np.stack([one.logprob for one in every])[report, row],
            np.stack([one.loss for one in every])[report, row],
            np.stack([one.probs for one in every])[asked, row],
            np.stack([one.labels for one in every])[report, row],
        )

    def only(self, pairs: Flags, studies: Flags) -> Said:
        """The same with some left out: answers beyond `pairs` [N, L], reports beyond `studies` [N]."""
        return Said(
            np.where(studies, self.reports, NO_REPORT),
            np.where(studies, self.logprob, np.nan),
            np.where(studies, self.loss, np.nan),
            np.where(pairs, self.probs, np.nan),
            np.where(studies[:, None], self.labels, np.nan),
        )


@dataclass(frozen=True, eq=False)
class Table:
    """One model under one condition.

    Args:
        model: Its key.
        condition: Under which.
        crafted_on: Key of the model that the images were made for; None where for none.
        image: What it said, [N].
        uint8: What it said of the images rounded to 8 bits; None where it was not asked.
        trace: How the attacks went: name of `TRACED` → [N], not-a-number where nothing is known.
    """

    model: str
    condition: Condition
    crafted_on: str | None
    image: Said
    uint8: Said | None = None
    trace: Mapping[str, Matrix] = field(default_factory=dict)

    @property
    def transferred(self) -> bool:
        """Whether the images were made for another model."""
        return self.crafted_on not in (None, self.model)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All lines of an audit.

    Args:
        studies: In the order of the file, N of them.
        labels: Names of the columns, L of them, in the order of first mention.
        truth: 1 or 0, [N, L]; not-a-number where unknown.
        texts: Each different report once.
        tables: (model, condition, crafted on) → table.
    """

    studies: tuple[StudyTruth, ...]
    labels: tuple[str, ...]
    truth: Matrix
    texts: tuple[str, ...]
    tables: Mapping[tuple[str, str, str | None], Table]

    @property
    def models(self) -> tuple[str, ...]:
        """Keys in order: the one under audit comes first."""
        return tuple(sorted({model for model, _, _ in self.tables}, key=lambda key: (len(key), key)))

    def clean(self, model: str) -> Table:
        """What a model said of the images as they are."""
        return self.tables[model, CLEAN, None]

    def own(self, model: str) -> dict[str, Table]:
        """Condition → table of changed images that were made for this model or for none."""
        return {
            table.condition.text: table
            for table in self.tables.values()
            if table.model == model and not table.transferred and table.condition.kind != CLEAN
        }

    def transferred(self, model: str, crafted_on: str) -> dict[str, Table]:
        """Condition → what a model said of images that were made for another."""
        return {
            table.condition.text: table
            for table in self.tables.values()
            if (table.model, table.crafted_on) == (model, crafted_on) and table.transferred
        }


def read_evidence(folder: Path) -> Evidence:
    """The evidence of a run folder."""
    return gather(read_truth(folder / TRUTH), read_answers(folder / ANSWERS))


def gather(truths: Iterable[StudyTruth], answers: Iterable[Answer]) -> Evidence:
    """Lines into columns; every condition must hold every study once, and every model its clean images."""
    studies = tuple(truths)
    names = tuple(dict.fromkeys(name for study in studies for name in study.labels))
    place = {study.id: row for row, study in enumerate(studies)}
    if not studies or len(place) < len(studies):
        what = "names a study twice" if studies else "holds no study"
        raise DataError(f"{TRUTH} {what}; every study must stand there once.")
    truth = np.array([[study.labels.get(name, np.nan) for name in names] for study in studies], np.float64)
    texts: dict[str, int] = {}
    fillings: dict[tuple[str, str, str | None], _Filling] = {}
    for answer in answers:
        key = (answer.model, answer.condition, answer.crafted_on)
        if key not in fillings:
            fillings[key] = _Filling(_empty(*key, len(studies), len(names)), _Columns(names, texts), len(studies))
        if answer.study not in place:
            raise DataError(
                f"{ANSWERS} line '{answer.id}': the study '{answer.study}' is not in {TRUTH}; add it there."
            )
        fillings[key].put(place[answer.study], answer)
    tables = {key: filling.table(studies) for key, filling in fillings.items()}
    found = Evidence(studies, names, truth.reshape(len(studies), len(names)), tuple(texts), tables)
    for model in found.models:
        if (model, CLEAN, None) not in tables:
            raise DataError(
                f"{ANSWERS} holds no clean images of the model '{model}'; there is nothing to compare with."
            )
    if not tables:
        raise DataError(f"{ANSWERS} holds no line; run the sweep first.")
    return found


def _empty(model: str, condition: str, crafted_on: str | None, studies: int, labels: int) -> Table:
    nothing = (Said.nothing(studies, labels) for _ in range(2))
    trace = {name: np.full(studies, np.nan) for name in TRACED}
    return Table(model, parse_condition(condition), crafted_on, next(nothing), next(nothing), trace)


class _Columns:
    """Where a label and a text stand."""

    def __init__(self, labels: Iterable[str], texts: dict[str, int]) -> None:
        self._column = {name: number for number, name in enumerate(labels)}
        self._texts = texts

    def put(self, said: Said, row: int, answer: ImageAnswer) -> None:
        """Write one answer into its row; labels whose truth is known of no study have no column."""
        if answer.report is not None:
            said.reports[row] = self._texts.setdefault(answer.report, len(self._texts))
        said.logprob[row] = np.nan if answer.mean_logprob is None else answer.mean_logprob
        said.loss[row] = np.nan if answer.loss is None else answer.loss
        for column, value in self._placed(answer.label_probs):
            said.probs[row, column] = value
        for column, value in self._placed(answer.labels):
            said.labels[row, column] = value

    def _placed(self, values: Mapping[str, float]) -> Iterator[tuple[int, float]]:
        return ((self._column[name], value) for name, value in values.items() if name in self._column)


class _Filling:
    """A table that is being filled."""

    def __init__(self, table: Table, columns: _Columns, studies: int) -> None:
        self._table, self._columns = table, columns
        self._seen = np.zeros(studies, dtype=bool)
        self._rounded = False

    def put(self, row: int, answer: Answer) -> None:
        """One line; a second one for the same image is refused."""
        if self._seen[row]:
            raise DataError(f"{ANSWERS} holds the image '{answer.id}' twice; delete one of the two lines.")
        self._seen[row] = True
        self._columns.put(self._table.image, row, answer.image)
        if answer.uint8 is not None and self._table.uint8 is not None:
            self._rounded = True
            self._columns.put(self._table.uint8, row, answer.uint8)
        if answer.attack is not None:
            for name in TRACED:
                self._table.trace[name][row] = getattr(answer.attack, name)
            if answer.attack.start == answer.attack.end == 0:  # a wish that makes no sense on this image (`WhereAble`)
                self._table.trace["broken"][row] = np.nan

    def table(self, studies: tuple[StudyTruth, ...]) -> Table:
        """The full table; a study that is missing is named."""
        if not self._seen.all():
            gaps = np.flatnonzero(~self._seen)
            where = f"{self._table.condition.text} of model '{self._table.model}'"
            raise DataError(
                f"{ANSWERS}: {where} lacks {len(gaps)} of {len(studies)} studies, such as '{studies[gaps[0]].id}'; "
                "resume the run, since conditions are compared on the same studies."
            )
        traced = any(not np.isnan(column).all() for column in self._table.trace.values())
        uint8 = self._table.uint8 if self._rounded else None
        return replace(self._table, uint8=uint8, trace=self._table.trace if traced else {})
