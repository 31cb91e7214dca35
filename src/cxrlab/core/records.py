"""The frozen records that rooms exchange, and their JSON form.

`Study → Prediction → Score` is the main road; `PreferencePair` and `Query` are its two branches.
`record.to_json()` drops what is None or empty, `Record.from_json()` refuses what it does not know
where a typo would silently lose data (findings, labels, views), and keeps foreign keys of a study
in `extra`, since the corpus contract lets others add fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from cxrlab.core.errors import DataError, VocabularyError, nearest
from cxrlab.core.vocabulary import (
    CHEXPERT_14,
    CHEXPERT_CHILDREN,
    LOCATIONS,
    Certainty,
    Change,
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

E_ = TypeVar("E_", bound=StrEnum)


def _word(kind: type[E_], value: object, field_name: str) -> E_:
    """`value` as a member of `kind`, or an error that lists what is allowed."""
    try:
        return kind(str(value))
    except ValueError:
        allowed = ", ".join(f"'{member.value}'" for member in kind)
        raise VocabularyError(f"{field_name} is '{value}'; it must be one of {allowed}.") from None


def _known_keys(source: Mapping[str, Any], record: type, what: str) -> None:
    names = [f.name for f in dataclasses.fields(record)]
    for key in source:
        if key not in names:
            raise DataError(f"{what} has an unknown key '{key}'.{nearest(key, names)} Known keys: {', '.join(names)}.")


@dataclass(frozen=True)
class Finding:
    """One statement about a film: the record that drives the whole project.

    Args:
        observation: A name of `vocabulary.OBSERVATIONS`.
        presence: Present or absent.
        certainty: Certain, or possible (a hedge).
        side: The patient's side, None when it has none or none was given.
        location: A word of `vocabulary.LOCATIONS`.
        severity: Trace, mild, moderate or severe.
        size_mm: Largest diameter of the thing itself.
        change: Against the prior study; None when nothing was compared.
        tip: Where a device ends, a word of `vocabulary.TIPS`.
        tip_mm: Height of a tube's tip above the carina.
        span: Characters [start, end) of the report text that say it.
    """

    observation: str
    presence: Presence = Presence.PRESENT
    certainty: Certainty = Certainty.CERTAIN
    side: Side | None = None
    location: str | None = None
    severity: Severity | None = None
    size_mm: float | None = None
    change: Change | None = None
    tip: str | None = None
    tip_mm: float | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        row = observation(self.observation)
        if self.location is not None and self.location not in LOCATIONS:
            raise VocabularyError(
                f"'{self.location}' is not a location of the vocabulary.{nearest(self.location, LOCATIONS)}"
            )
        if self.tip is not None and self.tip not in row.tips:
            raise VocabularyError(
                f"'{self.tip}' is not a tip position of '{self.observation}'.{nearest(self.tip, row.tips)}"
            )

    @property
    def present(self) -> bool:
        """True for what is there, hedged or not."""
        return self.presence is Presence.PRESENT

    def to_json(self) -> Json:
        """Plain values; fields that are None are left out."""
        return _plain(self)

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> Finding:
        """Read the JSON form; an unknown key or word is an error."""
        _known_keys(source, cls, "a finding")
        if "observation" not in source:
            raise DataError("a finding has no 'observation'.")
        words: dict[str, type[StrEnum]] = {
            "presence": Presence,
            "certainty": Certainty,
            "side": Side,
            "severity": Severity,
            "change": Change,
        }
        values: Json = {}
        for key, value in source.items():
            if value is None:
                continue
            if key in words:
                value = _word(words[key], value, key)
            elif key == "span":
                value = _span(value)
            values[key] = value
        return cls(**values)


def _span(value: Any) -> Span:
    if not (isinstance(value, Sequence) and len(value) == 2 and all(isinstance(v, int) for v in value)):
        raise DataError(f"a span must be two whole numbers [start, end), not {value!r}.")
    return (value[0], value[1])


@dataclass(frozen=True)
class Report:
    """The text of a radiology report by section; None is a section that the source does not have."""

    examination: str | None = None
    indication: str | None = None
    comparison: str | None = None
    findings: str | None = None
    impression: str | None = None

    def section(self, name: str) -> str | None:
        """The text of one section, by name."""
        if name not in SECTIONS:
            raise DataError(
                f"'{name}' is not a section of a report.{nearest(name, SECTIONS)} Sections: {', '.join(SECTIONS)}."
            )
        text: str | None = getattr(self, name)
        return text

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> Report:
        """Read the JSON form; an unknown section or a non-text value is an error."""
        _known_keys(source, cls, "'sections'")
        for key, value in source.items():
            if value is not None and not isinstance(value, str):
                raise DataError(f"section '{key}' must be text or null, not {type(value).__name__}.")
        return cls(**source)

    def to_json(self) -> Json:
        """All five sections, null where absent: the reader of the file sees what was looked for."""
        return {name: getattr(self, name) for name in SECTIONS}


@dataclass(frozen=True)
class ImageFile:
    """One film of a study: a path relative to the corpus folder, and its view."""

    path: str
    view: View = View.FRONTAL
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> Json:
        """Plain values."""
        return {"path": self.path, "view": self.view.value, **self.extra}

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> ImageFile:
        """Read the JSON form; foreign keys are kept."""
        if not isinstance(source, Mapping) or not isinstance(source.get("path"), str):
            raise DataError(f"an image must be an object with a text 'path', not {source!r}.")
        view = _word(View, source.get("view") or View.FRONTAL, "view")
        return cls(source["path"], view, {k: v for k, v in source.items() if k not in ("path", "view")})


@dataclass(frozen=True)
class Study:
    """One visit to the X-ray room: films, text and what is known of the truth.

    Args:
        id: Unique in the corpus.
        patient: Groups studies; a patient is never in two splits.
        images: Films in the order of the source.
        sections: Source text by rule; None when the corpus carries no report.
        split: train, val or test; None before a split was made.
        age: Years.
        sex: "F", "M" or None.
        prior: Id of the previous study of the same patient.
        labels: CheXpert observation → 1 present, 0 absent, -1 uncertain. A missing label is unknown.
        findings: Exact findings where known; None when unknown (an empty list is a normal film).
        masks: Index into `findings` (as text) → path of a mask image.
        structured: Text made by a language model, by model name; never in a test split.
        caption: What a picture without a chest shows (scenes); such a record carries no report.
        extra: Keys of the source that this project does not use, kept as they are.
    """

    id: str
    patient: str
    images: tuple[ImageFile, ...] = ()
    sections: Report | None = None
    split: str | None = None
    age: float | None = None
    sex: str | None = None
    prior: str | None = None
    labels: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[Finding, ...] | None = None
    masks: Mapping[str, str] = field(default_factory=dict)
    structured: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    caption: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> Json:
        """The contract's JSON form; what is None or empty is left out, foreign keys stand last."""
        out = _plain(self)
        if self.findings is not None:
            out["findings"] = [finding.to_json() for finding in self.findings]
        out.pop("extra", None)
        return {**out, **self.extra}

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> Study:
        """Read one line of studies.jsonl and check every word of it."""
        known = {f.name for f in dataclasses.fields(cls)} - {"extra"}
        values: Json = {k: v for k, v in source.items() if k in known and v is not None}
        for key in ("id", "patient"):
            if not isinstance(values.get(key), str) or not values[key]:
                raise DataError(f"a study needs a non-empty text '{key}', found {source.get(key)!r}.")
        split = values.get("split")
        if split is not None and split not in SPLITS:
            raise DataError(f"split is '{split}'; it must be one of {', '.join(SPLITS)}.{nearest(str(split), SPLITS)}")
        values["images"] = tuple(ImageFile.from_json(image) for image in values.get("images", ()))
        values["labels"] = {chexpert_label(k): _label(k, v) for k, v in values.get("labels", {}).items()}
        if "sections" in values:
            values["sections"] = Report.from_json(values["sections"])
        if "findings" in values:
            values["findings"] = tuple(Finding.from_json(finding) for finding in values["findings"])
        return cls(**values, extra={k: v for k, v in source.items() if k not in known})


