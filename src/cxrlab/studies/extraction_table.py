"""The figures of a study of extraction over its seeds: copy, victim, their ratio, and what the queries brought."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cxrlab.core.json_values import nan_if_none, plain
from cxrlab.studies.extraction_config import VICTIM, ExtractionStudyConfig, ExtractionVariant
from cxrlab.studies.over_seeds import over_seeds
from cxrlab.studies.run_study import merged

Trial = Mapping[str, Any]
SIDES = ("surrogate", "victim", "ratio", "fidelity")
# Of the transcript: how varied the victim's answers were.
VARIETY = (
    "n",
    "silent",
    "distinct_reports",
    "distinct_finding_sets",
    "distinct_finding_sets_in_100",
    "abnormal_share",
    "finding_entropy",
    "vocabulary",
    "words",
    "commonest_report",
)
_BY_ROUND = ("n", "distinct_finding_sets", "abnormal_share", "finding_entropy")
_OUTCOMES = ("a_better", "equal", "b_better", "net")


def table(config: ExtractionStudyConfig, trials: Sequence[Trial]) -> dict[str, Any]:
    """The content of extraction_seeds.json but for its comparisons: every variant's figures, mean and each seed's.

    Args:
        config: Settings.
        trials: Lines of trials.jsonl: variant, seed, folder and what extraction.json says.
    """
    home = {(str(trial["variant"]), int(trial["seed"])): trial for trial in trials}
    variants = config.chosen()
    first = home[next(iter(variants)), config.seeds[0]]["extraction"]
    return {
        "seeds": list(config.seeds),
        "metrics": list(config.metrics),
        "directions": {metric: _at(first, "surrogate", metric, "direction") for metric in config.metrics},
        "n": max(int(trial["extraction"]["n"]) for trial in trials),
        "patients": max(int(trial["extraction"]["patients"]) for trial in trials),
        "variants": {
            name: _variant(config, variant, [home[name, seed] for seed in config.seeds])
            for name, variant in variants.items()
        },
        "tables": {title: _shown(config, title) for title in config.tables},
    }


def _variant(config: ExtractionStudyConfig, variant: ExtractionVariant, seeds: Sequence[Trial]) -> dict[str, Any]:
    """One row: what was asked, what the copy came to, what the queries brought and cost."""
    rounds = sorted({key for trial in seeds for key in _at(trial, "extraction", "transcript", "rounds") or {}})
    return {
        "changes": variant.changes,
        "published": dict(variant.published),
        "asked": _asked(config, variant, seeds[0]["extraction"]),
        "folders": [trial["extract"] for trial in seeds],
        "metrics": {metric: {side: _figure(seeds, side, metric) for side in SIDES} for metric in config.metrics},
        "curve": _curve(config, seeds),
        "transcript": {
            **{key: _over(_told(trial, "transcript", key) for trial in seeds) for key in VARIETY},
            "rounds": {
                round: {key: _over(_told(trial, "transcript", "rounds", round, key) for trial in seeds)
                        for key in _BY_ROUND}
                for round in rounds
            },
        },
        **{key: _over(_told(trial, key) for trial in seeds) for key in ("spent", "answered", "refused")},
        "cost": _over(_told(trial, "cost", "amount") for trial in seeds),
        "currency": _at(seeds[0]["extraction"], "cost", "currency"),
        "untouched": [trial["extraction"].get("untouched") for trial in seeds],
    }  # fmt: skip


def _asked(config: ExtractionStudyConfig, variant: ExtractionVariant, found: Mapping[str, Any]) -> dict[str, Any]:
    """What the attack was, in the names of the study and not in folders of a machine."""
    given = merged(config.extract, variant.extract)
    named = {key: given[key] for key in ("victim", "surrogate", "pool") if key in given}
    return {**found.get("options", {}), "method": found["method"], "budget": found["budget"], **named}


def _figure(seeds: Sequence[Trial], side: str, metric: str) -> dict[str, Any]:
    """One number over seeds, and of each seed with its interval by patient."""
    by_seed = [
        {
            "seed": trial["seed"],
            **{key: _at(trial["extraction"], side, metric, key) for key in ("value", "low", "high")},
        }
        for trial in seeds
    ]
    return {**_over(_told(trial, side, metric, "value") for trial in seeds), "by_seed": by_seed}


def _curve(config: ExtractionStudyConfig, seeds: Sequence[Trial]) -> dict[str, Any]:
    """Queries → metric → figure of the copy of so many; unknown for a seed that has no such copy."""
    budgets = sorted({int(key) for trial in seeds for key in trial["extraction"]["curve"]})
    return {
        str(budget): {
            metric: _over(_told(trial, "curve", str(budget), metric, "value") for trial in seeds)
            for metric in config.metrics
        }
        for budget in budgets
    }


def _shown(config: ExtractionStudyConfig, title: str) -> dict[str, Any]:
    """A table: its rows, and published figures as a share of the published victim."""
    shown, variants = config.shown_tables()[title], config.chosen()
    own = {name: variants[name].published for name in shown.variants}
    published = {row: dict(figures) for row, figures in {**own, **shown.published}.items() if figures}
    victim = published.get(VICTIM, {})
    ratios = {
        row: {metric: figure / victim[metric] for metric, figure in figures.items() if victim.get(metric)}
        for row, figures in published.items()
        if row != VICTIM
    }
    return {
        "about": shown.about,
        "variants": list(shown.variants),
        "published": published,
        "published_ratio": {row: figures for row, figures in ratios.items() if figures},
    }


def wins(a: str, b: str, found: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> dict[str, Any]:
    """How often a judge prefers each of two variants, over seeds.

    Args:
        a: One variant.
        b: The other.
        found: What `pairwise_wins` tells, for each seed.
        seeds: In the same order.
    """
    told = {
        key: {
            **_over(nan_if_none(one[key]["value"]) for one in found),
            "by_seed": [
                {"seed": seed, **{end: one[key].get(end) for end in ("value", "low", "high", "p") if end in one[key]}}
                for seed, one in zip(seeds, found, strict=True)
            ],
        }
        for key in _OUTCOMES
    }
    return {"a": a, "b": b, "judge": found[0]["judge"], "n": [one["n"] for one in found], **told}


def _over(values: Iterable[float]) -> dict[str, Any]:
    found: dict[str, Any] = plain(over_seeds(list(values)))
    return found


def _told(trial: Trial, *keys: str) -> float:
    """A number of extraction.json; not-a-number where it was not measured."""
    return nan_if_none(_at(trial["extraction"], *keys))


def _at(found: Any, *keys: str) -> Any:
    """What stands under these keys; None where one of them is absent."""
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
