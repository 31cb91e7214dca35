"""Two systems on the same studies, once a seed: the difference by seed, and over seeds and patients together.

Over seeds the resamples are of two levels: seeds are drawn with replacement, and so are patients, the same ones in
every seed that holds them. The interval says what other seeds and other patients would give; three seeds are few, so
that it is too narrow where seeds differ much. Student's interval of the seeds' differences stands beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cxrlab.core.json_values import plain
from cxrlab.core.randomness import generator
from cxrlab.evaluation.scored_runs import ScoredRun, align_runs
from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.statistics.intervals import ResampledValue
from cxrlab.metrics.statistics.paired_tests import PairedDifference, paired_differences
from cxrlab.metrics.tally import Matrix
from cxrlab.studies.over_seeds import over_seeds
from cxrlab.studies.preference_table import excludes_zero

HOW = "seeds and patients drawn with replacement, 95 %"
TRIALS, LEVEL = 1000, 0.95
Pair = tuple[ScoredRun, ScoredRun]


def paired_seeds(pairs: Sequence[Pair], seeds: Sequence[int], names: Sequence[str], swaps: int) -> dict[str, Any]:
    """Metric → what the second run is more than the first, and how many times as much.

    Args:
        pairs: For each seed the scores of the baseline and of the other run, on the same studies.
        seeds: Their seeds, in the same order.
        names: Metrics of all of them.
        swaps: Swaps of the permutation test behind each seed's p.

    Returns:
        `by_seed`, each seed's values, difference, interval by patient and p; `difference`, with Student's interval over
        seeds; `pooled`, the mean difference with the interval of two levels, see above; `ratio`, the mean over seeds
        of the one divided by that of the other, with the same kind of interval.
    """
    pairs = [(one, two) for one, two in (align_runs(pair) for pair in pairs)]
    told = [_told(pair, names, seed, swaps) for pair, seed in zip(pairs, seeds, strict=True)]
    drawn = _drawn(pairs, names, seeds)
    found = {}
    for place, name in enumerate(names):
        rows = [one[place] for one in told]
        differences = over_seeds([row.difference for row in rows])
        by_seed = [{"seed": seed, **_kept(row)} for seed, row in zip(seeds, rows, strict=True)]
        ends = _ends(pairs, name, rows, *drawn[place])
        found[name] = plain({"by_seed": by_seed, "difference": differences, **ends})
    return found


def _told(pair: Pair, names: Sequence[str], seed: int, swaps: int) -> list[PairedDifference]:
    before, after = ([run.tallies[name] for name in names] for run in pair)
    return paired_differences(before, after, pair[0].patients, trials=swaps, rng=generator(seed, "study", "contrast"))


def _kept(row: PairedDifference) -> dict[str, Any]:
    kept = {"against": row.a, "value": row.b, "difference": row.difference, "low": row.low, "high": row.high}
    return {**kept, "p": row.p, "excludes_zero": excludes_zero(row.low, row.high)}


def _drawn(pairs: Sequence[Pair], names: Sequence[str], seeds: Sequence[int]) -> list[tuple[Matrix, Matrix]]:
    """For each metric the mean over the drawn seeds of both runs in every resample, [trials] each."""
    patients = sorted({patient for one, _ in pairs for patient in one.patients})
    draws = Resamples(patients, trials=TRIALS, rng=generator(seeds[0], "study", "contrast", "patients"))
    chosen = generator(seeds[0], "study", "contrast", "seeds").integers(len(pairs), size=(TRIALS, len(pairs)))
    blocks = list(draws.weights())
    found = []
    for name in names:
        sides = []
        for side in (0, 1):
            values = np.stack([_resampled(pair[side], name, patients, blocks) for pair in pairs])
            sides.append(values[chosen, np.arange(TRIALS)[:, None]].mean(axis=1))
        found.append((sides[0], sides[1]))
    return found


def _resampled(run: ScoredRun, name: str, patients: Sequence[str], blocks: Sequence[tuple[int, Matrix]]) -> Matrix:
    """The value of a metric in every resample of all patients [trials]; those that this run lacks count for nothing."""
    tally = run.tallies[name]
    sums = np.zeros((len(patients), tally.rows.shape[1]))
    np.add.at(sums, np.searchsorted(patients, run.patients), tally.rows)
    return np.concatenate([tally.value_of(weights @ sums) for _, weights in blocks])


def _ends(
    pairs: Sequence[Pair], name: str, rows: Sequence[PairedDifference], before: Matrix, after: Matrix
) -> dict[str, Any]:
    """`pooled` and `ratio` of one metric; an interval is unknown where fewer than two patients bear on it."""
    defined = [{run.patients[k] for k in np.flatnonzero(run.tallies[name].defined)} for pair in pairs for run in pair]
    fewest = min(len(some) for some in defined)
    patients = len(set().union(*defined)) if fewest > 1 else fewest
    span = pairs[0][0].tallies[name].metric.range
    base, mean = (
        ResampledValue(float(np.mean([getattr(row, key) for row in rows])), draws, np.empty(0), patients, span)
        for key, draws in (("a", before), ("b", after))
    )
    gap, times = mean.minus(base), mean.over(base)
    change, part = gap.estimate(LEVEL), times.estimate(LEVEL)
    return {
        "pooled": {
            **{"value": gap.value, "low": change.low, "high": change.high},
            **{
                "excludes_zero": excludes_zero(*change.ends),
                "seeds": len(rows),
                "patients": len(set().union(*defined)),
            },
        },
        "ratio": {"value": times.value, "low": part.low, "high": part.high},
    }
