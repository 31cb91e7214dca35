"""Not worse by more than a margin: a claim to be shown, not the absence of a significant difference."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from cxrlab.core.errors import ConfigError
from cxrlab.metrics.statistics.paired import PairedDifference

# From fewer patients no claim of non-inferiority is made; docs/scoring.md has what intervals of fewer are worth.
MINIMUM_PATIENTS = 30
Verdict = Literal["non-inferior", "not shown", "not established"]


@dataclass(frozen=True)
class NonInferiority:
    """The verdict on one metric.

    Args:
        metric: Its name.
        margin: How much worse is still accepted, in the metric's unit; at least 0.
        gain: b − a in the good direction: positive when b is better.
        bound: One-sided lower confidence bound of the gain; not-a-number when there is none.
        level: Confidence of that bound.
        patients: Patients with a value under both systems.
        minimum_patients: Fewest from which the claim is made.
        verdict: non-inferior when the bound is above −margin; not established with too few patients or without an
            interval, whatever the bound; else not shown.
        sentence: The verdict in words.
    """

    metric: str
    margin: float
    gain: float
    bound: float
    level: float
    patients: int
    minimum_patients: int
    verdict: Verdict
    sentence: str

    @property
    def shown(self) -> bool:
        """Whether non-inferiority was shown."""
        return self.verdict == "non-inferior"


def non_inferior(
    difference: PairedDifference,
    direction: Literal["higher", "lower"],
    margin: float,
    level: float = 0.95,
    minimum_patients: int = MINIMUM_PATIENTS,
) -> NonInferiority:
    """Whether b is not worse than a by more than `margin`.

    Args:
        difference: Of b − a, with a two-sided interval.
        direction: Whether higher or lower values are better.
        margin: In the metric's unit.
        level: Level of the two-sided interval; its unfavourable end is a one-sided bound of 1 − (1 − level) / 2,
            97.5 % for the usual 95 %.
        minimum_patients: With fewer patients nothing is established, whatever the interval.
    """
    check_margin(difference.metric, margin)
    if minimum_patients < 2:
        raise ConfigError(f"minimum_patients={minimum_patients} is not usable; give a whole number of at least 2.")
    higher = direction == "higher"
    gain = difference.difference if higher else -difference.difference
    bound = difference.low if higher else -difference.high
    confidence = 1 - (1 - level) / 2
    patients = difference.patients_with_value
    verdict: Verdict = "non-inferior" if bound > -margin else "not shown"
    if math.isnan(bound) or patients < minimum_patients:
        verdict = "not established"
    found = NonInferiority(
        difference.metric, margin, gain, bound, confidence, patients, minimum_patients, verdict, sentence=""
    )
    return replace(found, sentence=_sentence(found, difference.patients))


def check_margin(metric: str, margin: float) -> None:
    """A margin is a finite number of at least 0."""
    if not (math.isfinite(margin) and margin >= 0):
        raise ConfigError(f"the margin {margin} of {metric} is not usable; give a number of at least 0.")


def _sentence(found: NonInferiority, differing: int) -> str:
    """The verdict with its reason, and what to do about it.

    Args:
        found: Without its sentence.
        differing: Patients on whom the two systems differ.
    """
    if found.patients < found.minimum_patients:
        have = "1 patient has" if found.patients == 1 else f"{found.patients} patients have"
        return (
            f"{found.metric}: non-inferiority not established: {have} a value under both, and at least "
            f"{found.minimum_patients} are required; give more patients (--minimum-patients accepts fewer)."
        )
    if math.isnan(found.bound):
        return f"{found.metric}: non-inferiority not established, since the difference has no interval."
    relation = "above" if found.shown else "not above"
    verdict = "non-inferior" if found.shown else "NOT shown to be non-inferior"
    sentence = (
        f"{found.metric}: {verdict}; the gain is {found.gain:+.4f} and its lower {100 * found.level:.4g} % bound "
        f"{found.bound:+.4f} is {relation} the margin {-found.margin:+.4g}."
    )
    if differing or found.shown or not found.margin:
        return sentence
    # The bound is −u · reach with (1 − u)^patients = 1 − level, see `Estimate.interval`.
    reach = -found.bound / (1 - (1 - found.level) ** (1 / found.patients))
    needed = math.ceil(math.log(1 - found.level) / math.log1p(-found.margin / reach))
    return f"{sentence} No patient differs; {needed} patients without a difference would show it."
