"""Tables of an extraction study over its seeds: copy, victim, their ratio, and what the queries brought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cxrlab.core.json_values import nan_if_none
from cxrlab.studies.engine import merged
from cxrlab.studies.over_seeds import number_at, over_seeds, value_at

if TYPE_CHECKING:
    from cxrlab.studies.extraction import ExtractionStudyConfig, ExtractionVariant, StudyTable

VICTIM, TEXTS = "victim", ("the", "empty", "reviews")  # rows of a table that are no variants
Record = Mapping[str, Any]
SIDES = ("surrogate", "victim", "ratio", "fidelity")
# Of the transcript: how varied the victim's answers were.
VARIETY = (
    *("n", "silent", "distinct_reports", "distinct_finding_sets", "distinct_finding_sets_in_100", "abnormal_share"),
    *("finding_entropy", "vocabulary", "words", "commonest_report"),
)
VARIETY_BY_ROUND = ("n", "distinct_finding_sets", "abnormal_share", "finding_entropy")


def extraction_table(config: ExtractionStudyConfig, trials: Sequence[Record]) -> dict[str, Any]:
    """Content of extraction_seeds.json without its comparisons: every variant's figures, mean and per seed.

    Args:
        config: Settings.
        trials: Lines of trials.jsonl: variant, seed, folder and content of extraction.json.
    """
    by_id = {(str(trial["variant"]), int(trial["seed"])): trial for trial in trials}
    variants = config.chosen()
    first = by_id[next(iter(variants)), config.seeds[0]]["extraction"]
    return {
        "seeds": list(config.seeds),
        "metrics": list(config.metrics),
        "directions": {metric: value_at(first, "surrogate", metric, "direction") for metric in config.metrics},
        "n": max(int(trial["extraction"]["n"]) for trial in trials),
        "patients": max(int(trial["extraction"]["patients"]) for trial in trials),
        "variants": {
            name: _variant_row(config, variant, [by_id[name, seed] for seed in config.seeds])
            for name, variant in variants.items()
        },
        "tables": {title: _table(table, variants) for title, table in config.checked_tables().items()},
    }


def _variant_row(config: ExtractionStudyConfig, variant: ExtractionVariant, trials: Sequence[Record]) -> dict[str, Any]:
    """One row: what was asked, what the copy came to, what the queries brought and cost."""
    found = [trial["extraction"] for trial in trials]
    rounds = sorted({key for one in found for key in value_at(one, "transcript", "rounds") or {}})
    budgets = sorted({int(key) for one in found for key in one["curve"]})
    # The attack in the names of the study, not in folders of a machine.
    given = merged(config.extract, variant.extract)
    named = {key: given[key] for key in ("victim", "surrogate", "pool") if key in given}
    asked = {**found[0].get("options", {}), "method": found[0]["method"], "budget": found[0]["budget"], **named}

    def over(*keys: str) -> dict[str, Any]:
        return over_seeds(number_at(one, *keys) for one in found)

    def by_seed(side: str, metric: str) -> list[dict[str, Any]]:
        """Each seed with its interval by patient."""
        ends = ("value", "low", "high")
        return [
            {"seed": trial["seed"], **{end: value_at(trial["extraction"], side, metric, end) for end in ends}}
            for trial in trials
        ]

    return {
        "changes": variant.changes,
        "published": dict(variant.published),
        "asked": asked,
        "folders": [trial["extract"] for trial in trials],
        "metrics": {
            metric: {side: {**over(side, metric, "value"), "by_seed": by_seed(side, metric)} for side in SIDES}
            for metric in config.metrics
        },
        # Queries → figures of the copy after so many; unknown for a seed without such a copy.
        "curve": {
            str(budget): {metric: over("curve", str(budget), metric, "value") for metric in config.metrics}
            for budget in budgets
        },
        "transcript": {
            **{key: over("transcript", key) for key in VARIETY},
            "rounds": {
                one: {key: over("transcript", "rounds", one, key) for key in VARIETY_BY_ROUND} for one in rounds
            },
        },
        **{key: over(key) for key in ("spent", "answered", "refused")},
        "cost": over("cost", "amount"),
        "currency": value_at(found[0], "cost", "currency"),
        "untouched": [one.get("untouched") for one in found],
    }


def _table(table: StudyTable, variants: Mapping[str, ExtractionVariant]) -> dict[str, Any]:
    """A table: its rows, and published figures as a share of the published victim."""
    own = {name: variants[name].published for name in table.variants}
    published = {row: dict(figures) for row, figures in {**own, **table.published}.items() if figures}
    victim = published.get(VICTIM, {})
    ratios = {
        row: {metric: figure / victim[metric] for metric, figure in figures.items() if victim.get(metric)}
        for row, figures in published.items()
        if row != VICTIM
    }
    return {
        "about": table.about,
        "variants": list(table.variants),
        "published": published,
        "published_ratio": {row: figures for row, figures in ratios.items() if figures},
    }


def pairwise_row(a: str, b: str, found: Sequence[Record], seeds: Sequence[int]) -> dict[str, Any]:
    """How often a judge prefers each of two variants, over seeds.

    Args:
        a: One variant.
        b: The other.
        found: Result of `pairwise_wins` for each seed.
        seeds: In the same order.
    """
    outcomes = {
        key: {
            **over_seeds(nan_if_none(one[key]["value"]) for one in found),
            "by_seed": [
                {"seed": seed, **{end: one[key].get(end) for end in ("value", "low", "high", "p") if end in one[key]}}
                for seed, one in zip(seeds, found, strict=True)
            ],
        }
        for key in ("a_better", "equal", "b_better", "net")
    }
    return {"a": a, "b": b, "judge": found[0]["judge"], "n": [one["n"] for one in found], **outcomes}
