"""Figures over seeds: means with intervals, and the paired difference of two systems.

Paired figures resample on two levels: seeds are drawn with replacement, and so are patients, the same ones in every
seed that has them. The interval covers other seeds and other patients; with three seeds it is too narrow where seeds
differ much. Student's interval of the seeds' differences stands beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cxrlab.core.json_values import nan_if_none, plain
from cxrlab.core.randomness import generator
from cxrlab.evaluation.scored_runs import ScoredRun, align_runs
from cxrlab.metrics.base import Matrix
from cxrlab.metrics.statistics.intervals import ResampledValue, Resamples, student
from cxrlab.metrics.statistics.paired_tests import PairedDifference, paired_differences

PAIRED_METHOD = "seeds and patients drawn with replacement, 95 %"
TRIALS, LEVEL = 1000, 0.95
_PAIRED = ("difference", "low", "high", "p")
Pair = tuple[ScoredRun, ScoredRun]


def over_seeds(values: Iterable[float | None]) -> dict[str, Any]:
    """Mean over seeds with Student's interval: where the mean of many seeds lies, for these test studies.

    Returns:
        `values`, one per seed, null where a seed has none; `mean` of the others, null without any; `low` and `high`,
        null below two values; `seeds`, how many entered.
    """
    given = [math.nan if value is None else float(value) for value in values]
    known = [value for value in given if not math.isnan(value)]
    mean = student(known, LEVEL)
    found: dict[str, Any] = plain(
        {"values": given, "mean": mean.value, "low": mean.low, "high": mean.high, "seeds": len(known)}
    )
    return found


def value_at(record: Any, *keys: str) -> Any:
    """The value under nested keys; None where one of them is absent."""
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record


def number_at(record: Any, *keys: str) -> float:
    """The number under nested keys; not-a-number where one of them is absent."""
    return nan_if_none(value_at(record, *keys))


def excludes_zero(low: float, high: float) -> bool | None:
    """Whether an interval lies on one side of 0; None where there is no interval."""
    return None if math.isnan(low) or math.isnan(high) else low > 0 or high < 0


def paired_seeds(pairs: Sequence[Pair], seeds: Sequence[int], names: Sequence[str], swaps: int) -> dict[str, Any]:
    """Metric → how much higher the second run is than the first, and by which factor.

    Args:
        pairs: For each seed the scores of the baseline and of the other run, on the same studies.
        names: Metrics of all of them.
        swaps: Swaps of the permutation test behind each seed's p.

    Returns:
        `by_seed`, each seed's values, difference, interval by patient and p; `difference`, with Student's interval over
        seeds; `pooled`, the mean difference with the interval of two levels, see above; `ratio`, the mean over seeds
        of the second divided by that of the first, with the same kind of interval.
    """
    pairs = [(one, two) for one, two in (align_runs(pair) for pair in pairs)]
    tested = []
    for pair, seed in zip(pairs, seeds, strict=True):
        before, after = ([run.tallies[name] for name in names] for run in pair)
        rng = generator(seed, "study", "contrast")
        tested.append(paired_differences(before, after, pair[0].patients, trials=swaps, rng=rng))
    resampled = _resampled_means(pairs, names, seeds)
    found = {}
    for place, name in enumerate(names):
        rows = [one[place] for one in tested]
        by_seed = []
        for seed, row in zip(seeds, rows, strict=True):
            values = {"seed": seed, "against": row.a, "value": row.b, **{k: getattr(row, k) for k in _PAIRED}}
            by_seed.append({**values, "excludes_zero": excludes_zero(row.low, row.high)})
        difference = over_seeds(row.difference for row in rows)
        pooled = _pooled(pairs, name, rows, *resampled[place])
        found[name] = plain({"by_seed": by_seed, "difference": difference, **pooled})
    return found


def _resampled_means(pairs: Sequence[Pair], names: Sequence[str], seeds: Sequence[int]) -> list[tuple[Matrix, Matrix]]:
    """For each metric the mean over the drawn seeds of both runs in every resample, [trials] each."""
    patients = sorted({patient for one, _ in pairs for patient in one.patients})
    resamples = Resamples(patients, trials=TRIALS, rng=generator(seeds[0], "study", "contrast", "patients"))
    chosen = generator(seeds[0], "study", "contrast", "seeds").integers(len(pairs), size=(TRIALS, len(pairs)))
    blocks = list(resamples.weights())

    def values(run: ScoredRun, name: str) -> Matrix:
        """The metric in every resample of all patients, [trials]; patients without a study in this run add nothing."""
        tally = run.tallies[name]
        sums = np.zeros((len(patients), tally.rows.shape[1]))
        np.add.at(sums, np.searchsorted(patients, run.patients), tally.rows)
        return np.concatenate([tally.value_of(weights @ sums) for _, weights in blocks])

    found = []
    for name in names:
        by_seed = [np.stack([values(pair[side], name) for pair in pairs]) for side in (0, 1)]
        one, two = (sampled[chosen, np.arange(TRIALS)[:, None]].mean(axis=1) for sampled in by_seed)
        found.append((one, two))
    return found


def _pooled(
    pairs: Sequence[Pair], name: str, rows: Sequence[PairedDifference], before: Matrix, after: Matrix
) -> dict[str, Any]:
    """`pooled` and `ratio` of one metric; an interval is unknown where fewer than two patients have a value."""
    defined = [{run.patients[k] for k in np.flatnonzero(run.tallies[name].defined)} for pair in pairs for run in pair]
    fewest = min(map(len, defined))
    patients = len(set().union(*defined)) if fewest > 1 else fewest
    span = pairs[0][0].tallies[name].metric.range
    base, mean = (
        ResampledValue(float(np.mean([getattr(row, key) for row in rows])), draws, np.empty(0), patients, span)
        for key, draws in (("a", before), ("b", after))
    )
    gap, ratio = mean.minus(base), mean.over(base)
    change, factor = gap.estimate(LEVEL), ratio.estimate(LEVEL)
    pooled = {"value": gap.value, "low": change.low, "high": change.high, "excludes_zero": excludes_zero(*change.ends)}
    return {
        "pooled": {**pooled, "seeds": len(rows), "patients": len(set().union(*defined))},
        "ratio": {"value": ratio.value, "low": factor.low, "high": factor.high},
    }
