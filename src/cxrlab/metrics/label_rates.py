"""Counts of right and wrong labels into precision, recall, F1 and accuracy, under every way of averaging.

Counts are true positives, false positives, false negatives and true negatives, in that order, in
the last axis. Every function works on sums of counts, so the value of a corpus, a slice and a
bootstrap sample come from the same line.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from cxrlab.metrics.tally import Matrix, ratio

COUNTS = 4


def precision(counts: Matrix) -> Matrix:
    """[..., 4] → [...] in [0, 1]: 0 where nothing was claimed, not-a-number where nothing is positive at all."""
    return _rate(counts, counts[..., 0] + counts[..., 1])


def recall(counts: Matrix) -> Matrix:
    """[..., 4] → [...] in [0, 1]: 0 where nothing was to be found, not-a-number where nothing is positive at all."""
    return _rate(counts, counts[..., 0] + counts[..., 2])


def f1(counts: Matrix) -> Matrix:
    """[..., 4] → [...] in [0, 1]: 2 tp / (2 tp + fp + fn), not-a-number where nothing is positive on either side."""
    return ratio(2 * counts[..., 0], 2 * counts[..., 0] + counts[..., 1] + counts[..., 2])


def accuracy(counts: Matrix) -> Matrix:
    """[..., 4] → [...] in [0, 1]: share of cells that agree, not-a-number where there is no cell."""
    return ratio(counts[..., 0] + counts[..., 3], counts.sum(axis=-1))


Rate = Callable[[Matrix], Matrix]
RATES: dict[str, Rate] = {"precision": precision, "recall": recall, "f1": f1, "accuracy": accuracy}


def macro(rate: Rate) -> Rate:
    """Mean over all labels; a label that is positive on neither side counts 0, as scikit-learn reports it.

    Sums [..., L·4] → [...]; not-a-number where no label at all is positive on either side.
    """
    return partial(_macro, rate=rate)


def macro_seen(rate: Rate) -> Rate:
    """Mean over the labels that are positive on at least one side; sums [..., L·4] → [...]."""
    return partial(_macro_seen, rate=rate)


def weighted(rate: Rate) -> Rate:
    """Mean over labels weighted by support, their number of positive references; sums [..., L·4] → [...]."""
    return partial(_weighted, rate=rate)


# At the top of the module and bound by name, not closures: a scored run writes down which function made a value.
def _macro(sums: Matrix, rate: Rate) -> Matrix:
    by_label = rate(_by_label(sums))
    seen = ~np.isnan(by_label)
    return np.where(seen.any(axis=-1), np.where(seen, by_label, 0.0).mean(axis=-1), np.nan)


def _macro_seen(sums: Matrix, rate: Rate) -> Matrix:
    by_label = rate(_by_label(sums))
    seen = ~np.isnan(by_label)
    return ratio(np.where(seen, by_label, 0.0).sum(axis=-1), seen.sum(axis=-1).astype(np.float64))


def _weighted(sums: Matrix, rate: Rate) -> Matrix:
    counts = _by_label(sums)
    support = counts[..., 0] + counts[..., 2]
    # A label with support is positive on one side, so its rate is a number.
    return ratio((np.where(support > 0, rate(counts), 0.0) * support).sum(axis=-1), support.sum(axis=-1))


def _rate(counts: Matrix, below: Matrix) -> Matrix:
    anything = counts[..., 0] + counts[..., 1] + counts[..., 2] > 0
    return np.where(anything, np.nan_to_num(ratio(counts[..., 0], below)), np.nan)


def _by_label(sums: Matrix) -> Matrix:
    return sums.reshape(*sums.shape[:-1], -1, COUNTS)
