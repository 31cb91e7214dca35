"""Area under the ROC curve with its interval by patient; calibration: error, Brier score, temperature, risk and coverage."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrlab.metrics.base import Matrix, Metric, Tally, mean_of, ratio
from cxrlab.metrics.statistics.intervals import Resamples

# Numbers of one block of trials × cases: 32 MiB.
_BLOCK = 1 << 22


@dataclass(frozen=True)
class Auroc:
    """Probability that a positive case scores above a negative one, ties counted half; not-a-number without both."""

    value: float
    low: float
    high: float
    positives: int
    negatives: int


def auroc(scores: Matrix, truth: NDArray[np.bool_], weights: Matrix | None = None) -> Matrix:
    """The area for each row of weights [T, N], or one area without weights: [T].

    Args:
        scores: One per case, [N]; higher means more likely.
        truth: Whether the finding is present, [N].
        weights: How often each case was drawn, [T, N].
    """
    times = np.ones((1, len(scores))) if weights is None else weights
    order = np.argsort(scores, kind="stable")
    ranked, there = scores[order], truth[order]
    # Cases of one and the same score are one group: half of the negatives of the group count as below.
    groups = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(ranked) else np.zeros(0, np.intp)
    areas = np.full(len(times), np.nan)
    if not len(groups):
        return areas
    step = max(1, _BLOCK // len(scores))
    for start in range(0, len(times), step):
        drawn = times[start : start + step][:, order]
        positive = np.add.reduceat(drawn * there, groups, axis=1)
        negative = np.add.reduceat(drawn * ~there, groups, axis=1)
        below = np.cumsum(negative, axis=1) - 0.5 * negative
        both = positive.sum(axis=1) * negative.sum(axis=1)
        areas[start : start + step] = ratio((positive * below).sum(axis=1), both)
    return areas


def auroc_interval(scores: Matrix, truth: NDArray[np.bool_], resamples: Resamples, level: float) -> Auroc:
    """The area with its interval; both ends are not-a-number with fewer than two patients of either kind."""
    clusters = resamples.clusters
    fewer = min(clusters.count_with(truth), clusters.count_with(~truth))
    found = resamples.resample_value(
        lambda weights: auroc(scores, truth, weights[:, clusters.codes]), fewer, (0.0, 1.0)
    )
    low, high = found.estimate(level).ends
    return Auroc(found.value, low, high, int(truth.sum()), int((~truth).sum()))


BINS = 15

ECE = Metric(
    "ece",
    "lower",
    (0.0, 1.0),
    None,
    "studies without an answer whose truth is known",
    {"bins": "equal-mass", "gap": "absolute", "of": "P(present)"},
    about="mean distance of the probability given from the share that is true",
    by_pair=False,
)
ECE_FIXED = replace(
    ECE,
    name="ece_fixed",
    conventions={"bins": "equal-width", "gap": "absolute", "of": "P(present)"},
    about="the same in bins of equal width, which are the same for every model",
)
BRIER = Metric(
    "brier",
    "lower",
    (0.0, 1.0),
    None,
    "studies without an answer whose truth is known",
    {"of": "P(present)"},
    about="mean squared distance of the probability given from the truth (0 or 1)",
)


def equal_mass_bins(probability: ArrayLike, bins: int = BINS) -> Matrix:
    """The inner edges of at most `bins` bins with equally many answers, as far as ties allow; not-a-number is ignored.

    An answer belongs to the bin of the last edge that it reaches (`bin_of`), so equal probabilities always share a
    bin. Edges that ties make equal are one edge: there are then fewer bins.
    """
    if bins < 1:
        raise ValueError(f"bins={bins}; there must be at least 1")
    values = np.asarray(probability, dtype=np.float64).reshape(-1)
    ranked = np.sort(values[~np.isnan(values)])
    if not len(ranked):
        return np.zeros(0)
    cuts = np.unique(ranked[np.arange(1, bins) * len(ranked) // bins])
    # No answer lies below an edge at the smallest one.
    edges: Matrix = cuts[cuts > ranked[0]]
    return edges


def bin_of(probability: ArrayLike, edges: Matrix) -> NDArray[np.intp]:
    """The bin of each answer, counted from 0, in the shape of `probability`; not-a-number falls into the last."""
    return np.searchsorted(edges, np.asarray(probability, dtype=np.float64), side="right")


def expected_calibration_error(
    probability: ArrayLike, truth: ArrayLike, bins: int = BINS, edges: Matrix | None = None
) -> Tally:
    """Distance of the mean probability from the share that is true, averaged over bins, weighted by their number of answers.

    Edges are fixed from all answers once, and resamples keep them. The rows hold, for each bin, the sum of
    `probability - truth` and the number of answers; `bin_counts` gives the latter.

    The error is biased upward: within a bin, chance alone separates the mean probability from the share by about
    sqrt(p (1 - p) / n). A perfectly calibrated model has an error well above 0 where a bin holds a dozen answers, so
    compare errors of equal n only, by their paired difference.

    Args:
        probability: Of being present, [N] or [N, L]; not-a-number where nothing was answered.
        truth: 1 or true where it is present, in the same shape; not-a-number where it is not known.
        bins: Of equal mass; see `equal_mass_bins`.
        edges: To share the bins of another set of answers; made from these when None.
    """
    given, true, known = _cells(probability, truth)
    inner = equal_mass_bins(given[known], bins) if edges is None else edges
    count = len(inner) + 1
    row = np.nonzero(known)[0]
    cell = row * count + bin_of(given[known], inner)
    size = len(given) * count
    gaps = np.bincount(cell, weights=given[known] - true[known], minlength=size).reshape(-1, count)
    held = np.bincount(cell, minlength=size).reshape(-1, count).astype(np.float64)
    return Tally(ECE, np.concatenate([gaps, held], axis=1), held.sum(axis=1) > 0, _error_of)


def fixed_calibration_error(probability: ArrayLike, truth: ArrayLike, bins: int = BINS) -> Tally:
    """The same in bins of equal width from 0 to 1: every model and condition has the same ones.

    Most answers of a confident model fall into the first and the last bin; compare with the error in bins of equal mass.
    """
    edges = np.linspace(0.0, 1.0, bins + 1)[1:-1]
    return replace(expected_calibration_error(probability, truth, edges=edges), metric=ECE_FIXED)


def brier(probability: ArrayLike, truth: ArrayLike) -> Tally:
    """Mean of (probability - truth)²; see `expected_calibration_error` for the arguments."""
    given, true, known = _cells(probability, truth)
    squares = np.where(known, (given - true) ** 2, 0.0).sum(axis=1)
    rows = np.stack([squares, known.sum(axis=1).astype(np.float64)], axis=1)
    return Tally(BRIER, rows, rows[:, 1] > 0, mean_of)


# Probabilities of float32 that are this close to 0 or 1 have lost their distance from them.
_CLIP = 1e-7
HOTTEST = 100.0  # temperatures are sought from 1 / HOTTEST to HOTTEST


def fit_temperature(probability: ArrayLike, truth: ArrayLike) -> float:
    """The temperature T for which logit(P) / T gives the known truths the highest likelihood; 1 changes nothing.

    The likelihood has one maximum over 1 / T. Answers that are all right push T to its least value, 1 / `HOTTEST`.
    Not-a-number where no answer is known.
    """
    given, true, known = _cells(probability, truth)
    signed = np.where(true[known] == 1, 1.0, -1.0) * _logit(given[known])
    if not len(signed):
        return math.nan

    def slope(inverse: float) -> float:
        """Derivative of the log-likelihood by 1 / T; it falls."""
        return float((signed / (1 + np.exp(np.clip(inverse * signed, -700, 700)))).sum())

    low, high = 1 / HOTTEST, HOTTEST
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return 1 / math.sqrt(low * high)


def scaled(probability: ArrayLike, temperature: float) -> Matrix:
    """Probabilities after division of their logits by a temperature; 0.5 stays 0.5, not-a-number stays so."""
    logit = _logit(np.asarray(probability, dtype=np.float64)) / temperature
    found: Matrix = 1 / (1 + np.exp(np.clip(-logit, -700, 700)))
    return found


def _logit(probability: Matrix) -> Matrix:
    clipped = np.clip(probability, _CLIP, 1 - _CLIP)
    found: Matrix = np.log(clipped) - np.log1p(-clipped)
    return found


def risk_coverage_area(confidence: Matrix, wrong: Matrix, weights: Matrix | None = None) -> Matrix:
    """Area under the risk-coverage curve for each row of weights [T, N], or one area without weights: [T].

    Answers are accepted from the most confident on; risk is the share of accepted answers that are wrong. The area is
    the mean risk over all coverages: low where a model is wrong only where it is unsure. Equally confident answers are
    accepted together.

    Args:
        confidence: One per answer, [N].
        wrong: 1 where the answer is wrong, 0 where right, [N].
        weights: How often each answer was drawn, [T, N].
    """
    times = np.ones((1, len(confidence))) if weights is None else weights
    order = np.argsort(-confidence, kind="stable")
    ranked = confidence[order]
    groups = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]]) if len(ranked) else np.zeros(0, np.intp)
    areas = np.full(len(times), np.nan)
    if not len(groups):
        return areas
    step = max(1, _BLOCK // len(confidence))
    for start in range(0, len(times), step):
        drawn = times[start : start + step][:, order]
        held = np.add.reduceat(drawn, groups, axis=1)
        failed = np.cumsum(np.add.reduceat(drawn * wrong[order], groups, axis=1), axis=1)
        risk = np.nan_to_num(ratio(failed, np.cumsum(held, axis=1)))  # nothing accepted yet: no weight either
        areas[start : start + step] = ratio((risk * held).sum(axis=1), held.sum(axis=1))
    return areas


def _error_of(sums: Matrix) -> Matrix:
    """[..., 2 B] of gaps and counts by bin → error."""
    bins = sums.shape[-1] // 2
    return ratio(np.abs(sums[..., :bins]).sum(axis=-1), sums[..., bins:].sum(axis=-1))


def _cells(probability: ArrayLike, truth: ArrayLike) -> tuple[Matrix, Matrix, NDArray[np.bool_]]:
    """Probability and truth as [N, L], and where both are known."""
    given, true = np.asarray(probability, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if given.shape != true.shape or given.ndim not in (1, 2):
        raise ValueError(f"shapes {given.shape} and {true.shape} are not two lists or two tables of equal size")
    if given.ndim == 1:
        given, true = given[:, None], true[:, None]
    return given, true, ~(np.isnan(given) | np.isnan(true))
