"""Not worse by more than a margin: a claim to be shown, not the absence of a significant difference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.statistics.paired import PairedDifference


@dataclass(frozen=True)
class NonInferiority:
    """The verdict on one metric.

    Args:
        metric: Its name.
        margin: How much worse is still accepted, in the metric's unit; at least 0.
        gain: b − a in the good direction: positive when b is better.
        bound: One-sided lower confidence bound of the gain; not-a-number when there is none.
        level: Confidence of that bound.
        shown: True when the bound is above −margin.
        sentence: The verdict in words.
    """

    metric: str
    margin: float
    gain: float
    bound: float
    level: float
    shown: bool
    sentence: str


def non_inferior(
    difference: PairedDifference, direction: Literal["higher", "lower"], margin: float, level: float = 0.95
) -> NonInferiority:
    """Whether b is not worse than a by more than `margin`.

    Args:
        difference: Of b − a, with a two-sided interval.
        direction: Whether higher or lower values are better.
        margin: In the metric's unit.
        level: Level of the two-sided interval; its unfavourable end is a one-sided bound of 1 − (1 − level) / 2,
            97.5 % for the usual 95 %.
    """
    check_margin(difference.metric, margin)
    higher = direction == "higher"
    gain = difference.difference if higher else -difference.difference
    bound = difference.low if higher else -difference.high
    shown = bound > -margin  # false for not-a-number: what cannot be computed is not shown
    confidence = 1 - (1 - level) / 2
    sentence = _sentence(difference.metric, margin, gain, bound, confidence, shown)
    return NonInferiority(difference.metric, margin, gain, bound, confidence, shown, sentence)


def check_margin(metric: str, margin: float) -> None:
    """A margin is a finite number of at least 0."""
    if not (math.isfinite(margin) and margin >= 0):
        raise ConfigError(f"the margin {margin} of {metric} is not usable; give a number of at least 0.")


def _sentence(metric: str, margin: float, gain: float, bound: float, level: float, shown: bool) -> str:
    if math.isnan(bound):
        return f"{metric}: non-inferiority cannot be judged, since the difference has no interval."
    relation = "above" if shown else "not above"
    verdict = "non-inferior" if shown else "NOT shown to be non-inferior"
    return (
        f"{metric}: {verdict}; the gain is {gain:+.4f} and its lower {100 * level:.4g} % bound {bound:+.4f} "
        f"is {relation} the margin {-margin:+.4g}."
    )
