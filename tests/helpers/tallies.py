"""Small tallies for tests of statistics: means, and an F1 from counts."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from cxrlab.metrics.base import Metric, Tally, mean_tally
from cxrlab.metrics.chexpert_labels import f1


def card(name: str = "mean", direction: Literal["higher", "lower"] = "higher", by_pair: bool = True) -> Metric:
    """A card for a made-up metric."""
    return Metric(name, direction, (0.0, 1.0), 1.0, "none", {"case": "lower"}, by_pair=by_pair)


def mean(values: ArrayLike, name: str = "mean", direction: Literal["higher", "lower"] = "higher") -> Tally:
    """A mean of one value a pair; not-a-number is undefined."""
    return mean_tally(card(name, direction), np.asarray(values, dtype=np.float64))


def f1_of(counts: ArrayLike, name: str = "f1") -> Tally:
    """Micro F1 of rows of true positives, false positives, false negatives, true negatives; every pair defined."""
    rows = np.asarray(counts, dtype=np.float64)
    return Tally(card(name), rows, np.ones(len(rows), dtype=bool), f1)
