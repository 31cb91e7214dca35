"""CheXpert labels: accuracy, precision, recall and F1, under every convention in use.

Papers that write "CheXbert F1" mean different numbers: an uncertain label counts as positive in some
and as negative in others, and the mean runs over cells, labels or reports. Each choice is part of a
metric's name here. The arithmetic follows scikit-learn's `classification_report`, which they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.errors import DataError, shown
from cxrlab.core.protocols import Labeler
from cxrlab.core.records import chexpert_labels
from cxrlab.core.vocabulary import CHEXPERT_5, CHEXPERT_14, chexpert_label
from cxrlab.metrics import label_rates as rates
from cxrlab.metrics.label_cards import CHOICES, DEFAULT_CHOICES, POLICIES, Choice, Policy
from cxrlab.metrics.pairs import Batch, wordless
from cxrlab.metrics.tally import Matrix, Metric, Tally, mean_tally

_COLUMN = {name: column for column, name in enumerate(CHEXPERT_14)}
_TOP = [_COLUMN[name] for name in CHEXPERT_5]
_UNCERTAIN, _NOT_COUNTED = -1, 9

Cells = NDArray[np.int8]
Labels = Mapping[str, int]


@dataclass(frozen=True)
class Support:
    """How often an observation is positive: in the references and in the candidates."""

    reference: int
    candidate: int


class ChexpertLabels:
    """The fourteen CheXpert labels of references and candidates, compared.

    What a report does not mention counts as negative, and so does every label of a text without a word.
    Where a pair carries exact findings they are the reference; the label that they leave open (a parent
    whose child is present) is not counted.

    Args:
        labeler: Reads labels off text; None for the built-in reader.
        prefix: First word of the metrics' names, so that two labelers can stand in one table.
    """

    def __init__(self, labeler: Labeler | None = None, prefix: str = "chexpert") -> None:
        self.labeler = labeler
        name = "rules" if labeler is None else labeler.name
        self.metrics = tuple(choice.card(prefix, name) for choice in CHOICES)
        self.default = tuple(choice.name(prefix) for choice in DEFAULT_CHOICES)

    def tallies(self, batch: Batch) -> list[Tally]:
        """One tally a metric: three policies for uncertain labels, each counted once."""
        reference, candidate, defined = self._cells(batch)
        by_policy = {policy: _Counted(count(reference, candidate, policy), defined) for policy in POLICIES}
        return [
            by_policy[choice.policy].tally(choice, metric) for choice, metric in zip(CHOICES, self.metrics, strict=True)
        ]

    def support(self, batch: Batch, policy: Policy = "positive") -> dict[str, Support]:
        """Observation → positives in references and in candidates, over the pairs that have a reference."""
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
        """Text → labels; a text without a word has none, whatever a labeler would make of it."""
        out: dict[str, Labels] = {text: {} for text in texts}
        spoken = sorted(text for text in out if not wordless(text))
        if self.labeler is None:
            return out | {text: chexpert_labels(batch.read(text).findings, complete=False) for text in spoken}
        answers = self.labeler.label(spoken) if spoken else []
        if len(answers) != len(spoken):
            raise DataError(
                f"the labeler '{self.labeler.name}' answered {len(answers)} times for {len(spoken)} reports; "
                "it must give one dictionary a report, in order."
            )
        return out | {text: _checked(labels, self.labeler.name) for text, labels in zip(spoken, answers, strict=True)}


def count(reference: Cells, candidate: Cells, policy: Policy) -> Matrix:
    """Label cells [N, L] of 1, 0 and -1 → true and false positives, false and true negatives [N, L, 4].

    Args:
        reference: What is true; 9 marks a cell that is not counted.
        candidate: What was claimed.
        policy: Whether -1 is positive, negative, or takes the cell out on either side.
    """
    counted = reference != _NOT_COUNTED
    if policy == "ignored":
        counted &= (reference != _UNCERTAIN) & (candidate != _UNCERTAIN)
    positive = (1, _UNCERTAIN) if policy == "positive" else (1,)
    true, said = np.isin(reference, positive), np.isin(candidate, positive)
    cells = np.stack([true & said, ~true & said, true & ~said, ~true & ~said], axis=-1)
    return np.asarray(cells & counted[..., None], np.float64)


class _Counted:
    """Counts [N, 14, 4] under one policy, turned into the tallies of its metrics."""

    def __init__(self, counts: Matrix, defined: NDArray[np.bool_]) -> None:
        counts = counts * defined[:, None, None]
        self.sets = {"14": counts, "5": counts[:, _TOP]}
        self.defined = defined

    def tally(self, choice: Choice, metric: Metric) -> Tally:
        """The rows and the function of sums that a choice of labels, average and rate asks for."""
        rate = rates.RATES[choice.rate]
        if choice.average == "observation":
            return self._summed(metric, self.sets["14"][:, _COLUMN[choice.labels]], rate)
        counts = self.sets[choice.labels]
        match choice.average:
            case "micro":
                return self._summed(metric, counts.sum(axis=1), rate)
            case "macro":
                return self._summed(metric, counts, rates.macro(rate))
            case "macro-seen":
                return self._summed(metric, counts, rates.macro_seen(rate))
            case "weighted":
                return self._summed(metric, counts, rates.weighted(rate))
            case "exact":
                wrong = counts[..., 1] + counts[..., 2]
                return self._mean(metric, (wrong.sum(axis=1) == 0).astype(np.float64))
            case "example":
                return self._mean(metric, np.nan_to_num(rate(counts.sum(axis=1))))
            case _:
                return self._mean(metric, rate(counts.sum(axis=1)))

    def _summed(self, metric: Metric, rows: Matrix, value_of: rates.Rate) -> Tally:
        return Tally(metric, rows.reshape(len(rows), -1), self.defined, value_of)

    def _mean(self, metric: Metric, values: Matrix) -> Tally:
        return mean_tally(metric, np.where(self.defined, values, np.nan))


def _row(labels: Labels, blank: int) -> list[int]:
    return [labels.get(name, blank) for name in CHEXPERT_14]


def _checked(labels: Labels, labeler: str) -> Labels:
    for name, value in labels.items():
        chexpert_label(name)
        if value not in (1, 0, -1):
            raise DataError(
                f"the labeler '{labeler}' gave {shown(value)} for '{name}'; "
                "a label is 1 (present), 0 (absent) or -1 (uncertain), or is left out."
            )
    return labels
