"""Two or more scored runs side by side, paired by study and clustered by patient.

The first run is the baseline. A metric is compared only where every run computed it in the same way,
and each difference comes with its interval, a permutation test and Holm's correction over all tests.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cxrlab.core.errors import ConfigError
from cxrlab.core.files import read_bytes
from cxrlab.core.progress import track
from cxrlab.core.randomness import generator
from cxrlab.core.runs import Run, finished
from cxrlab.evaluation.comparison_record import (
    Against,
    ByStudy,
    ComparisonResult,
    Gate,
    MetricComparison,
    RunValue,
    Verdict,
)
from cxrlab.evaluation.paired_runs import aligned, comparable
from cxrlab.evaluation.score_files import INDEX, ScoredRun, read_tallies
from cxrlab.metrics.statistics.bootstrap import Resamples
from cxrlab.metrics.statistics.clusters import Clusters
from cxrlab.metrics.statistics.counts import McNemar, holm, mcnemar
from cxrlab.metrics.statistics.noninferiority import MINIMUM_PATIENTS, check_margin, non_inferior
from cxrlab.metrics.statistics.paired import PairedDifference, paired_differences
from cxrlab.metrics.statistics.permutation import SLACK
from cxrlab.metrics.tally import Metric, Tally, mean_of

RESULT = "comparison.json"
ALPHA = 0.05


def compare(
    runs: Sequence[str | os.PathLike[str]],
    noninferior: Mapping[str, float] | None = None,
    seed: int = 7,
    out: str | os.PathLike[str] | None = None,
    *,
    metrics: Sequence[str] = (),
    trials: int = 10_000,
    minimum_patients: int = MINIMUM_PATIENTS,
) -> ComparisonResult:
    """Compare scored runs with the first of them.

    Args:
        runs: Folders written by `score`, at least two, scored against the same references.
        noninferior: Metric → margin: how much worse than the baseline is still accepted. See `ComparisonResult.ok`.
        seed: Decides resamples and swaps.
        out: Run folder for comparison.json; nothing is written when left out.
        metrics: Names, patterns (`bleu*`) and groups to compare, which are also what Holm's correction counts; the
            headline ones when empty, "all" for every shared one.
        trials: Swaps of the permutation test.
        minimum_patients: Fewest patients from which non-inferiority is established.
    """
    margins = dict(noninferior or {})
    for metric, margin in margins.items():
        check_margin(metric, margin)
    if len(runs) < 2:
        raise ConfigError(f"{len(runs)} run was given; a comparison needs at least two, the baseline first.")
    scored = aligned([read_tallies(Path(run)) for run in runs])
    names, refused = comparable(scored, metrics, list(margins))
    result = _compared(scored, names, margins, minimum_patients, refused, trials, seed)
    if out is not None:
        _write(Path(out), result, scored, margins, minimum_patients, sorted(metrics), trials, seed)
    return result


def _compared(
    runs: Sequence[ScoredRun],
    names: Sequence[str],
    margins: Mapping[str, float],
    minimum_patients: int,
    refused: Mapping[str, str],
    trials: int,
    seed: int,
) -> ComparisonResult:
    labels = _labels([run.folder for run in runs])
    groups = Clusters(runs[0].patients)
    tallies = [[run.tallies[name] for name in names] for run in runs]
    draws = Resamples(groups, rng=generator(seed, "compare", "intervals"))
    intervals = [draws.intervals(mine) for mine in tallies]
    found = [
        paired_differences(tallies[0], mine, groups, trials=trials, rng=generator(seed, "compare", "differences"))
        for mine in track(tallies[1:], "comparing runs")
    ]
    # Runs with the same counts on every study leave nothing to test, and what is no test is not corrected for.
    tests = [one.p if one.patients else math.nan for differences in found for one in differences]
    adjusted = np.array(holm(tests)).reshape(len(found), len(names))
    records = []
    for index, name in enumerate(names):
        mine = [row[index] for row in tallies]
        ends = [row[index] for row in intervals]
        places = ranks([tally.value for tally in mine], mine[0].metric.direction)
        values = {
            label: RunValue(tally.value, low, high, tally.n, tally.undefined, place)
            for label, tally, (low, high), place in zip(labels, mine, ends, places, strict=True)
        }
        against = tuple(
            _against(labels[run + 1], mine[0], mine[run + 1], found[run][index], float(adjusted[run, index]))
            for run in range(len(found))
        )
        card = mine[0].metric
        records.append(MetricComparison(name, card.direction, runs[0].signatures[name], values, against))
    gates = tuple(
        Gate(
            item.run,
            non_inferior(item.difference, record.direction, margins[record.metric], minimum_patients=minimum_patients),
        )
        for record in records
        if record.metric in margins
        for item in record.against
    )
    return ComparisonResult(
        runs=tuple(labels),
        folders=tuple(str(run.folder) for run in runs),
        n=len(runs[0].ids),
        patients=groups.count,
        tests=sum(not math.isnan(p) for p in tests),
        alpha=ALPHA,
        metrics=tuple(records),
        refused=dict(refused),
        gates=gates,
    )


def _against(run: str, a: Tally, b: Tally, difference: PairedDifference, p_holm: float) -> Against:
    return Against(
        run, difference, p_holm, _verdict(difference, p_holm, a.metric), by_study(a, b), _right_or_wrong(a, b)
    )


def _verdict(difference: PairedDifference, p_holm: float, card: Metric) -> Verdict:
    if math.isnan(difference.difference):
        return "undefined"
    if not difference.patients:
        return "equal"
    if p_holm < ALPHA:
        return "better" if (difference.difference > 0) == (card.direction == "higher") else "worse"
    return "too few" if difference.too_few else "unclear"


def by_study(a: Tally, b: Tally) -> ByStudy | None:
    """Studies that b does better, equally or worse; None when a single study has no value of its own."""
    if not a.metric.by_pair:
        return None
    mine, yours = a.by_pair, b.by_pair
    known = ~(np.isnan(mine) | np.isnan(yours))
    gain = (yours - mine)[known] * (1 if a.metric.direction == "higher" else -1)
    slack = SLACK * np.maximum(np.abs(mine), np.abs(yours))[known]
    win, lose = int((gain > slack).sum()), int((gain < -slack).sum())
    return ByStudy(win, len(gain) - win - lose, lose)


def _right_or_wrong(a: Tally, b: Tally) -> McNemar | None:
    """McNemar's test where the metric is a share of studies: a mean of zeros and ones, known of every study."""
    if not all(tally.value_of is mean_of and tally.defined.all() for tally in (a, b)):
        return None
    mine, yours = a.by_pair, b.by_pair
    if not (np.isin(mine, (0, 1)).all() and np.isin(yours, (0, 1)).all()):
        return None
    right = 1 if a.metric.direction == "higher" else 0
    return mcnemar(mine == right, yours == right)


