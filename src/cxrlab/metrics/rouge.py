"""ROUGE-1, ROUGE-2 and ROUGE-L as the rouge-score package computes them, with and without stemming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cxrlab.metrics.base import Matrix, Metric, Tally, mean_tally
from cxrlab.metrics.ngrams import NgramCache, NgramCounts, Numbers, Words, common_length
from cxrlab.metrics.report_pairs import Batch, Status
from cxrlab.metrics.tokenization import letters, stems

_WHAT = {"1": "words", "2": "runs of two words", "L": "words of the longest common subsequence"}


ROUGE_1, ROUGE_2, ROUGE_L = (
    Metric(
        name=f"rouge{kind}:google",
        direction="higher",
        range=(0.0, 1.0),
        identity=None if kind == "2" else 1.0,
        undefined="pairs without a reference",
        conventions={"case": "lower", "tok": "a-z0-9", "stem": "porter-nltk", "value": "f1", "mean": "pairs"},
        about=f"F1 of shared {_WHAT[kind]}, stemmed, as rouge-score prints it",
        quirk=(
            "text without a letter a-z or digit scores 0, also against itself"
            if kind != "2"
            else "text of fewer than two words scores 0, also against itself"
        ),
    )
    for kind in _WHAT
)


UNSTEMMED_2, UNSTEMMED_L = (
    replace(
        metric,
        name=f"{metric.name}-unstemmed",
        conventions={**metric.conventions, "stem": "none"},
        about=metric.about.replace("stemmed", "not stemmed"),
    )
    for metric in (ROUGE_2, ROUGE_L)
)


class GoogleRuns:
    """ROUGE-1 and ROUGE-2, counted together; counts of texts are cached between batches."""

    metrics = (ROUGE_1, ROUGE_2)

    def __init__(self) -> None:
        self._cache = NgramCache(stems, len(self.metrics))

    def tallies(self, batch: Batch) -> list[Tally]:
        """Means of pairs."""
        defined = np.array([status is not Status.NO_REFERENCE for status in batch.statuses])
        reference, candidate = (side[defined] for side in self._cache.numbers(batch.references, batch.candidates))
        values = np.full((len(self.metrics), len(batch)), np.nan)
        values[:, defined] = [rouge_n(count, reference, candidate) for count in self._cache.counts]
        return [mean_tally(metric, row) for metric, row in zip(self.metrics, values, strict=True)]


class GoogleLongest:
    """ROUGE-L."""

    metrics = (ROUGE_L,)

    def tallies(self, batch: Batch) -> list[Tally]:
        """Mean of pairs."""
        values = rouge_l([stems(text) for text in batch.references], [stems(text) for text in batch.candidates])
        undefined = [status is Status.NO_REFERENCE for status in batch.statuses]
        return [mean_tally(ROUGE_L, np.where(undefined, np.nan, values))]


class GoogleUnstemmed:
    """ROUGE-2 and ROUGE-L without stemming, as evaluators print them that leave rouge-score's settings as they are."""

    metrics = (UNSTEMMED_2, UNSTEMMED_L)
    default = ()

    def __init__(self) -> None:
        self._cache = NgramCache(letters, 2)

    def tallies(self, batch: Batch) -> list[Tally]:
        """Means of pairs."""
        undefined = np.array([status is Status.NO_REFERENCE for status in batch.statuses])
        reference, candidate = self._cache.numbers(batch.references, batch.candidates)
        runs = rouge_n(self._cache.counts[1], reference, candidate)
        longest = rouge_l(*([letters(text) for text in side] for side in (batch.references, batch.candidates)))
        values = zip(self.metrics, (runs, longest), strict=True)
        return [mean_tally(metric, np.where(undefined, np.nan, row)) for metric, row in values]


def rouge_n(counts: NgramCounts, reference: Numbers, candidate: Numbers) -> Matrix:
    """F1 of shared runs of one length [N]."""
    common = counts.shared(candidate, reference).matches(len(reference))
    return f1(common, counts.totals[reference], counts.totals[candidate])


def rouge_l(references: Sequence[Words], candidates: Sequence[Words]) -> Matrix:
    """F1 of the longest common subsequence of lists of words [N]."""
    common = [common_length(one, two) for one, two in zip(references, candidates, strict=True)]
    lengths = ([len(words) for words in side] for side in (references, candidates))
    return f1(*(np.array(column, dtype=np.float64) for column in (common, *lengths)))


def f1(common: Matrix, reference: Matrix, candidate: Matrix) -> Matrix:
    """F1 [N] of the number in common and the numbers of both sides; 0 where nothing is common."""
    precision, recall = common / np.maximum(candidate, 1.0), common / np.maximum(reference, 1.0)
    # In the order of operations of the published code, so that not even the last digit differs.
    both = precision + recall
    return np.divide(2.0 * precision * recall, both, out=np.zeros_like(both), where=both > 0)
