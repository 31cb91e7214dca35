"""Evidence of an audit: the records that it keeps on file, and the same records as arrays.

The sweep writes truth.jsonl and answers.jsonl; every number of an audit is computed from them. As arrays there is one
`Table` for each model and condition, with one row per study, the studies in the same order everywhere.

Conditions are named `clean`, `pgd@2/255` or `pgd:answers@0.01` (attack, its aim where it is not the first, radius) and
`blur@3` (corruption and severity).
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

from cxrlab.core import record_fields as fields
from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.record_fields import Record
from cxrlab.core.records import Finding
from cxrlab.metrics.base import Matrix

TRUTH = "truth.jsonl"
ANSWERS = "answers.jsonl"
CLEAN = "clean"
WORST = "worst"  # per study the most harmful result of all attacks of at most this radius
NO_REPORT = -1
TRACED = ("linf", "l2", "passes", "broken", "zero_gradients")

Flags = NDArray[np.bool_]


def _label(value: Any, key: str) -> int:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value in (0, 1):
        return int(value)
    raise DataError(
        f"'{key}' is {short_repr(value)}; it must be 1 (present) or 0 (absent), or be left out where unknown."
    )


@dataclass(frozen=True)
class StudyTruth(Record):
    """What is known of one study."""

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
    reference: str | None = None  # Reference report; None where there is none
    findings: tuple[Finding, ...] | None = None  # Exact findings where the corpus has them
    labels: Mapping[str, int] = field(default_factory=dict)  # Label → 1 present, 0 absent; a missing label is unknown


@dataclass(frozen=True)
class ImageAnswer(Record):
    """What a model returned for one image."""

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

    report: str | None = None  # Generated report; None where the model generates none
    mean_logprob: float | None = None  # Mean log-probability of the generated tokens
    tokens: int | None = None  # Number of generated tokens
    loss: float | None = None  # Mean of -log p over the reference's tokens
    # Label → probability of being present, where the label was asked about
    label_probs: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)  # Label → 1 or 0 as read from the report
    # True where the model refused to generate a report; its refusal is not kept. None otherwise
    refused: bool | None = None


@dataclass(frozen=True)
class AttackTrace(Record):
    """How an attack went on one image."""

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

    start: float  # Loss before
    end: float  # Loss after
    broken: bool  # Whether the attack succeeded
    linf: float  # Largest change of a pixel, on the scale from 0 to 1
    l2: float  # Euclidean length of the change
    passes: int  # Forward passes of the model
    zero_gradients: float  # Share of steps whose gradient was 0 everywhere


@dataclass(frozen=True)
class Answer(Record):
    """One examined image."""

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

    id: str  # See `answer_id`
    model: str  # Key of the model: a is the one under audit; b, c … are compared with it
    condition: str
    study: str
    image: ImageAnswer  # What the model returned
    # Key of the model for which the image was perturbed; None for clean, noise and corruptions
    crafted_on: str | None = None
    # What the model returned for the image rounded to 8 bits; None where that was not examined
    uint8: ImageAnswer | None = None
    attack: AttackTrace | None = None  # How the attack went; None where there was none


def answer_id(model: str, condition: str, study: str, crafted_on: str | None = None) -> str:
    """`a|pgd@2/255|s1`, or `b<a|pgd@2/255|s1` where b examines an image that was perturbed for a."""
    key = model if crafted_on in (None, model) else f"{model}<{crafted_on}"
    return f"{key}|{condition}|{study}"


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


@dataclass(frozen=True)
class Condition:
    """A parsed condition."""

    text: str  # As it stands on file
    kind: Literal["clean", "attack", "corruption"]
    name: str  # Of the attack (`pgd`) or the corruption (`blur`); "clean"
    objective: str | None = None  # Aim of the attack, where the condition names it
    eps: float | None = None  # Radius of an attack, on the scale of pixels from 0 to 1
    eps_text: str | None = None  # The radius as it was written, such as 2/255
    severity: int | None = None  # Of a corruption, 1 to 5

    @property
    def attack(self) -> str:
        """Attack and aim without the radius; there is one curve for each."""
        return self.name if self.objective is None else f"{self.name}:{self.objective}"


_SHAPE = re.compile(r"(?P<name>[^@:|\s]+)(:(?P<objective>[^@:|\s]+))?@(?P<strength>[^@|\s]+)")
_FRACTION = re.compile(r"(\d+(?:\.\d+)?)/(\d+(?:\.\d+)?)")
_DECIMAL = re.compile(r"\d*\.\d+(e-?\d+)?|\d+e-\d+")


@cache
def parse_condition(text: str) -> Condition:
    """Parse a condition; a whole number after the @ is a severity, a fraction or decimal a radius."""
    if text == CLEAN:
        return Condition(text, "clean", CLEAN)
    problem = "it is neither 'clean' nor a name, an @ and a strength"
    if shape := _SHAPE.fullmatch(text):
        name, objective, strength = shape["name"], shape["objective"], shape["strength"]
        if strength.isdecimal():
            if objective is None and int(strength) in range(1, 6):
                return Condition(text, "corruption", name, severity=int(strength))
            problem = "a whole number is the severity of a corruption, from 1 to 5, which has no objective"
        else:
            fraction, eps = _FRACTION.fullmatch(strength), None
            if fraction and float(fraction[2]):
                eps = float(fraction[1]) / float(fraction[2])
            elif _DECIMAL.fullmatch(strength):
                eps = float(strength)
            if eps is not None:
                return Condition(text, "attack", name, objective, eps, strength)
            problem = "the radius of an attack is a fraction or a decimal of at least 0"
    raise DataError(f"Cannot read the condition '{text}': {problem}; write it like clean, pgd@2/255 or blur@3.")


@dataclass(frozen=True, eq=False)
class Outputs:
    """What one model returned for N images; not-a-number where it returned nothing."""

    reports: NDArray[np.int64]  # Number of the text in `Evidence.texts`, [N]; -1 where no report was generated
    logprob: Matrix  # Mean log-probability of the generated tokens, [N]
    loss: Matrix  # Mean of -log p over the reference's tokens, [N]
    probs: Matrix  # Probability of being present for each label, [N, L]
    labels: Matrix  # 1 or 0 for each label as read from the report, [N, L]

    @property
    def written(self) -> Flags:
        """Where there is a report, [N]."""
        written: Flags = self.reports != NO_REPORT
        return written

    @classmethod
    def empty(cls, studies: int, labels: int) -> Outputs:
        """Space for that many studies."""
        column, table = np.full(studies, np.nan), np.full((studies, labels), np.nan)
        return cls(np.full(studies, NO_REPORT, np.int64), column, column.copy(), table, table.copy())

    def put(self, row: int, answer: ImageAnswer, columns: Mapping[str, int], texts: dict[str, int]) -> None:
        """Fill one row; labels whose truth is known of no study have no column.

        Args:
            columns: Label → column.
            texts: Report → number; new reports are added.
        """
        if answer.report is not None:
            self.reports[row] = texts.setdefault(answer.report, len(texts))
        self.logprob[row] = np.nan if answer.mean_logprob is None else answer.mean_logprob
        self.loss[row] = np.nan if answer.loss is None else answer.loss
        for values, table in ((answer.label_probs, self.probs), (answer.labels, self.labels)):
            for name, value in values.items():
                if name in columns:
                    table[row, columns[name]] = value

    def select(self, others: Iterable[Outputs], report: NDArray[np.intp], asked: NDArray[np.intp]) -> Outputs:
        """For each study the report of one of several outputs and the answers of one of several.

        Args:
            others: Further outputs, numbered from 1; this one is 0.
            report: Number of the output whose report is taken, [N].
            asked: Number of the output whose probabilities are taken, [N].
        """
        every, row = [self, *others], np.arange(len(self.reports))
        return Outputs(
            np.stack([one.reports for one in every])[report, row],
            np.stack([one.logprob for one in every])[report, row],
            np.stack([one.loss for one in every])[report, row],
            np.stack([one.probs for one in every])[asked, row],
            np.stack([one.labels for one in every])[report, row],
        )

    def only(self, pairs: Flags, studies: Flags) -> Outputs:
        """The answers in `pairs` [N, L] and the reports in `studies` [N]; all others are empty."""
        return Outputs(
            np.where(studies, self.reports, NO_REPORT),
            np.where(studies, self.logprob, np.nan),
            np.where(studies, self.loss, np.nan),
            np.where(pairs, self.probs, np.nan),
            np.where(studies[:, None], self.labels, np.nan),
        )


@dataclass(frozen=True, eq=False)
class Table:
    """One model under one condition."""

    model: str
    condition: Condition
    crafted_on: str | None  # Key of the model for which the images were perturbed; None where for none
    image: Outputs
    uint8: Outputs | None = None  # Outputs for the images rounded to 8 bits; None where these were not examined
    # How the attacks went: name of `TRACED` → [N], not-a-number where unknown
    trace: Mapping[str, Matrix] = field(default_factory=dict)

    @property
    def transferred(self) -> bool:
        """Whether the images were perturbed for another model."""
        return self.crafted_on not in (None, self.model)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All records of an audit as arrays."""

    studies: tuple[StudyTruth, ...]  # In the order of the file, N of them
    labels: tuple[str, ...]  # Names of the columns, L of them, in the order of first mention
    truth: Matrix  # 1 or 0, [N, L]; not-a-number where unknown
    texts: tuple[str, ...]  # Each different report once
    tables: Mapping[tuple[str, str, str | None], Table]  # (model, condition, crafted on) → table

    @property
    def models(self) -> tuple[str, ...]:
        """Keys in order: the one under audit comes first."""
        return tuple(sorted({model for model, _, _ in self.tables}, key=lambda key: (len(key), key)))

    def clean(self, model: str) -> Table:
        """The clean images."""
        return self.tables[model, CLEAN, None]

    def own(self, model: str) -> dict[str, Table]:
        """Condition → table of changed images, without those that were perturbed for another model."""
        return {
            table.condition.text: table
            for table in self.tables.values()
            if table.model == model and not table.transferred and table.condition.kind != CLEAN
        }

    def transferred(self, model: str, crafted_on: str) -> dict[str, Table]:
        """Condition → table of images that were perturbed for another model."""
        return {
            table.condition.text: table
            for table in self.tables.values()
            if (table.model, table.crafted_on) == (model, crafted_on) and table.transferred
        }


