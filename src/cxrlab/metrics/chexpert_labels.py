"""CheXpert labels: accuracy, precision, recall and F1, under every convention in use.

"CheXbert F1" means different numbers in different papers: an uncertain label counts as positive or as negative, and
the mean is over cells, labels or reports. Each choice is part of a metric's name here. The arithmetic is that of
scikit-learn's `classification_report`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError, short_repr
from cxrlab.core.model_interfaces import Labeler
from cxrlab.core.records import chexpert_labels
from cxrlab.core.vocabulary import CHEXPERT_5, CHEXPERT_14, chexpert_label
from cxrlab.metrics.base import Matrix, Metric, Tally, mean_tally, ratio
from cxrlab.metrics.report_pairs import Batch, wordless

_COLUMN = {name: column for column, name in enumerate(CHEXPERT_14)}
_TOP = [_COLUMN[name] for name in CHEXPERT_5]
_UNCERTAIN, _NOT_COUNTED = -1, 9

Cells = NDArray[np.int8]
Labels = Mapping[str, int]


@dataclass(frozen=True)
class Support:
    """How often a label is positive: in the references and in the candidates."""

    reference: int
    candidate: int


def observation_support(tally: Tally) -> Support | None:
    """How often the observation of a metric such as `chexbert.Edema.f1:…` is positive; None for any other metric."""
    name = tally.metric.name.partition(":")[0].split(".")
    if len(name) != 3 or name[1] not in _COLUMN:
        return None
    tp, fp, fn, _ = tally.rows.sum(axis=0).astype(int).tolist()
    return Support(tp + fn, tp + fp)


class ChexpertLabels:
    """The fourteen CheXpert labels of references and candidates, compared.

    A label that a report does not mention counts as negative, and so does every label of a text without a word. The
    exact findings of a pair replace its reference; a label that they leave open (a parent whose child is present) is
    not counted.

    Args:
        labeler: Labels texts; None for the built-in reader.
        prefix: First word of the metrics' names, so that two labelers fit into one table.
    """

    def __init__(self, labeler: Labeler | None = None, prefix: str = "chexpert") -> None:
        self.labeler = labeler
        name = "rules" if labeler is None else labeler.name
        self.metrics = tuple(choice.card(prefix, name) for choice in CHOICES)
        self.default = tuple(choice.name(prefix) for choice in DEFAULT_CHOICES)

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally per metric: three policies for uncertain labels, each counted once."""
        reference, candidate, defined = self._cells(batch)
        by_policy = {}
        for policy in POLICIES:
            counts = count(reference, candidate, policy) * defined[:, None, None]
            by_policy[policy] = {"14": counts, "5": counts[:, _TOP]}
        return [
            _make_tally(choice, metric, by_policy[choice.policy], defined)
            for choice, metric in zip(CHOICES, self.metrics, strict=True)
        ]

    def support(self, batch: Batch, policy: Policy = "positive") -> dict[str, Support]:
        """Label → positives in references and in candidates, over the pairs that have a reference."""
        reference, candidate, defined = self._cells(batch)
        counts = count(reference, candidate, policy)[defined].sum(axis=0).astype(int)
        return {
            name: Support(int(tp + fn), int(tp + fp)) for name, (tp, fp, fn, _) in zip(CHEXPERT_14, counts, strict=True)
        }

    def _cells(self, batch: Batch) -> tuple[Cells, Cells, NDArray[np.bool_]]:
        """Label cells [N, 14] of references and candidates, and which pairs have a reference [N]."""
        defined = np.array([pair.answerable for pair in batch.pairs])
        exact = [
            None if pair.findings is None else chexpert_labels(pair.findings, complete=True) for pair in batch.pairs
        ]
        wanted = [text for text, known in zip(batch.references, exact, strict=True) if known is None]
        of_text = self._label(batch, {*wanted, *batch.candidates})
        reference = [
            _row(of_text[text], blank=0) if known is None else _row(known, blank=_NOT_COUNTED)
            for text, known in zip(batch.references, exact, strict=True)
        ]
        candidate = [_row(of_text[text], blank=0) for text in batch.candidates]
        return np.array(reference, np.int8), np.array(candidate, np.int8), defined

    def _label(self, batch: Batch, texts: Iterable[str]) -> dict[str, Labels]:
        """Text → labels; a text without a word has none and is not labelled."""
        out: dict[str, Labels] = {text: {} for text in texts}
        spoken = sorted(text for text in out if not wordless(text))
        if self.labeler is None:
            return out | {text: chexpert_labels(batch.read(text).findings, complete=False) for text in spoken}
        answers = self.labeler.label(spoken) if spoken else []
        if len(answers) != len(spoken):
            raise DataError(
                f"the labeler '{self.labeler.name}' answered {len(answers)} times for {len(spoken)} reports; "
                "it must give one dictionary per report, in order."
            )
        for labels in answers:
            for name, value in labels.items():
                chexpert_label(name)
                if value not in (1, 0, -1):
                    raise DataError(
                        f"the labeler '{self.labeler.name}' gave {short_repr(value)} for '{name}'; "
                        "a label is 1 (present), 0 (absent) or -1 (uncertain), or is left out."
                    )
        return out | dict(zip(spoken, answers, strict=True))