def _label(name: str, value: Any) -> int:
    if isinstance(value, (int, float)) and value in (-1, 0, 1):
        return int(value)
    raise DataError(
        f"label '{name}' is {value!r}; it must be 1 (present), 0 (absent) or -1 (uncertain), or be left out."
    )


def chexpert_labels(findings: Sequence[Finding], *, complete: bool) -> dict[str, int]:
    """The fourteen labels that a list of findings implies.

    Args:
        findings: What is stated of a film.
        complete: True when the list is the whole truth, so that what it does not name is absent;
            False when it is what a report says, so that what it does not name stays unknown.

    A certain presence outweighs a possible one, which outweighs an absence. In the whole truth a
    parent of CheXpert's hierarchy is unknown, not absent, where a child of it is present or possible
    and the parent itself is not. `No Finding` follows CheXpert: 1 when none of the other twelve
    (devices apart) is present or possible, so a film with nothing but a scoliosis has it; it is never -1.
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
    if not there - {"Support Devices"}:
        labels["No Finding"] = 1
    return {name: labels[name] for name in CHEXPERT_14 if name in labels}


@dataclass(frozen=True)
class Prediction:
    """What a model wrote for one study (or `study#k` for its k-th image)."""

    id: str
    report: str
    confidence: Mapping[str, float] = field(default_factory=dict)
    label_probs: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> Json:
        """The contract's JSON form."""
        out = _plain(self)
        out.pop("extra", None)
        return {**out, **self.extra}

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> Prediction:
        """Read one line of predictions.jsonl; foreign keys are kept."""
        for key in ("id", "report"):
            if not isinstance(source.get(key), str):
                raise DataError(f"a prediction needs a text '{key}', found {source.get(key)!r}.")
        known = ("id", "report", "confidence", "label_probs")
        values = {k: v for k, v in source.items() if k in known and v is not None}
        return cls(**values, extra={k: v for k, v in source.items() if k not in known})


@dataclass(frozen=True)
class PreferencePair:
    """Two reports for one study, one judged better, and by how much."""

    id: str
    chosen: str
    rejected: str
    judge: str
    chosen_score: float | None = None
    rejected_score: float | None = None

    def to_json(self) -> Json:
        """Plain values."""
        return _plain(self)


@dataclass(frozen=True)
class Query:
    """One question to a victim: the image by its hash, what came back and what it cost."""

    id: str
    image_sha256: str
    report: str | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    round: int = 0

    def to_json(self) -> Json:
        """Plain values."""
        return _plain(self)


@dataclass(frozen=True)
class Score:
    """One metric over a set of studies, with its interval and denominator."""

    metric: str
    value: float
    n: int
    low: float | None = None
    high: float | None = None
    undefined: int = 0

    def to_json(self) -> Json:
        """Plain values."""
        return _plain(self)


def _plain(record: Any) -> Json:
    """Fields in order as JSON values; None and empty mappings are left out."""
    out: Json = {}
    for item in dataclasses.fields(record):
        value = getattr(record, item.name)
        if value is None or (isinstance(value, Mapping) and not value):
            continue
        out[item.name] = _plain_value(value)
    return out


def _plain_value(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain_value(item) for key, item in value.items()}
    return value
