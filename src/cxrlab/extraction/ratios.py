"""The share of the victim's quality that its copy reaches, and labels one by one, from the counts of scored runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cxrlab.core.randomness import generator
from cxrlab.core.vocabulary import CHEXPERT_14
from cxrlab.evaluation.scored_runs import ScoredRun
from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.statistics.intervals import ResampledValue
from cxrlab.metrics.tally import Tally

TRIALS, LEVEL = 1000, 0.95


def values(run: ScoredRun, names: Sequence[str], seed: int) -> dict[str, Any]:
    """Metric → value with its interval by patient, n and undefined.

    Args:
        run: A scored run.
        names: Metrics of it.
        seed: Decides the resamples.
    """
    tallies = [run.tallies[name] for name in names]
    draws = Resamples(run.patients, trials=TRIALS, rng=generator(seed, "fidelity", "values"))
    return {
        tally.metric.name: {
            "direction": tally.metric.direction,
            **{"value": tally.value, "low": ends.low, "high": ends.high, "n": tally.n, "undefined": tally.undefined},
        }
        for tally, ends in zip(tallies, draws.estimates(tallies, LEVEL), strict=True)
    }


def ratios(victim: ScoredRun, surrogate: ScoredRun, names: Sequence[str], seed: int) -> dict[str, Any]:
    """Metric → surrogate ÷ victim, both on the same resampled patients.

    Args:
        victim: Scores of the victim.
        surrogate: Scores of the surrogate, the same studies in the same order.
        names: Metrics of both.
        seed: Decides the resamples.

    A ratio says nothing where the victim is at 0 or below: there `value` is not-a-number. Resamples in which that
    happens are left out and counted (`left_out`); the interval is unknown where they are more than one in twenty.
    `natural_zero` is False for metrics that may be negative: half of such a value is not half of anything.
    """
    draws = Resamples(victim.patients, trials=TRIALS, rng=generator(seed, "fidelity", "ratios"))
    mine, yours = [[run.tallies[name] for name in names] for run in (victim, surrogate)]
    found = draws.resample([*mine, *yours])
    return {name: _ratio(mine[k], yours[k], found[k], found[len(names) + k]) for k, name in enumerate(names)}


def _ratio(victim: Tally, surrogate: Tally, below: ResampledValue, above: ResampledValue) -> dict[str, Any]:
    found = above.over(below)
    ends = found.estimate(LEVEL)
    return {
        "value": found.value,
        **{"low": ends.low, "high": ends.high, "n": int((victim.defined & surrogate.defined).sum())},
        "left_out": int((~(below.draws > 0) | np.isnan(above.draws)).sum()),
        **{"natural_zero": victim.metric.range[0] >= 0, "direction": victim.metric.direction},
    }


def observations(run: ScoredRun, labeler: str, seed: int) -> dict[str, Any]:
    """CheXpert observation → F1 with its interval, positives among references and among candidates.

    Args:
        run: A scored run with the labels by observation.
        labeler: First word of the metrics' names: chexpert (rules) or chexbert.
        seed: Decides the resamples.

    F1 is unknown where an observation is positive on neither side. An uncertain label counts as positive.
    """
    names = [f"{labeler}.{name}.f1:uncertain-positive" for name in CHEXPERT_14]
    found = values(run, names, seed)
    told = {}
    for observation, name in zip(CHEXPERT_14, names, strict=True):
        hit, extra, lost, _ = (int(count) for count in run.tallies[name].rows.sum(axis=0))
        told[observation] = found[name] | {"support": hit + lost, "claimed": hit + extra}
    return told
