"""What a scoring came to: each metric with its interval, its floors and the studies behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.records import Finding, ReportError
from cxrlab.core.vocabulary import Group, observation
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.statistics.bootstrap import METHOD, Place, Resamples, memory_key
from cxrlab.metrics.tally import Matrix, Tally

if TYPE_CHECKING:
    from cxrlab.evaluation.controls import ImageDependence
    from cxrlab.metrics.tally import Metric


@dataclass(frozen=True)
class MetricScore:
    """One metric over all pairs.

    Args:
        metric: Its card.
        value: Not-a-number when no pair has a value.
        low: Lower end of the interval; not-a-number with fewer than two patients.
        high: Upper end.
        n: Pairs that entered the value.
        undefined: Pairs without a value.
    """

    metric: Metric
    value: float
    low: float
    high: float
    n: int
    undefined: int

    def to_json(self) -> dict[str, Any]:
        """As the contract of `scores.json` has it; a bound that does not exist is null."""
        card = self.metric
        bounds = [None if math.isinf(bound) else bound for bound in card.range]
        return {
            "value": self.value, "low": self.low, "high": self.high, "n": self.n, "undefined": self.undefined,
            "direction": card.direction, "range": bounds, "identity": card.identity, "signature": card.signature,
        }  # fmt: skip


@dataclass(frozen=True)
class StudyScore:
    """One pair: what became of it, its value by each metric, what is wrong with the candidate, and what judges said."""

    pair: Pair
    values: Mapping[str, float]
    errors: tuple[ReportError, ...] = ()
    judged: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """One line of `per_study.jsonl`."""
        pair = self.pair
        return {
            "id": pair.id, "patient": pair.patient or pair.id, "status": pair.status,
            "reference": pair.reference, "candidate": pair.candidate, "values": self.values,
            "errors": [error.to_json() for error in self.errors],
            **({"judged": self.judged} if self.judged else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class ScoreSheet(Mapping[str, MetricScore]):
    """What a scoring came to; as a mapping it gives each metric's score by name.

    Args:
        metrics: Name → score.
        floors: Control → metric → value of that control against the same references.
        statuses: Status → number of pairs.
        studies: Each pair, in order.
        slices: `view=AP` → metric → score of those pairs.
        tallies: The sufficient statistics behind it all.
        batch: What was scored.
        digest: SHA-256 of the inputs.
        notes: Controls that could not be made, and why.
        image_dependence: The same studies with wrong images, where the run of predictions has them.
        judges: Judge by a language model → how many of its answers could be read, and why the others could not.
        matching: How the rows of references and predictions were matched, and how many.
        cautions: Those of the run that wrote the predictions.
    """

    metrics: Mapping[str, MetricScore]
    floors: Mapping[str, Mapping[str, float]]
    statuses: Mapping[str, int]
    studies: tuple[StudyScore, ...]
    slices: Mapping[str, Mapping[str, SliceScore]]
    tallies: tuple[Tally, ...] = field(repr=False)
    batch: Batch = field(repr=False)
    digest: str = ""
    notes: tuple[str, ...] = ()
    image_dependence: ImageDependence | None = None
    judges: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    matching: Mapping[str, Any] = field(default_factory=dict)
    cautions: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.studies)

    def __getitem__(self, name: str) -> MetricScore:
        return self.metrics[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    def best_floor(self, name: str) -> tuple[str, float] | None:
        """The control that does best under a metric, and its value; None when there is none."""
        sign = 1 if self.metrics[name].metric.direction == "higher" else -1
        found = [(control, values.get(name, math.nan)) for control, values in self.floors.items()]
        known = [(control, value) for control, value in found if not math.isnan(value)]
        return max(known, key=lambda item: sign * item[1], default=None)

    def to_json(self) -> dict[str, Any]:
        """The content of `scores.json`."""
        measured = self.image_dependence
        return {
            "n": self.n, "statuses": self.statuses, "matching": self.matching,
            "metrics": {name: score.to_json() for name, score in self.metrics.items()},
            "floors": self.floors, "controls": {"image_dependence": {} if measured is None else measured.to_json()},
            "slices": self.slices, "judges": self.judges, "notes": self.notes, "cautions": self.cautions,
            "interval": METHOD, "inputs_sha256": self.digest,
        }  # fmt: skip


# From fewer patients than this an interval is rough; docs/scoring.md has how often it holds the truth.
SMALL = 30
AGE_BANDS = ((0, "<18"), (18, "18-39"), (40, "40-59"), (60, "60-79"), (80, "80+"))
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Attributes:
    """What a pair is sliced by; None where it is not known.

    Args:
        view: View of the image that was read, such as PA.
        sex: F or M.
        age: Years.
        device: Whether the reference names a device that is in place.
    """

    view: str | None = None
    sex: str | None = None
    age: float | None = None
    device: bool | None = None


@dataclass(frozen=True)
class SliceScore:
    """One metric on one slice.

    Args:
        value: Over the slice; not-a-number when no pair has a value.
        low: Lower end of its interval by patient; not-a-number with fewer than two patients.
        high: Upper end.
        n: Pairs that entered the value.
        undefined: Pairs of the slice without a value.
        patients: Patients in the slice.
        small: True with fewer than 30 patients.
    """

    value: float
    low: float
    high: float
    n: int
    undefined: int
    patients: int
    small: bool


def age_band(age: float) -> str:
    """The band of an age in years: <18, 18-39, 40-59, 60-79 or 80+."""
    return [name for start, name in AGE_BANDS if age >= start][-1] if age >= 0 else UNKNOWN


def has_device(findings: Iterable[Finding]) -> bool:
    """Whether any device is stated to be there."""
    return any(finding.present and observation(finding.observation).group is Group.DEVICE for finding in findings)


def slice_masks(attributes: Sequence[Attributes]) -> dict[str, NDArray[np.bool_]]:
    """Name of each slice → which pairs are in it [N].

    Names are `view=PA`, `sex=F`, `age=60-79`, `device=present`, and `…=unknown` for the rest where some
    are known. An attribute that is known of no pair, or the same for all, makes no slice.
    """
    columns = {
        "view": [one.view for one in attributes],
        "sex": [one.sex for one in attributes],
        "age": [None if one.age is None else age_band(one.age) for one in attributes],
        "device": [None if one.device is None else "present" if one.device else "absent" for one in attributes],
    }
    order = {name: place for place, (_, name) in enumerate(AGE_BANDS)}
    masks: dict[str, NDArray[np.bool_]] = {}
    for attribute, told in columns.items():
        values = np.array([UNKNOWN if value is None else value for value in told], dtype=np.str_)
        kinds = sorted(set(values.tolist()), key=lambda kind: (kind == UNKNOWN, order.get(kind, 0), kind))
        if len(kinds) > 1:
            masks |= {f"{attribute}={kind}": values == kind for kind in kinds}
    return masks


def score_slices(
    tallies: Sequence[Tally],
    patients: Sequence[str],
    attributes: Sequence[Attributes],
    *,
    trials: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> dict[str, dict[str, SliceScore]]:
    """Every metric on every slice, by name of the slice and of the metric.

    Args:
        tallies: Of the whole test set.
        patients: One name a pair, as for the intervals of the whole.
        attributes: One a pair.
        trials: Resamples for each slice.
        level: Of the intervals.
        rng: Source of the resamples.
    """
    if len(patients) != len(attributes):
        raise ValueError(f"{len(attributes)} attributes do not fit {len(patients)} patients")
    return {
        name: _scores(tallies, patients, mask, trials, level, rng) for name, mask in slice_masks(attributes).items()
    }


def _scores(
    tallies: Sequence[Tally],
    patients: Sequence[str],
    mask: NDArray[np.bool_],
    trials: int,
    level: float,
    rng: np.random.Generator,
) -> dict[str, SliceScore]:
    inside = [patient for patient, kept in zip(patients, mask, strict=True) if kept]
    parts = _parts(tallies, mask)
    draws = Resamples(inside, trials=trials, rng=rng)
    count = draws.clusters.count
    return {
        part.metric.name: SliceScore(part.value, ends.low, ends.high, part.n, part.undefined, count, count < SMALL)
        for part, ends in zip(parts, draws.intervals(parts, level), strict=True)
    }


def _parts(tallies: Sequence[Tally], mask: NDArray[np.bool_]) -> list[Tally]:
    """The tallies of the slice; those that share their rows go on sharing them."""
    cut: dict[Place, Matrix] = {}
    parts = []
    for tally in tallies:
        memory = memory_key(tally.rows)
        if memory not in cut:
            cut[memory] = tally.rows[mask]
        parts.append(replace(tally, rows=cut[memory], defined=tally.defined[mask]))
    return parts
