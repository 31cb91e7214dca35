"""BLEU as in coco-caption and as in sacreBLEU, from the same rows of counts.

A row is [matches of 1..4 words, runs of 1..4 words in the candidate, words of the reference, 1]. Rows of several pairs
add up to the row of their corpus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from cxrlab.metrics.base import Matrix, Metric, Tally
from cxrlab.metrics.ngrams import NgramCache, NgramCounts, NgramIndex, Numbers, Shared, Words
from cxrlab.metrics.report_pairs import Batch, Status
from cxrlab.metrics.tokenization import words_13a

ORDER = 4
MATCHES, RUNS, REFERENCE_WORDS, PAIRS = slice(0, ORDER), slice(ORDER, 2 * ORDER), 2 * ORDER, 2 * ORDER + 1
WIDTH = 2 * ORDER + 2


def bleu_rows(
    counts: Sequence[NgramCounts], shared: Sequence[Shared], reference: Numbers, candidate: Numbers
) -> Matrix:
    """One row per pair [N, 10] from the runs of 1..4 words, and those that candidate (left) and reference share."""
    rows = np.ones((len(reference), WIDTH))
    for order in range(ORDER):
        rows[:, order] = shared[order].matches(len(reference))
        rows[:, ORDER + order] = counts[order].totals[candidate]
    rows[:, REFERENCE_WORDS] = counts[0].totals[reference]
    return rows


@dataclass(frozen=True, eq=False)
class Counted:
    """The n-grams of a batch, for BLEU and CIDEr."""

    defined: NDArray[np.bool_]  # which pairs have a reference [N]
    rows: Matrix  # BLEU's rows [N, 10]; all zero where there is none
    counts: Sequence[NgramCounts]  # runs of 1..4 words over all texts
    shared: Sequence[Shared]  # of each length, the runs that candidate and reference of the defined pairs share
    reference: Numbers  # number of the text of each defined pair
    candidate: Numbers


def counted(batch: Batch, cache: NgramCache) -> Counted:
    """Count a batch; the cache splits texts into words and keeps their counts."""
    defined = np.array([status is not Status.NO_REFERENCE for status in batch.statuses])
    reference, candidate = (side[defined] for side in cache.numbers(batch.references, batch.candidates))
    shared = [count.shared(candidate, reference) for count in cache.counts]
    rows = np.zeros((len(batch), WIDTH))
    rows[defined] = bleu_rows(cache.counts, shared, reference, candidate)
    return Counted(defined, rows, cache.counts, shared, reference, candidate)


def rows_of_words(references: Sequence[Words], candidates: Sequence[Words]) -> Matrix:
    """The same from texts that are already split into words [N, 10]."""
    index = NgramIndex(ORDER)
    reference, candidate = index.add(references), index.add(candidates)
    shared = [count.shared(candidate, reference) for count in index.counts]
    return bleu_rows(index.counts, shared, reference, candidate)


def coco_bleu(sums: Matrix, order: int) -> Matrix:
    """BLEU as in coco-caption of sums of rows [..., 10] → [...], 0..1; not-a-number without pairs.

    Two small constants keep its quotients finite: where nothing matches the value is almost 0, not 0.
    """
    small, tiny = 1e-9, 1e-15
    precisions = (sums[..., MATCHES] + tiny) / (sums[..., RUNS] + small)
    value = precisions[..., :order].prod(axis=-1) ** (1.0 / order)
    ratio = (sums[..., ORDER] + tiny) / (sums[..., REFERENCE_WORDS] + small)
    value = value * np.exp(np.minimum(0.0, 1.0 - 1.0 / ratio))
    return np.where(sums[..., PAIRS] > 0, value, np.nan)


def sacre_bleu(sums: Matrix, order: int = ORDER) -> Matrix:
    """Corpus BLEU as in sacreBLEU, smoothed exponentially, of sums of rows [..., 10] → [...], 0..1.

    The k-th order without a match counts as 1 / 2^k of a match. 0 where no word matches or no candidate
    has as many words as the order; not-a-number without pairs.
    """
    matches, runs = sums[..., MATCHES][..., :order], sums[..., RUNS][..., :order]
    halvings = np.cumsum(matches == 0, axis=-1)
    smoothed = np.where(matches > 0, matches, 0.5**halvings)
    precisions = np.divide(smoothed, runs, out=np.zeros_like(smoothed), where=runs > 0)
    words, wanted = sums[..., ORDER], sums[..., REFERENCE_WORDS]
    brevity = np.exp(np.minimum(0.0, 1.0 - wanted / np.maximum(words, 1.0)))
    value = brevity * precisions.prod(axis=-1) ** (1.0 / order)
    value = np.where(matches.any(axis=-1), value, 0.0)
    return np.where(sums[..., PAIRS] > 0, value, np.nan)


CONVENTIONS = {"nrefs": "1", "case": "mixed", "eff": "no", "tok": "13a", "smooth": "exp", "unit": "0..1"}
BLEU_4 = Metric(
    name="bleu4:sacre",
    direction="higher",
    range=(0.0, 1.0),
    identity=None,
    undefined="pairs without a reference",
    conventions=CONVENTIONS,
    about="corpus BLEU-4 as sacreBLEU prints it, divided by 100",
    quirk="0 where no candidate has four words, even against itself; empty text scores 0",
)
BLEU_1 = replace(
    BLEU_4,
    name="bleu1:sacre",
    conventions={**CONVENTIONS, "order": "1"},
    about="corpus BLEU of single words as sacreBLEU prints it (max_ngram_order=1), divided by 100",
    quirk="empty text scores 0, also against itself",
)


class SacreBleu:
    """`bleu4:sacre` and `bleu1:sacre`; counts of texts are cached between batches."""

    metrics = (BLEU_4, BLEU_1)
    default = (BLEU_4.name,)

    def __init__(self) -> None:
        self._cache = NgramCache(words_13a, ORDER)

    def tallies(self, batch: Batch) -> list[Tally]:
        """Tallies of corpus counts."""
        found = counted(batch, self._cache)
        values = ((BLEU_4, sacre_bleu), (BLEU_1, partial(sacre_bleu, order=1)))
        return [Tally(metric, found.rows, found.defined, value_of) for metric, value_of in values]
