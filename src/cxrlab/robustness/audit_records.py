"""The records of an audit on file: what is known of each study, and what each model returned for each image.

Conditions are named `clean`, `pgd@2/255` or `pgd:answers@0.01` (attack, its aim where it is not the first, radius) and
`blur@3` (corruption and severity).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from cxrlab.core import record_fields as fields
from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.record_fields import Record
from cxrlab.core.records import Finding

TRUTH_FILE = "truth.jsonl"
ANSWERS_FILE = "answers.jsonl"
CLEAN = "clean"
WORST = "worst"  # per study the most harmful result of all attacks of at most this radius


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
        "blank": fields.list_of(fields.non_empty_text),
    }

    id: str
    patient: str
    reference: str | None = None  # Reference report; None where there is none
    findings: tuple[Finding, ...] | None = None  # Exact findings where the corpus has them
    labels: Mapping[str, int] = field(default_factory=dict)  # Label → 1 present, 0 absent; a missing label is unknown
    blank: tuple[str, ...] = ()  # Labels of which the source says nothing, where they also count as absent


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
        "outside": fields.number(0, 1),
        "labels": fields.mapping_of(_label),
        "refused": fields.boolean,
    }

    report: str | None = None  # Generated report; None where the model generates none
    mean_logprob: float | None = None  # Mean log-probability of the generated tokens
    tokens: int | None = None  # Number of generated tokens
    loss: float | None = None  # Mean of -log p over the reference's tokens
    # Label → probability of being present, where the label was asked about
    label_probs: Mapping[str, float] = field(default_factory=dict)
    outside: float | None = None  # Mean probability of answers that are neither yes nor no
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