def count(reference: Cells, candidate: Cells, policy: Policy) -> Matrix:
    """Label cells [N, L] of 1, 0 and -1 → true and false positives, false and true negatives [N, L, 4].

    Args:
        reference: 9 marks a cell that is not counted.
        candidate: Like the reference, without 9.
        policy: Whether -1 is positive, negative, or removes the cell on either side.
    """
    counted = reference != _NOT_COUNTED
    if policy == "ignored":
        counted &= (reference != _UNCERTAIN) & (candidate != _UNCERTAIN)
    positive = (1, _UNCERTAIN) if policy == "positive" else (1,)
    true, said = np.isin(reference, positive), np.isin(candidate, positive)
    cells = np.stack([true & said, ~true & said, true & ~said, ~true & ~said], axis=-1)
    return np.asarray(cells & counted[..., None], np.float64)


def _make_tally(choice: Choice, metric: Metric, sets: Mapping[str, Matrix], defined: NDArray[np.bool_]) -> Tally:
    """The rows and the function of sums of a choice of labels, average and rate, from counts [N, L, 4]."""
    rate = RATES[choice.rate]
    if choice.average == "observation":
        return Tally(metric, sets["14"][:, _COLUMN[choice.labels]], defined, rate)
    counts = sets[choice.labels]
    by_report = counts.sum(axis=1)
    if choice.average == "micro":
        return Tally(metric, by_report, defined, rate)
    if choice.average in OVER_LABELS:
        rows = counts.reshape(len(counts), -1)
        return Tally(metric, rows, defined, partial(OVER_LABELS[choice.average], rate=rate))
    if choice.average == "exact":
        values = ((counts[..., 1] + counts[..., 2]).sum(axis=1) == 0).astype(np.float64)
    else:
        values = np.nan_to_num(rate(by_report)) if choice.average == "example" else rate(by_report)
    return mean_tally(metric, np.where(defined, values, np.nan))


def _row(labels: Labels, blank: int) -> list[int]:
    return [labels.get(name, blank) for name in CHEXPERT_14]


