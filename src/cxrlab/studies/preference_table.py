"""The figures of a study of alignment over its seeds: what was gained, how long reports became, what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cxrlab.core.json_values import nan_if_none, plain
from cxrlab.studies.over_seeds import over_seeds
from cxrlab.studies.preference_config import PreferenceStudyConfig

Trial = Mapping[str, Any]
_SIDES = ("before", "after")


def table(config: PreferenceStudyConfig, trials: Sequence[Trial]) -> dict[str, Any]:
    """The content of preferences.json: each variant's figures, as mean with Student's interval over seeds.

    Args:
        config: Settings.
        trials: Lines of trials.jsonl: variant, seed, what the pairs are like and what preference.json says.
    """
    home = {(str(trial["variant"]), int(trial["seed"])): trial for trial in trials}
    rows = {}
    for name, variant in config.chosen().items():
        seeds = [home[name, seed] for seed in config.seeds]
        rows[name] = {
            "changes": variant.changes,
            "published": dict(variant.published),
            "metrics": {metric: _metric(metric, seeds) for metric in config.metrics},
            **_lengths(seeds),
            **_costs(seeds),
        }
    said = trials[0]["preference"]["difference"]
    return {
        "seeds": list(config.seeds),
        "metrics": list(config.metrics),
        "directions": {metric: said[metric]["direction"] for metric in config.metrics},
        "n": max(int(trial["preference"]["n"]) for trial in trials),
        "patients": max(int(trial["preference"]["patients"]) for trial in trials),
        "variants": rows,
    }


def _metric(metric: str, seeds: Sequence[Trial]) -> dict[str, Any]:
    """One metric before, after and its change."""
    sides = {side: _over(_told(trial, side, metric, "value") for trial in seeds) for side in _SIDES}
    return {**sides, **_change(seeds, "difference", metric)}


def _change(seeds: Sequence[Trial], *keys: str) -> dict[str, Any]:
    """The change over seeds, and of each seed with its paired interval by patient."""
    by_seed = []
    for trial in seeds:
        one = {key: _told(trial, *keys, key) for key in ("difference", "low", "high")}
        by_seed.append({"seed": trial["seed"], **plain(one), "excludes_zero": excludes_zero(one["low"], one["high"])})
    return {"difference": _over(_told(trial, *keys, "difference") for trial in seeds), "by_seed": by_seed}


def excludes_zero(low: float, high: float) -> bool | None:
    """Whether an interval lies on one side of 0; None where there is no interval."""
    return None if math.isnan(low) or math.isnan(high) else low > 0 or high < 0


def _lengths(seeds: Sequence[Trial]) -> dict[str, Any]:
    """Words a report before, after and in the reference; the ratio is that of the means."""
    reference = [_told(trial, "length", "reference") for trial in seeds]
    words = {side: [_told(trial, "length", "words", side) for trial in seeds] for side in _SIDES}
    ratios = {
        side: [count / whole if whole else math.nan for count, whole in zip(counts, reference, strict=True)]
        for side, counts in words.items()
    }
    return {
        "words": {side: _over(values) for side, values in {**words, "reference": reference}.items()},
        "length_ratio": {side: _over(values) for side, values in ratios.items()},
    }


def _costs(seeds: Sequence[Trial]) -> dict[str, Any]:
    """Drift, closed questions, and what the model learnt from."""
    asked, error = ("questions", "accuracy"), ("questions", "calibration_error")
    worse = [_told(trial, *error, "after") - _told(trial, *error, "before") for trial in seeds]
    return {
        "drift": {key: _over(_told(trial, "drift", key) for trial in seeds) for key in ("kl_report", "kl_token")},
        "accuracy": {**_sides(seeds, *asked), **_change(seeds, *asked)},
        "calibration_error": {**_sides(seeds, *error), "difference": _over(worse)},
        "pairs": _over(nan_if_none(trial["pairs"]["kept"]) for trial in seeds),
        "chosen_longer": _over(nan_if_none(trial["pairs"]["chosen_longer"]) for trial in seeds),
        "step": _over(_told(trial, "selection", "step") for trial in seeds),
        "steps": _over(_told(trial, "selection", "of") for trial in seeds),
    }


def _sides(seeds: Sequence[Trial], *keys: str) -> dict[str, Any]:
    return {side: _over(_told(trial, *keys, side) for trial in seeds) for side in _SIDES}


def _over(values: Iterable[float]) -> dict[str, Any]:
    found: dict[str, Any] = plain(over_seeds(list(values)))
    return found


def _told(trial: Trial, *keys: str) -> float:
    """A number of preference.json; not-a-number where it was not measured."""
    found: Any = trial["preference"]
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return nan_if_none(found)
