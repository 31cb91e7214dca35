"""Classification without training for it: is an image nearer to "there is an effusion" or to "there is no effusion"?"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.config import parse_group, raise_problems, read_yaml
from cxrlab.core.errors import ConfigError, UnknownName, did_you_mean
from cxrlab.core.json_values import nan_if_none
from cxrlab.core.vocabulary import CHEXPERT_14, OBSERVATIONS
from cxrlab.metrics.classification import Auroc, auroc_interval
from cxrlab.metrics.statistics.bootstrap import Resamples

if TYPE_CHECKING:
    from cxrlab.evaluation.retrieve import Entry

_NAME = "{name}"
_ARTICLE = re.compile(r"^an? ", re.IGNORECASE)


@dataclass(frozen=True)
class Sentences:
    """One row of `zero_shot.yaml`; its comments say what the fields are."""

    present: tuple[str, ...]
    absent: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for side in ("present", "absent"):
            if not getattr(self, side) or not all(_NAME in sentence for sentence in getattr(self, side)):
                raise ConfigError(f"'{side}' must be a list of sentences, each with {_NAME} in it.")
        for name in (*self.names, *self.own):
            if name not in CHEXPERT_14 and name not in OBSERVATIONS:
                raise ConfigError(
                    f"'{name}' is neither a CheXpert label nor an observation."
                    f"{did_you_mean(name, (*CHEXPERT_14, *OBSERVATIONS))}"
                )
        for name, own in self.own.items():
            if set(own) != {"present", "absent"} or not all(isinstance(one, list) and one for one in own.values()):
                raise ConfigError(f"the own sentences of '{name}' must be two lists, present and absent.")

    def of(self, name: str) -> tuple[list[str], list[str]]:
        """(sentences that say it is there, sentences that say it is not) for a label or observation."""
        if name in self.own:
            return list(self.own[name]["present"]), list(self.own[name]["absent"])
        words = self.names.get(name, name.lower())
        bare = _ARTICLE.sub("", words)  # "a nodule" is there, "no nodule" is not
        return [_sentence(text, words) for text in self.present], [_sentence(text, bare) for text in self.absent]


@dataclass(frozen=True)
class MeanAuroc:
    """Mean over the names that have an area, not-a-number without any; and their number."""

    value: float
    n: int


@dataclass(frozen=True)
class ZeroShot:
    """What zero-shot classification came to.

    Args:
        sentences: Name and version of the wording.
        labels: CheXpert label → area under the ROC curve with interval and counts.
        observations: Observation → the same; where the corpus knows the exact findings.
        mean_labels: Over the labels.
        mean_observations: Over the observations.
    """

    sentences: str
    labels: Mapping[str, Auroc]
    observations: Mapping[str, Auroc]
    mean_labels: MeanAuroc
    mean_observations: MeanAuroc

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ZeroShot:
        """What an earlier run wrote down."""
        labels, observations = (
            {name: _area(row) for name, row in found[part].items()} for part in ("labels", "observations")
        )
        means = (found["mean_labels"], found["mean_observations"])
        of_labels, of_observations = (MeanAuroc(nan_if_none(mean["value"]), mean["n"]) for mean in means)
        return cls(found["sentences"], labels, observations, of_labels, of_observations)


def _area(row: Mapping[str, Any]) -> Auroc:
    value, low, high = (nan_if_none(row[key]) for key in ("value", "low", "high"))
    return Auroc(value, low, high, row["positives"], row["negatives"])


def load_sentences(name: str) -> Sentences:
    """The row of this name in the shipped table, or the only row of a YAML file of that form."""
    with as_file(files("cxrlab.evaluation") / "zero_shot.yaml") as path:
        shipped = read_yaml(path)[0]
    if name in shipped:
        return _checked(shipped[name], name)
    if not Path(name).is_file():
        raise UnknownName(
            f"there are no zero-shot sentences '{name}', nor a file of that name.{did_you_mean(name, shipped)} "
            f"Known: {', '.join(shipped)}."
        )
    rows = read_yaml(name)[0]
    if len(rows) != 1:
        raise ConfigError(f"{name} holds {len(rows)} rows; a file of zero-shot sentences must hold one.")
    return next(_checked(row, f"{name}, '{title}'") for title, row in rows.items())


def _checked(row: Any, place: str) -> Sentences:
    found, problems = parse_group(Sentences, row, place)
    raise_problems(problems)
    assert found is not None  # without problems there is one
    return found


def margins(
    images: NDArray[np.float32], names: Sequence[str], sentences: Sentences, embed: Callable[[Sequence[str]], Any]
) -> NDArray[np.float64]:
    """How much nearer each image is to presence than to absence: difference of cosines [N, names] in [-2, 2].

    Several sentences of one side are averaged as vectors, and the average is brought back to length 1.

    Args:
        images: Rows of length 1, [N, D].
        names: Labels or observations.
        sentences: The wording.
        embed: Texts → rows of length 1.
    """
    columns = []
    for name in names:
        there, not_there = (mean_direction(np.asarray(embed(side))) for side in sentences.of(name))
        columns.append(images.astype(np.float64) @ (there - not_there))
    return np.stack(columns, axis=1) if columns else np.zeros((len(images), 0))


def classify(
    entries: Sequence[Entry], scores: Mapping[str, NDArray[np.float64]], wording: str, *, trials: int, level: float,
    rng: np.random.Generator,
) -> ZeroShot:  # fmt: skip
    """Areas under the ROC curve of every label and observation that has a score.

    A label that is unknown or uncertain for a study leaves that study out. An observation is known where the corpus
    carries the exact findings.
    """
    seed = int(rng.integers(1 << 62))  # each name draws its patients from the same stream, whatever the others hold

    def area(name: str, truths: Sequence[bool | None]) -> Auroc:
        known = np.array([truth is not None for truth in truths], bool)
        truth = np.array([bool(one) for one in truths], bool)[known]
        patients = [entry.patient for entry, asked in zip(entries, known, strict=True) if asked]
        resamples = Resamples(patients, trials=trials, rng=np.random.Generator(np.random.PCG64(seed)))
        return auroc_interval(scores[name][known], truth, resamples, level)

    labels = {name: area(name, [entry.label(name) for entry in entries]) for name in CHEXPERT_14 if name in scores}
    observations = {
        name: area(name, [None if entry.present is None else name in entry.present for entry in entries])
        for name in scores
        if name in OBSERVATIONS
    }
    return ZeroShot(wording, labels, observations, _mean(labels), _mean(observations))


def select_names(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Labels and observations for which the studies hold at least one positive and one negative."""
    found = []
    for name in CHEXPERT_14:
        if {0, 1} <= {entry.labels.get(name) for entry in entries}:
            found.append(name)
    known = [entry.present for entry in entries if entry.present is not None]
    seen = frozenset().union(*known) if known else frozenset()
    return (*found, *(name for name in OBSERVATIONS if name in seen and not all(name in one for one in known)))


def _sentence(template: str, words: str) -> str:
    text = template.replace(_NAME, words)
    return text[:1].upper() + text[1:]


def mean_direction(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """The mean of several vectors of one side, brought back to length 1."""
    mean: NDArray[np.float64] = vectors.astype(np.float64).mean(axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-12)


def _mean(areas: Mapping[str, Auroc]) -> MeanAuroc:
    values = [one.value for one in areas.values() if not math.isnan(one.value)]
    return MeanAuroc(math.fsum(values) / len(values) if values else math.nan, len(values))
