"""Train, val and test by patient.

A patient's split depends on the patient's id and the seed alone, so that it stays the same when
studies are added, removed or reordered, and in every process.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from cxrlab.core.errors import ConfigError, did_you_mean
from cxrlab.core.randomness import uniform
from cxrlab.core.records import SPLITS, Study

FRACTIONS: Mapping[str, float] = MappingProxyType({"train": 0.8, "val": 0.1, "test": 0.1})


def assign_split(patient: str, seed: int, fractions: Mapping[str, float] = FRACTIONS) -> str:
    """The split of one patient.

    Args:
        fractions: Share of the patients for each split; must sum to 1. The expected share is exact,
            the share of a finite corpus scatters around it.
    """
    check_fractions(fractions)
    where = uniform(seed, "split", patient)
    reached = 0.0
    for name in SPLITS:
        reached += fractions.get(name, 0.0)
        if where < reached:
            return name
    # The shares may add up to a hair below 1.
    return next(name for name in reversed(SPLITS) if fractions.get(name, 0.0) > 0)


def with_splits(studies: Iterable[Study], seed: int, fractions: Mapping[str, float] = FRACTIONS) -> Iterator[Study]:
    """The same studies, each with the split of its patient; a split that was there is replaced."""
    for study in studies:
        yield dataclasses.replace(study, split=assign_split(study.patient, seed, fractions))


def leakage(places: Iterable[tuple[str, str | None]]) -> dict[str, tuple[str, ...]]:
    """Patients that stand in more than one split, with those splits in order; empty is good.

    Args:
        places: Patient and split of each study; None, a study without a split, is passed over.
    """
    seen: dict[str, set[str]] = {}
    for patient, split in places:
        if split is not None:
            seen.setdefault(patient, set()).add(split)
    return {patient: tuple(s for s in SPLITS if s in splits) for patient, splits in seen.items() if len(splits) > 1}


def check_fractions(fractions: Mapping[str, float]) -> None:
    """Refuse unknown splits, negative shares and shares that do not sum to 1."""
    for name, share in fractions.items():
        if name not in SPLITS:
            raise ConfigError(f"'{name}' is not a split.{did_you_mean(name, SPLITS)} Splits: {', '.join(SPLITS)}.")
        if not 0.0 <= share <= 1.0:
            raise ConfigError(f"the share of split '{name}' is {share}; give a number from 0 to 1.")
    total = sum(fractions.values())
    if not math.isclose(total, 1.0, abs_tol=1e-9):
        raise ConfigError(f"the shares of the splits sum to {total:g}; make them sum to 1.")