def ranks(values: Sequence[float], direction: Literal["higher", "lower"]) -> list[int | None]:
    """1 for the best; equal values share the better rank; None for not-a-number."""
    signed = np.array(values, dtype=np.float64) * (1 if direction == "higher" else -1)
    slack = SLACK * np.abs(signed)
    return [
        None if math.isnan(one) else 1 + int((signed > one + margin).sum())
        for one, margin in zip(signed.tolist(), slack.tolist(), strict=True)
    ]


def _labels(folders: Sequence[Path]) -> list[str]:
    """Short names that tell the runs apart: the folder's name, else its path, else a number behind it."""
    names = [folder.resolve().name for folder in folders]
    names = [name if names.count(name) == 1 else str(folder) for name, folder in zip(names, folders, strict=True)]
    return [f"{name} ({names[:k].count(name) + 1})" if names[:k].count(name) else name for k, name in enumerate(names)]


def _write(
    out: Path,
    result: ComparisonResult,
    runs: Sequence[ScoredRun],
    margins: Mapping[str, float],
    minimum_patients: int,
    metrics: Sequence[str],
    trials: int,
    seed: int,
) -> None:
    """Write comparison.json; a finished comparison of the same content is left as it is."""
    config: dict[str, Any] = {
        "runs": [str(run.folder) for run in runs],
        # A run that was scored again is another comparison, though its folder has the same name.
        "content": [hashlib.sha256(read_bytes(run.folder / INDEX)).hexdigest()[:16] for run in runs],
        "noninferior": dict(margins),
        "minimum_patients": minimum_patients,
        "metrics": list(metrics),
        "trials": trials,
    }
    if finished(out, config, seed=seed):
        return
    with Run.open(out, config, seed=seed) as run:
        run.write(RESULT, result.to_json())
