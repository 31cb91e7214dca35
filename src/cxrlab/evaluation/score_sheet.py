"""What a scoring came to: each metric with its interval, its floors and the studies behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cxrlab.core.records import ReportError
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.statistics.bootstrap import METHOD

if TYPE_CHECKING:
    from cxrlab.evaluation.image_dependence import ImageDependence
    from cxrlab.evaluation.slices import SliceScore
    from cxrlab.metrics.tally import Metric, Tally


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
