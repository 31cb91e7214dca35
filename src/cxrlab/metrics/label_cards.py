"""The label metrics by name: 2 sets of labels × ways of averaging × rates × what an uncertain label counts as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.metrics.tally import Metric

Policy = Literal["positive", "negative", "ignored"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

_RATES = ("precision", "recall", "f1")
_SETS = {"14": "the fourteen labels (No Finding included)", "5": "the five labels of CheXpert's competition"}
_NO_REFERENCE = "pairs without a reference, or whose reference has no word"
_ABSENT = "a label that is positive on neither side counts 0 and pulls the mean down, so identity is below 1"
_BARE = "a pair without a positive label on either side counts 0, so identity may be below 1"


@dataclass(frozen=True)
class Average:
    """One way of averaging.

    Args:
        rates: The rates that it makes sense for.
        words: What the mean runs over, with a place for the set of labels.
        identity: Value of a corpus against itself; None where it depends on the texts.
        quirk: A published oddity.
        by_pair: Whether it means something for a single pair.
    """

    rates: tuple[str, ...]
    words: str
    identity: float | None = 1.0
    quirk: str = ""
    by_pair: bool = True


AVERAGES = {
    "micro": Average((*_RATES, "accuracy"), "over all cells of {}"),
    "macro": Average(_RATES, "mean over {}", None, _ABSENT, by_pair=False),
    "macro-seen": Average(_RATES, "mean over those of {} that are positive on at least one side", by_pair=False),
    "weighted": Average(_RATES, "mean over {}, each weighted by its positive references", by_pair=False),
    "example": Average(_RATES, "mean over reports, {}", None, _BARE),
    "example-seen": Average(_RATES, "mean over reports with a positive label on at least one side, {}"),
    "exact": Average(("accuracy",), "share of reports that agree in all of {}"),
    "observation": Average((*_RATES, "accuracy"), "of {}", by_pair=False),
}


@dataclass(frozen=True)
class Choice:
    """One label metric as the choices that make it.

    Args:
        policy: What an uncertain label counts as.
        labels: `14`, `5`, or the name of one observation.
        average: A key of `AVERAGES`.
        rate: precision, recall, f1 or accuracy.
    """

    policy: Policy
    labels: str
    average: str
    rate: str

    def name(self, prefix: str) -> str:
        """`chexpert14.micro.f1:uncertain-positive`, `chexpert.Edema.f1:uncertain-positive`."""
        what = f".{self.labels}" if self.average == "observation" else f"{self.labels}.{self.average}"
        return f"{prefix}{what}.{self.rate}:uncertain-{self.policy}"

    def card(self, prefix: str, labeler: str) -> Metric:
        """The metric's card; `labeler` goes into its signature."""
        average = AVERAGES[self.average]
        conventions = {"labeler": labeler, "uncertain": self.policy, "unmentioned": "negative"}
        uncertain = "left out" if self.policy == "ignored" else f"counted as {self.policy}"
        where = average.words.format(_SETS.get(self.labels, self.labels))
        rate = {"f1": "F1"}.get(self.rate, self.rate)
        return Metric(
            name=self.name(prefix),
            direction="higher",
            range=(0.0, 1.0),
            identity=average.identity,
            undefined=self._undefined(),
            conventions=conventions | ({"absent-class": "0"} if self.average == "macro" else {}),
            about=f"CheXpert label {rate}, {where}; uncertain labels {uncertain}",
            quirk=average.quirk,
            by_pair=average.by_pair,
        )

    def _undefined(self) -> str:
        if self.rate == "accuracy" or self.average == "example":
            return _NO_REFERENCE
        if self.average == "example-seen":
            return f"{_NO_REFERENCE}; pairs without a positive label on either side"
        return f"{_NO_REFERENCE}; no value where nothing is positive on either side"


def _sets(policy: Policy) -> list[Choice]:
    return [
        Choice(policy, labels, average, rate)
        for labels in _SETS
        for average, row in AVERAGES.items()
        if average != "observation"
        for rate in row.rates
    ]


def _observations(policy: Policy) -> list[Choice]:
    rates = AVERAGES["observation"].rates
    return [Choice(policy, name, "observation", rate) for name in CHEXPERT_14 for rate in rates]


CHOICES: tuple[Choice, ...] = tuple(
    choice for policy in POLICIES for choice in (*_sets(policy), *_observations(policy))
)
# F1 as most papers report it, and by observation; the rest on request.
DEFAULT_CHOICES: tuple[Choice, ...] = tuple(
    choice
    for choice in CHOICES
    if choice.rate == "f1"
    and (
        (choice.average in ("micro", "macro") and choice.policy != "ignored")
        or (choice.average == "observation" and choice.policy == "positive")
    )
)
