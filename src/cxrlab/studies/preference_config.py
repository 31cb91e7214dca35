"""Settings of a study of alignment: a start, what it draws, and what each variant changes in judge, pairs and loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cxrlab.core.errors import ConfigError, did_you_mean, short_repr
from cxrlab.studies.variants import check_names, checked_variants

MODEL = "model"  # the key of a start that is there already


@dataclass(frozen=True)
class AlignmentVariant:
    """One way to align, told by what it changes in what all share.

    Args:
        changes: What is different, in one sentence.
        judge: Settings of the judge that differ.
        pair: Settings of the pairs that differ.
        train: Settings of the training that differ, such as its loss.
        published: Metric → somebody's figure for it.
    """

    changes: str
    judge: Mapping[str, Any] = field(default_factory=dict)
    pair: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PreferenceStudyConfig:
    """What alignment by each loss and each judge gains and costs: variants of one recipe, several seeds each.

    Args:
        corpora: Name → folder of a corpus, or how to make one: phantom, scenes, structured or composed with settings.
        data: Name of the corpus: pairs are of its train split, val is watched, test is measured.
        start: The model that is aligned: settings of `train finetune` that make it, with each seed anew; or 'model'
            alone, the name of one that is there (hf:FOLDER, builtin:NAME).
        variants: Name → what it changes.
        sample: Settings of the candidates.
        judge: Settings of the judge that all variants share.
        pair: Settings of the pairs that all variants share.
        train: Settings of the training that all variants share.
        robustness: Settings of an audit of every aligned model against its start, on the same images; none without.
        seeds: One training each; the start, the studies and words that are drawn, the order of the pairs and the
            studies that are measured come from it.
        at_once: Parts that are worked on side by side, each in a process of its own, at most one per
            core; small models leave a GPU waiting.
        metrics: Names of the metrics that are measured, the columns of the table, the most telling first.
    """

    corpora: Mapping[str, Any]
    data: str
    start: Mapping[str, Any]
    variants: Mapping[str, Any]
    sample: Mapping[str, Any] = field(default_factory=dict)
    judge: Mapping[str, Any] = field(default_factory=dict)
    pair: Mapping[str, Any] = field(default_factory=dict)
    train: Mapping[str, Any] = field(default_factory=dict)
    robustness: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (1, 2, 3)
    at_once: int = 1
    metrics: tuple[str, ...] = (
        "green:rules-lc",
        "findings.f1.side",
        "errors.significant",
        "green:rules",
        "crimson:rules",
        "clinical:rules",
        "findings.f1",
        "findings.f1.full",
        "chexpert14.micro.f1:uncertain-positive",
        "errors.total",
        "rougeL:google",
        "bleu4:coco",
    )

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ConfigError(f"seeds={list(self.seeds)} is not usable; list different whole numbers from 0.")
        if self.at_once < 1:
            raise ConfigError(f"at_once={self.at_once} is not usable; give a whole number of at least 1.")
        if not self.metrics or len(set(self.metrics)) < len(self.metrics):
            raise ConfigError(f"metrics={list(self.metrics)} is not usable; name at least one, and each once.")
        check_names("corpora", self.corpora)
        check_names("variants", self.variants)
        if self.data not in self.corpora:
            raise ConfigError(f"data='{self.data}' is no corpus of the list.{did_you_mean(self.data, self.corpora)}")
        _check_model(self.start)
        self.chosen()  # refuses what is wrong with a variant

    @property
    def model(self) -> str | None:
        """The start where it is there already; None where the study trains it."""
        return self.start.get(MODEL)

    def chosen(self) -> dict[str, AlignmentVariant]:
        """The variants by name, every setting checked; all problems are told at once."""
        found = checked_variants(AlignmentVariant, self.variants)
        if not found:
            raise ConfigError("variants is empty; give at least one way to align.")
        return found


def _check_model(start: Mapping[str, Any]) -> None:
    """A start is trained by the study or is there: not both, and not something without weights."""
    if not start:
        raise ConfigError(
            "start is empty; give the settings of 'train finetune' that make the model to align, or 'model: NAME' of "
            "one that is there."
        )
    if MODEL not in start:
        return
    if more := [str(key) for key in start if key != MODEL]:
        raise ConfigError(f"start names a model that is there and also gives '{more[0]}'; leave out one of them.")
    name = start[MODEL]
    if not isinstance(name, str) or not name.startswith(("hf:", "builtin:")):
        raise ConfigError(f"start has the model {short_repr(name)}; name one with weights: hf:FOLDER or builtin:NAME.")
