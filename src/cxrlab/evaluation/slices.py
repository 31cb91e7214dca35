"""Scores of parts of a test set: by view, sex, age and devices, each with its size and interval.

A part that is small is shown and said to be small: its interval, not its value, is the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Group, observation
from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.statistics.clusters import Place, place_in_memory
from cxrlab.metrics.tally import Matrix, Tally

# From fewer patients than this an interval is rough; docs/scoring.md has how often it holds the truth.
SMALL = 30
AGE_BANDS = ((0, "<18"), (18, "18-39"), (40, "40-59"), (60, "60-79"), (80, "80+"))
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Attributes:
    """What a pair is sliced by; None where it is not known.

    Args:
        view: View of the image that was read, such as PA.
        sex: F or M.
        age: Years.
        device: Whether the reference names a device that is in place.
    """

    view: str | None = None
    sex: str | None = None
    age: float | None = None
    device: bool | None = None


@dataclass(frozen=True)
class SliceScore:
    """One metric on one slice.

    Args:
        value: Over the slice; not-a-number when no pair has a value.
        low: Lower end of its interval by patient; not-a-number with fewer than two patients.
        high: Upper end.
        n: Pairs that entered the value.
        undefined: Pairs of the slice without a value.
        patients: Patients in the slice.
        small: True with fewer than 30 patients.
    """

    value: float
    low: float
    high: float
    n: int
    undefined: int
    patients: int
    small: bool


def age_band(age: float) -> str:
    """The band of an age in years: <18, 18-39, 40-59, 60-79 or 80+."""
    return [name for start, name in AGE_BANDS if age >= start][-1] if age >= 0 else UNKNOWN


def has_device(findings: Iterable[Finding]) -> bool:
    """Whether any device is stated to be there."""
    return any(finding.present and observation(finding.observation).group is Group.DEVICE for finding in findings)


def slice_masks(attributes: Sequence[Attributes]) -> dict[str, NDArray[np.bool_]]:
    """Name of each slice → which pairs are in it [N].

    Names are `view=PA`, `sex=F`, `age=60-79`, `device=present`, and `…=unknown` for the rest where some
    are known. An attribute that is known of no pair, or the same for all, makes no slice.
    """
    columns = {
        "view": [one.view for one in attributes],
        "sex": [one.sex for one in attributes],
        "age": [None if one.age is None else age_band(one.age) for one in attributes],
        "device": [None if one.device is None else "present" if one.device else "absent" for one in attributes],
    }
    order = {name: place for place, (_, name) in enumerate(AGE_BANDS)}
    masks: dict[str, NDArray[np.bool_]] = {}
    for attribute, told in columns.items():
        values = np.array([UNKNOWN if value is None else value for value in told], dtype=np.str_)
        kinds = sorted(set(values.tolist()), key=lambda kind: (kind == UNKNOWN, order.get(kind, 0), kind))
        if len(kinds) > 1:
            masks |= {f"{attribute}={kind}": values == kind for kind in kinds}
    return masks


def score_slices(
    tallies: Sequence[Tally],
    patients: Sequence[str],
    attributes: Sequence[Attributes],
    *,
    trials: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> dict[str, dict[str, SliceScore]]:
    """Every metric on every slice, by name of the slice and of the metric.

    Args:
        tallies: Of the whole test set.
        patients: One name a pair, as for the intervals of the whole.
        attributes: One a pair.
        trials: Resamples for each slice.
        level: Of the intervals.
        rng: Source of the resamples.
    """
    if len(patients) != len(attributes):
        raise ValueError(f"{len(attributes)} attributes do not fit {len(patients)} patients")
    return {
        name: _scores(tallies, patients, mask, trials, level, rng) for name, mask in slice_masks(attributes).items()
    }


def _scores(
    tallies: Sequence[Tally],
    patients: Sequence[str],
    mask: NDArray[np.bool_],
    trials: int,
    level: float,
    rng: np.random.Generator,
) -> dict[str, SliceScore]:
    inside = [patient for patient, kept in zip(patients, mask, strict=True) if kept]
    parts = _parts(tallies, mask)
    draws = Resamples(inside, trials=trials, rng=rng)
    count = draws.clusters.count
    return {
        part.metric.name: SliceScore(part.value, ends.low, ends.high, part.n, part.undefined, count, count < SMALL)
        for part, ends in zip(parts, draws.intervals(parts, level), strict=True)
    }


def _parts(tallies: Sequence[Tally], mask: NDArray[np.bool_]) -> list[Tally]:
    """The tallies of the slice; those that share their rows go on sharing them."""
    cut: dict[Place, Matrix] = {}
    parts = []
    for tally in tallies:
        memory = place_in_memory(tally.rows)
        if memory not in cut:
            cut[memory] = tally.rows[mask]
        parts.append(replace(tally, rows=cut[memory], defined=tally.defined[mask]))
    return parts