def read_evidence(folder: Path) -> Evidence:
    """The evidence of a run folder."""
    return gather(read_truth(folder / TRUTH), read_answers(folder / ANSWERS))


def gather(truths: Iterable[StudyTruth], answers: Iterable[Answer]) -> Evidence:
    """Records into arrays; a `DataError` where a study is missing or stands twice."""
    studies = tuple(truths)
    names = tuple(dict.fromkeys(name for study in studies for name in study.labels))
    columns = {name: number for number, name in enumerate(names)}
    rows = {study.id: row for row, study in enumerate(studies)}
    if not studies or len(rows) < len(studies):
        problem = "names a study twice" if studies else "has no study"
        raise DataError(f"{TRUTH} {problem}; it must have every study once.")
    truth = np.array([[study.labels.get(name, np.nan) for name in names] for study in studies], np.float64)
    size = (len(studies), len(names))
    texts: dict[str, int] = {}
    tables: dict[tuple[str, str, str | None], Table] = {}
    filled: dict[tuple[str, str, str | None], Flags] = {}
    with_uint8 = set()
    for answer in answers:
        key = (answer.model, answer.condition, answer.crafted_on)
        if key not in tables:
            trace = {name: np.full(len(studies), np.nan) for name in TRACED}
            condition = parse_condition(answer.condition)
            empty = Outputs.empty(*size), Outputs.empty(*size)
            tables[key] = Table(answer.model, condition, answer.crafted_on, *empty, trace)
            filled[key] = np.zeros(len(studies), dtype=bool)
        if answer.study not in rows:
            raise DataError(
                f"{ANSWERS} line '{answer.id}': the study '{answer.study}' is not in {TRUTH}; add it there."
            )
        row, table = rows[answer.study], tables[key]
        if filled[key][row]:
            raise DataError(f"{ANSWERS} has the image '{answer.id}' twice; delete one of the two lines.")
        filled[key][row] = True
        table.image.put(row, answer.image, columns, texts)
        if answer.uint8 is not None and table.uint8 is not None:
            with_uint8.add(key)
            table.uint8.put(row, answer.uint8, columns, texts)
        if answer.attack is not None:
            for name in TRACED:
                table.trace[name][row] = getattr(answer.attack, name)
            if answer.attack.start == answer.attack.end == 0:  # the aim does not apply here, see `WhereApplicable`
                table.trace["broken"][row] = np.nan
    for key, table in tables.items():
        if not filled[key].all():
            gaps = np.flatnonzero(~filled[key])
            raise DataError(
                f"{ANSWERS}: {table.condition.text} of model '{table.model}' lacks {len(gaps)} of {len(studies)} "
                f"studies, such as '{studies[gaps[0]].id}'; resume the run, since conditions are compared on the same "
                "studies."
            )
        traced = any(not np.isnan(column).all() for column in table.trace.values())
        uint8 = table.uint8 if key in with_uint8 else None
        tables[key] = replace(table, uint8=uint8, trace=table.trace if traced else {})
    evidence = Evidence(studies, names, truth.reshape(size), tuple(texts), tables)
    for model in evidence.models:
        if (model, CLEAN, None) not in tables:
            raise DataError(f"{ANSWERS} has no clean images of the model '{model}'; there is nothing to compare with.")
    if not tables:
        raise DataError(f"{ANSWERS} has no line; run the sweep first.")
    return evidence
