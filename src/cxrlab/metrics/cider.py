"""CIDEr as coco-caption computes it: agreement on runs of words, each weighted by how rare it is.

That implementation is the variant known as CIDEr-D: matches are clipped at the reference's count and
a Gaussian punishes a difference in length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cxrlab.metrics.ngrams import Numbers, RunCounts, Shared, summed
from cxrlab.metrics.tally import Matrix

SIGMA = 6.0  # words of difference in length that cost a factor exp(-1/2)
SCALE = 10.0


def cider(counts: Sequence[RunCounts], shared: Sequence[Shared], reference: Numbers, candidate: Numbers) -> Matrix:
    """The value of each pair [N], 0..10, with weights from the references of these pairs.

    Args:
        counts: Runs of 1, 2, 3, 4 words over all texts.
        shared: Of each length, what the candidate (left) and the reference (right) have in common.
        reference: Text of each pair's reference [N]; a reference that stands in two pairs counts twice.
        candidate: Text of each pair's candidate [N].
    """
    total = np.zeros(len(reference))
    for count, common in zip(counts, shared, strict=True):
        weight = _rarity(count, reference)
        overlap = np.minimum(common.left, common.right) * common.right * weight[common.run] ** 2
        product = summed(common.pair, overlap, len(reference))
        squares = summed(count.text, (count.times * weight[count.run]) ** 2, count.texts)
        norms = np.sqrt(squares[candidate]) * np.sqrt(squares[reference])
        total += np.divide(product, norms, out=np.zeros_like(product), where=norms > 0)
    # Length is told by pairs of words, so that texts of no and of one word are equally long.
    length = counts[1].totals
    penalty = np.exp(-((length[candidate] - length[reference]) ** 2) / (2 * SIGMA**2))
    return SCALE * penalty * total / len(counts)


def _rarity(count: RunCounts, reference: Numbers) -> Matrix:
    """log(references / references with the run) of every run; a run of no reference is as rare as one of a single."""
    often = np.bincount(reference, minlength=count.texts)
    holders = summed(count.run, often[count.text], count.runs)
    weight: Matrix = np.log(max(len(reference), 1)) - np.log(np.maximum(holders, 1.0))
    return weight
