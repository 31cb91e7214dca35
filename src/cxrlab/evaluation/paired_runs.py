"""Whether scored runs may be compared at all: the same studies, references, patients and conventions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import numpy as np

from cxrlab.core.errors import ConfigError, DataError, UnknownName, nearest
from cxrlab.core.headlines import headlines
from cxrlab.evaluation.score_files import ScoredRun
from cxrlab.metrics.families import metric_names
from cxrlab.metrics.statistics.clusters import Place, place_in_memory
from cxrlab.metrics.tally import Matrix


def aligned(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """The runs with their rows in the order of the first; other studies, references or patients are refused."""
    first = runs[0]
    order = {key: place for place, key in enumerate(first.ids)}
    return [first, *(_reordered(run, first, order) for run in runs[1:])]


def _reordered(run: ScoredRun, first: ScoredRun, order: Mapping[str, int]) -> ScoredRun:
    places = {key: place for place, key in enumerate(run.ids)}
    alone = [key for key in first.ids if key not in places], [key for key in run.ids if key not in order]
    if alone[0] or alone[1]:
        raise DataError(
            f"{first.folder} and {run.folder} were not scored on the same studies: {_few(alone[0])} only in the first, "
            f"{_few(alone[1])} only in the second; score both on the same references and predictions."
        )
    if run.references != first.references:
        raise DataError(
            f"{first.folder} and {run.folder} were scored against different reference texts or findings; "
            "score both against the same references and section."
        )
    rows = np.array([places[key] for key in first.ids], dtype=np.intp)
    patients = tuple(run.patients[row] for row in rows)
    if patients != first.patients:
        raise DataError(
            f"{first.folder} and {run.folder} do not agree on which patient a study belongs to; "
            "score both with the same references file."
        )
    if np.array_equal(rows, np.arange(len(rows))):
        return run
    moved: dict[Place, Matrix] = {}
    tallies = {}
    for name, tally in run.tallies.items():
        memory = place_in_memory(tally.rows)
        if memory not in moved:
            moved[memory] = tally.rows[rows]
        tallies[name] = replace(tally, rows=moved[memory], defined=tally.defined[rows])
    return replace(run, ids=first.ids, patients=patients, tallies=tallies)


def _few(keys: Sequence[str]) -> str:
    if not keys:
        return "none"
    return f"{len(keys)} ({', '.join(keys[:3])}{', …' if len(keys) > 3 else ''})"


def _matching(wanted: str, names: Sequence[str]) -> list[str]:
    """The names that a pattern, or a group of metrics as `score` knows it, stands for; "all" is whatever there is."""
    if wanted == "all":
        return list(names)
    try:
        group: Sequence[str] = metric_names([wanted])
    except UnknownName:
        group = ()
    return [name for name in names if fnmatchcase(name, wanted) or name in group]


def comparable(
    runs: Sequence[ScoredRun], metrics: Sequence[str] = (), needed: Sequence[str] = ()
) -> tuple[list[str], dict[str, str]]:
    """Metrics that every run computed in the same way, and why the others were not compared.

    Args:
        runs: The baseline first.
        metrics: Names, patterns (`bleu*`) and groups (`coco`) to choose from them; the headlines when empty.
        needed: Names that are compared in any case. A name, pattern or need that finds nothing it could
            compare is a `ConfigError`.
    """
    names = list(dict.fromkeys(name for run in runs for name in run.tallies))
    refused = {name: why for name in names if (why := _objection(name, runs))}
    chosen = {*needed, *(() if metrics else headlines(names))}
    for wanted in [*metrics, *needed]:
        found = [wanted] if wanted in names else _matching(wanted, names) if wanted in metrics else []
        if not found:
            raise ConfigError(f"no run holds a metric '{wanted}'.{nearest(wanted, names)} They hold: {_few(names)}.")
        if all(name in refused for name in found):
            raise ConfigError(f"'{wanted}' cannot be compared: {refused[found[0]]}.")
        chosen.update(found)
    kept = [name for name in names if name in chosen and name not in refused]
    if not kept:
        told = next((f" (for example {name}: {why})" for name, why in refused.items()), "")
        raise DataError(f"the runs share no metric that was computed in the same way{told}; score them alike.")
    return kept, {name: why for name, why in refused.items() if name in chosen}


def _objection(name: str, runs: Sequence[ScoredRun]) -> str:
    """Why a metric cannot be compared; empty when it can."""
    for run in runs:
        if name not in run.tallies:
            return f"not in {run.folder}"
    first = runs[0].signatures[name]
    for run in runs[1:]:
        if run.tallies[name].metric.direction != runs[0].tallies[name].metric.direction:
            return f"higher is better in one of {runs[0].folder} and {run.folder} and lower in the other"
        other = run.signatures[name]
        if other != first:
            mine, yours = first.split("|"), other.split("|")
            differ = [part for part in mine if part not in yours], [part for part in yours if part not in mine]
            return f"computed with {' '.join(differ[0]) or 'no setting'} and with {' '.join(differ[1]) or 'no setting'}"
    return ""