Policy = Literal["positive", "negative", "ignored"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

_RATES = ("precision", "recall", "f1")
_SETS = {"14": "the fourteen labels (No Finding included)", "5": "the five labels of CheXpert's competition"}
_NO_REFERENCE = "pairs without a reference, or whose reference has no word"
_ABSENT = "a label that is positive on neither side counts 0 and pulls the mean down, so identity is below 1"
_BARE = "a pair without a positive label on either side counts 0, so identity may be below 1"


@dataclass(frozen=True)
class Average:
    """One way of averaging; `words` says over what, with a place for the set of labels. See `Metric` for the rest."""

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
    """One label metric; `labels` is `14`, `5`, or the name of one observation, `average` a key of `AVERAGES`."""

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
        undefined = f"{_NO_REFERENCE}; no value where nothing is positive on either side"
        if self.rate == "accuracy" or self.average == "example":
            undefined = _NO_REFERENCE
        elif self.average == "example-seen":
            undefined = f"{_NO_REFERENCE}; pairs without a positive label on either side"
        rate = {"f1": "F1"}.get(self.rate, self.rate)
        return Metric(
            name=self.name(prefix),
            direction="higher",
            range=(0.0, 1.0),
            identity=average.identity,
            undefined=undefined,
            conventions=conventions | ({"absent-class": "0"} if self.average == "macro" else {}),
            about=f"CheXpert label {rate}, {where}; uncertain labels {uncertain}",
            quirk=average.quirk,
            by_pair=average.by_pair,
        )


def _choices(policy: Policy) -> list[Choice]:
    return [
        *(
            Choice(policy, labels, average, rate)
            for labels in _SETS
            for average, row in AVERAGES.items()
            if average != "observation"
            for rate in row.rates
        ),
        *(Choice(policy, name, "observation", rate) for name in CHEXPERT_14 for rate in AVERAGES["observation"].rates),
    ]


CHOICES: tuple[Choice, ...] = tuple(choice for policy in POLICIES for choice in _choices(policy))
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


COUNTS = 4


def precision(counts: Matrix) -> Matrix:
    """[..., 4] → [...]: 0 where the candidate has no positive, not-a-number where neither side has one."""
    return _rate(counts, counts[..., 0] + counts[..., 1])


def recall(counts: Matrix) -> Matrix:
    """[..., 4] → [...]: 0 where the reference has no positive, not-a-number where neither side has one."""
    return _rate(counts, counts[..., 0] + counts[..., 2])


def f1(counts: Matrix) -> Matrix:
    """[..., 4] → [...]: 2 tp / (2 tp + fp + fn), not-a-number where neither side has a positive."""
    return ratio(2 * counts[..., 0], 2 * counts[..., 0] + counts[..., 1] + counts[..., 2])


def accuracy(counts: Matrix) -> Matrix:
    """[..., 4] → [...]: share of cells that agree, not-a-number without cells."""
    return ratio(counts[..., 0] + counts[..., 3], counts.sum(axis=-1))


Rate = Callable[[Matrix], Matrix]
RATES: dict[str, Rate] = {"precision": precision, "recall": recall, "f1": f1, "accuracy": accuracy}


# Top-level functions of sums [..., L·4], not closures: a scored run stores the name of the function of a value.
def _macro(sums: Matrix, rate: Rate) -> Matrix:
    """Mean over all labels; one that is positive on neither side counts 0, as in scikit-learn."""
    by_label = rate(_by_label(sums))
    seen = ~np.isnan(by_label)
    return np.where(seen.any(axis=-1), np.where(seen, by_label, 0.0).mean(axis=-1), np.nan)


def _macro_seen(sums: Matrix, rate: Rate) -> Matrix:
    """Mean over the labels that are positive on at least one side."""
    by_label = rate(_by_label(sums))
    seen = ~np.isnan(by_label)
    return ratio(np.where(seen, by_label, 0.0).sum(axis=-1), seen.sum(axis=-1).astype(np.float64))


def _weighted(sums: Matrix, rate: Rate) -> Matrix:
    """Mean over labels weighted by their number of positive references."""
    counts = _by_label(sums)
    support = counts[..., 0] + counts[..., 2]
    # A label with support is positive on one side, so its rate is a number.
    return ratio((np.where(support > 0, rate(counts), 0.0) * support).sum(axis=-1), support.sum(axis=-1))


def _rate(counts: Matrix, below: Matrix) -> Matrix:
    anything = counts[..., 0] + counts[..., 1] + counts[..., 2] > 0
    return np.where(anything, np.nan_to_num(ratio(counts[..., 0], below)), np.nan)


def _by_label(sums: Matrix) -> Matrix:
    return sums.reshape(*sums.shape[:-1], -1, COUNTS)


OVER_LABELS: Mapping[str, Callable[..., Matrix]] = {
    "macro": _macro,
    "macro-seen": _macro_seen,
    "weighted": _weighted,
}
