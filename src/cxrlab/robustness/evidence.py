"""What an audit has on file: the truth of each study, and what each model said of each image that it was shown.

The sweep writes these lines; everything in numbers is made from them and from nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cxrlab.core import fields
from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.fields import Record
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import Finding

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
