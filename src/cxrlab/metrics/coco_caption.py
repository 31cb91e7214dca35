"""BLEU, ROUGE-L and CIDEr as coco-caption computes them.

Its CIDEr is the variant CIDEr-D: matches are clipped at the reference's count and a Gaussian penalises a difference in
length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from cxrlab.metrics.base import Matrix, Metric, Tally, mean_tally
from cxrlab.metrics.bleu import ORDER, coco_bleu, counted
from cxrlab.metrics.ngrams import NgramCache, NgramCounts, Numbers, Shared, common_length, summed
from cxrlab.metrics.report_pairs import Batch
from cxrlab.metrics.tokenization import coco_words

SIGMA = 6.0  # words of difference in length that cost a factor exp(-1/2)
SCALE = 10.0


def cider(
    counts: Sequence[NgramCounts],
    shared: Sequence[Shared],
    reference: Numbers,
    candidate: Numbers,
    weights: Sequence[Matrix] | None = None,
) -> Matrix:
    """The value of each pair [N], 0..10.

    Args:
        counts: Runs of each length over all texts.
        shared: The runs of each length that candidate (left) and reference (right) have in common.
        reference: Number of the text of each pair [N].
        candidate: Likewise.
        weights: Of each length, the weight of every run; by the references of these pairs where it is left out.
    """
    if weights is None:
        # A reference of two pairs counts twice.
        often = [np.bincount(reference, minlength=count.texts) for count in counts]
        with_run = [
            summed(count.run, times[count.text], count.runs) for count, times in zip(counts, often, strict=True)
        ]
        weights = rarity(with_run, len(reference), counts)
    total = np.zeros(len(reference))
    for count, common, weight in zip(counts, shared, weights, strict=True):
        overlap = np.minimum(common.left, common.right) * common.right * weight[common.run] ** 2
        product = summed(common.pair, overlap, len(reference))
        squares = summed(count.text, (count.times * weight[count.run]) ** 2, count.texts)
        norms = np.sqrt(squares[candidate]) * np.sqrt(squares[reference])
        total += np.divide(product, norms, out=np.zeros_like(product), where=norms > 0)
    # Length is counted in pairs of words, so that texts of no and of one word are equally long.
    length = counts[1].totals
    penalty = np.exp(-((length[candidate] - length[reference]) ** 2) / (2 * SIGMA**2))
    return SCALE * penalty * total / len(counts)


def rarity(with_run: Sequence[Matrix], references: int, counts: Sequence[NgramCounts]) -> list[Matrix]:
    """The weight of every run of each length: log(references / references with the run).

    A run of no reference, also one that was counted later, is as rare as one of a single reference.
    """
    weights = []
    for found, count in zip(with_run, counts, strict=True):
        often = np.ones(count.runs)
        often[: len(found)] = np.maximum(found[: count.runs], 1.0)
        weights.append(np.log(max(references, 1)) - np.log(often))
    return weights


BETA = 1.2  # ROUGE-L weighs recall BETA² times as much as precision
UNDEFINED = "pairs without a reference"
_WORDS = {"case": "lower", "tok": "prose-marks-split"}


def _bleu(order: int) -> Metric:
    short = f"a report of fewer than {order} words scores near 0, even against itself; " if order > 1 else ""
    return Metric(
        name=f"bleu{order}:coco",
        direction="higher",
        range=(0.0, 1.0),
        identity=1.0 if order == 1 else None,
        undefined=UNDEFINED,
        conventions={**_WORDS, "n": str(order), "counts": "corpus", "smooth": "1e-15/1e-9", "reflen": "closest"},
        about=f"share of runs of up to {order} words found in the reference, short candidates punished",
        quirk=f"{short}empty text scores 0, also against itself",
    )


METRICS = (
    *(_bleu(order) for order in range(1, ORDER + 1)),
    Metric(
        name="rougeL:coco",
        direction="higher",
        range=(0.0, 1.0),
        identity=1.0,
        undefined=UNDEFINED,
        conventions={**_WORDS, "stem": "no", "beta": str(BETA), "mean": "pairs"},
        about="longest common subsequence of words, recall weighed above precision",
        quirk=(
            "in text that is already split a second space counts as a word, as published; "
            "text without a word scores 0, also against itself"
        ),
    ),
    Metric(
        name="cider:coco",
        direction="higher",
        range=(0.0, SCALE),
        identity=None,
        undefined=UNDEFINED,
        conventions={**_WORDS, "variant": "D", "n": "4", "sigma": "6", "idf": "references-of-this-batch"},
        about="agreement on runs of up to 4 words, each weighted by its rarity among the references",
        quirk=(
            "weights come from the references scored together, so other pairs change a pair's value; "
            "a single reference, or references that are all alike, have no weights and score 0"
        ),
    ),
)


def rouge_l(reference: Sequence[str], candidate: Sequence[str]) -> float:
    """ROUGE-L as in coco-caption of two lists of words, 0..1; 0 where one is empty."""
    common = common_length(reference, candidate)
    if not common:
        return 0.0
    precision, recall = common / len(candidate), common / len(reference)
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


class Coco:
    """The six metrics, counted together; counts of texts are cached between batches."""

    metrics = METRICS
    # The order of CIDEr's sums follows the numbers of runs, which are given as parts of a batch come.
    in_order = True

    def __init__(self) -> None:
        self._cache = NgramCache(lambda text: [word for word in coco_words(text) if word], ORDER)

    def tallies(self, batch: Batch) -> list[Tally]:
        """BLEU by corpus counts, ROUGE-L and CIDEr as means of pairs."""
        with_run = self._cache.texts_with(batch.all_references) if batch.is_part else None
        found = counted(batch, self._cache)
        defined = found.defined
        bleus = [
            Tally(metric, found.rows, defined, partial(coco_bleu, order=order))
            for order, metric in enumerate(METRICS[:ORDER], start=1)
        ]
        texts = zip(batch.references, batch.candidates, defined, strict=True)
        means = np.full((2, len(batch)), np.nan)
        means[0, defined] = [rouge_l(coco_words(one), coco_words(two)) for one, two, ok in texts if ok]
        weights = None if with_run is None else rarity(with_run, len(batch.all_references), found.counts)
        means[1, defined] = cider(found.counts, found.shared, found.reference, found.candidate, weights)
        return bleus + [mean_tally(metric, values) for metric, values in zip(METRICS[ORDER:], means, strict=True)]
