"""The frozen records that packages exchange, and their JSON form.

`to_json` drops what is None or an empty mapping; `from_json` checks every field. Unknown keys of a study, image or
prediction are kept in `extra`, since other programs may add fields; elsewhere they are refused, because a typo would
silently lose data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cxrlab.core import record_fields as fields
from cxrlab.core.errors import DataError, VocabularyError, did_you_mean, short_repr
from cxrlab.core.record_fields import Record
from cxrlab.core.vocabulary import (
    CHEXPERT_14,
    CHEXPERT_CHILDREN,
    CHEXPERT_INCIDENTAL,
    LOCATIONS,
    Certainty,
    Change,
    ErrorKind,
    Group,
    Presence,
    Severity,
    Side,
    View,
    chexpert_label,
    observation,
)

Json = dict[str, Any]
Span = tuple[int, int]
SECTIONS = ("examination", "indication", "comparison", "findings", "impression")
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Finding(Record):
    """One statement about an image."""

    what = "a finding"
    checks = {
        "observation": fields.text,
        "presence": fields.Word(Presence),
        "certainty": fields.Word(Certainty),
        "side": fields.Word(Side),
        "location": fields.text,
        "severity": fields.Word(Severity),
        "size_mm": fields.number(low=0),
        "change": fields.Word(Change),
        "tip": fields.text,
        "tip_mm": fields.number(),
        "span": fields.span,
    }

    observation: str  # A name of `vocabulary.OBSERVATIONS`
    presence: Presence = Presence.PRESENT
    certainty: Certainty = Certainty.CERTAIN  # Certain, or possible (hedged)
    side: Side | None = None  # The patient's side; None when it has none or none was given
    location: str | None = None  # A word of `vocabulary.LOCATIONS`
    severity: Severity | None = None
    size_mm: float | None = None  # Largest diameter
    change: Change | None = None  # Against the prior study; None without a comparison
    tip: str | None = None  # Where a device ends, a word of `vocabulary.TIPS`
    tip_mm: float | None = None  # Height of a tube's tip above the carina
    span: Span | None = None  # Characters [start, end) of the report text that state it

    def __post_init__(self) -> None:
        super().__post_init__()
        row = observation(self.observation)
        if self.location is not None and self.location not in LOCATIONS:
            raise VocabularyError(
                f"{short_repr(self.location)} is not a location of the vocabulary.{did_you_mean(self.location, LOCATIONS)}"
            )
        if self.tip is not None and self.tip not in row.tips:
            raise VocabularyError(
                f"{short_repr(self.tip)} is not a tip position of '{self.observation}'.{did_you_mean(self.tip, row.tips)}"
            )

    @property
    def present(self) -> bool:
        """True for what is there, hedged or not."""
        return self.presence is Presence.PRESENT


@dataclass(frozen=True)
class ReportError(Record):
    """One error of a candidate report with respect to its reference."""

    what = "an error of a report"
    checks = {
        "kind": fields.Word(ErrorKind),
        "significant": fields.boolean,
        "observation": fields.text,
        "reference_span": fields.span,
        "candidate_span": fields.span,
        "detail": fields.text,
    }

    kind: ErrorKind
    significant: bool  # Whether it is clinically significant
    observation: str
    # Characters [start, end) of the correct statement in the reference; None where there is none
    reference_span: Span | None = None
    candidate_span: Span | None = None  # Characters of the wrong statement in the candidate; None for an omission
    detail: str = ""  # A few words for people: what is stated, and what should be

    def to_json(self) -> Json:
        """Both spans always, null where there is none."""
        spans = {"reference_span": self.reference_span, "candidate_span": self.candidate_span}
        plain = {key: list(value) if value else None for key, value in spans.items()}
        return {**super().to_json(), **plain}


@dataclass(frozen=True)
class Report(Record):
    """The text of a radiology report by section; None is a section that the source does not have."""

    what = "the text of a report"
    checks = dict.fromkeys(SECTIONS, fields.text)

    examination: str | None = None
    indication: str | None = None
    comparison: str | None = None
    findings: str | None = None
    impression: str | None = None

    def section(self, name: str) -> str | None:
        """The text of one section, by name."""
        if name not in SECTIONS:
            raise DataError(
                f"'{name}' is not a section of a report.{did_you_mean(name, SECTIONS)} Sections: {', '.join(SECTIONS)}."
            )
        text: str | None = getattr(self, name)
        return text

    def to_json(self) -> Json:
        """All five sections, null where absent."""
        return {name: getattr(self, name) for name in SECTIONS}


def _corners(value: Any, key: str) -> tuple[float, float, float, float]:
    number = fields.number()
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        raise DataError(f"'{key}' is {short_repr(value)}; it must be [left, top, right, bottom] in pixels.")
    left, top, right, bottom = (number(corner, key) for corner in value)
    if left > right or top > bottom:
        raise DataError(f"'{key}' is {short_repr(value)}; left must not exceed right, nor top exceed bottom.")
    return left, top, right, bottom


@dataclass(frozen=True)
class Box(Record):
    """A rectangle drawn around a finding."""

    what = "a box"
    checks = {"label": fields.non_empty_text, "corners": _corners, "image": fields.integer(), "reader": fields.text}

    label: str  # What it marks, in the corpus's own words
    # Left, top, right, bottom in pixels of the image as the source stores it
    corners: tuple[float, float, float, float]
    image: int = 0  # Index of the image in the study
    reader: str | None = None  # Who drew it, where the source names them


@dataclass(frozen=True)
class ImageFile(Record):
    """One image of a study: path relative to the corpus folder, and view.

    A view of None is unknown; it is never assumed to be frontal.
    """

    what = "an image"
    checks = {"path": fields.path, "view": fields.Word(View)}

    path: str
    view: View | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def _label(value: Any, key: str) -> int:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value in (-1, 0, 1):
        return int(value)
    raise DataError(
        f"'{key}' is {short_repr(value)}; it must be 1 (present), 0 (absent) or -1 (uncertain), or be left out."
    )


ALIASES = "aliases"  # key of `Study.extra`: names of the same study elsewhere, by which predictions are matched too


@dataclass(frozen=True)
class Study(Record):
    """One examination of a patient: images, text, and what is known of the truth."""

    what = "a study"
    checks = {
        "id": fields.non_empty_text,
        "patient": fields.non_empty_text,
        "images": fields.list_of(fields.parsed_by(ImageFile.from_json)),
        "absent_images": fields.list_of(fields.parsed_by(ImageFile.from_json)),
        "sections": fields.parsed_by(Report.from_json),
        "report": fields.text,
        "split": fields.one_of(*SPLITS),
        "age": fields.number(low=0),
        "sex": fields.one_of("F", "M"),
        "prior": fields.non_empty_text,
        "labels": fields.mapping_of(_label, fields.parsed_by(chexpert_label)),
        "own_labels": fields.mapping_of(_label),
        "boxes": fields.list_of(fields.parsed_by(Box.from_json)),
        "findings": fields.list_of(fields.parsed_by(Finding.from_json)),
        "masks": fields.mapping_of(fields.path),
        "structured": fields.mapping_of(fields.mapping_of(fields.text)),
        "caption": fields.text,
    }

    id: str  # Unique in the corpus
    patient: str  # Groups studies; a patient is never in two splits
    images: tuple[ImageFile, ...] = ()  # In the order of the source
    # Images that the source lists but that were not on disk at import; None when all were
    absent_images: tuple[ImageFile, ...] | None = None
    sections: Report | None = None  # Source text by rule; None when the corpus has no report in English
    report: str | None = None  # The whole source text, in its language; None when it comes in sections or not at all
    split: str | None = None  # train, val or test; None before a split was made
    age: float | None = None  # Years
    sex: str | None = None  # "F", "M" or None
    prior: str | None = None  # Id of the previous study of the same patient
    # CheXpert observation → 1 present, 0 absent, -1 uncertain. A missing label is unknown.
    labels: Mapping[str, int] = field(default_factory=dict)
    # The corpus's own labels under its own names, with the same values
    own_labels: Mapping[str, int] = field(default_factory=dict)
    boxes: tuple[Box, ...] | None = None  # Rectangles that readers drew
    # Exact findings where known; None when unknown (an empty list is a normal image)
    findings: tuple[Finding, ...] | None = None
    masks: Mapping[str, str] = field(default_factory=dict)  # Index into `findings` (as text) → path of a mask image
    # Text made from the source's, by its author: the name of a language model, `rules`, or `labels` (sentences
    # from labels); never in a test split
    structured: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    caption: str | None = None  # What an image without a chest shows (scenes); such a record carries no report
    # Keys of the source that this project does not use, unchanged
    extra: Mapping[str, Any] = field(default_factory=dict)


def chexpert_labels(findings: Sequence[Finding], *, complete: bool) -> dict[str, int]:
    """The fourteen labels that a list of findings implies.

    A certain presence outweighs a possible one, which outweighs an absence. In a complete list a parent of CheXpert's
    hierarchy is unknown, not absent, where a child of it is present or possible and the parent itself is not. `No
    Finding` follows CheXpert: 1 when nothing but devices and the incidental is present or possible, never -1; a
    scoliosis, which is none of the fourteen, cancels it too.

    Args:
        complete: Whether what the list does not name is absent; otherwise it is unknown.
    """
    labels: dict[str, int] = {}
    rank = {None: -1, 0: 0, -1: 1, 1: 2}
    for finding in findings:
        name = observation(finding.observation).chexpert
        value = 0 if not finding.present else (1 if finding.certainty is Certainty.CERTAIN else -1)
        if name is not None and rank[value] > rank[labels.get(name)]:
            labels[name] = value
    there = {name for name, value in labels.items() if value}
    if complete:
        unknown = {parent for parent, children in CHEXPERT_CHILDREN.items() if there & set(children)} - there
        labels = {name: labels.get(name, 0) for name in CHEXPERT_14 if name not in unknown}
    present = [observation(finding.observation) for finding in findings if finding.present]
    if all(row.group is Group.DEVICE or row.name in CHEXPERT_INCIDENTAL for row in present):
        labels["No Finding"] = 1
    return {name: labels[name] for name in CHEXPERT_14 if name in labels}


@dataclass(frozen=True)
class Prediction(Record):
    """What a model generated for one study (or `study#k` for its k-th image)."""

    what = "a prediction"
    checks = {
        "id": fields.non_empty_text,
        "report": fields.text,
        "confidence": fields.mapping_of(fields.number(or_undefined=True)),
        "label_probs": fields.mapping_of(fields.number(0, 1), fields.parsed_by(chexpert_label)),
    }

    id: str
    report: str
    confidence: Mapping[str, float] = field(default_factory=dict)
    label_probs: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PreferencePair(Record):
    """Two reports for one study, one judged better, and by how much."""

    what = "a preference pair"
    checks = {
        "id": fields.non_empty_text,
        "chosen": fields.text,
        "rejected": fields.text,
        "judge": fields.non_empty_text,
        "chosen_score": fields.number(),
        "rejected_score": fields.number(),
    }

    id: str
    chosen: str
    rejected: str
    judge: str
    chosen_score: float | None = None
    rejected_score: float | None = None


@dataclass(frozen=True)
class Query(Record):
    """One query to a victim: the image by its hash, the answer and its cost."""

    what = "a query"
    checks = {
        "id": fields.non_empty_text,
        "image_sha256": fields.non_empty_text,
        "report": fields.text,
        "tokens": fields.integer(),
        "cost_usd": fields.number(low=0),
        "latency_s": fields.number(low=0),
        "round": fields.integer(),
    }

    id: str
    image_sha256: str
    report: str | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    round: int = 0


EXAMPLES, THUMBS = "examples.jsonl", "thumbs"


@dataclass(frozen=True)
class Example(Record):
    """A study shown on a page."""

    what = "an example"
    checks = {
        "id": fields.non_empty_text,
        "thumb": fields.path,
        "heading": fields.text,
        "truth": fields.list_of(fields.text),
        "reference": fields.text,
    }

    id: str
    thumb: str  # Path of its image inside the run folder
    heading: str = ""  # View, age and sex in a few words
    # Known findings, a few words each; empty for a normal image, None when nothing is known
    truth: tuple[str, ...] | None = None
    reference: str | None = None  # The findings section of its report; None when it has none
