"""Tables of a preference study over its seeds: gain, report length and cost of alignment, and its audits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cxrlab.core.json_values import nan_if_none, plain
from cxrlab.studies.over_seeds import excludes_zero, number_at, over_seeds, value_at

if TYPE_CHECKING:
    from cxrlab.studies.preference import AlignmentVariant

ALPHA = 0.05
Record = Mapping[str, Any]


def alignment_table(
    variants: Mapping[str, AlignmentVariant], seeds: Sequence[int], metrics: Sequence[str], trials: Sequence[Record]
) -> dict[str, Any]:
    """Content of preferences.json: each variant's figures, as mean with Student's interval over seeds.

    Args:
        variants: By name.
        seeds: Of the study.
        metrics: Columns.
        trials: Lines of trials.jsonl: variant, seed, summary of the pairs and content of preference.json.
    """
    by_id = {(str(trial["variant"]), int(trial["seed"])): trial for trial in trials}
    rows = {}
    for name, variant in variants.items():
        own = [by_id[name, seed] for seed in seeds]
        rows[name] = {
            "changes": variant.changes,
            "published": dict(variant.published),
            "metrics": {
                metric: {
                    **{side: _over(own, side, metric, "value") for side in ("before", "after")},
                    **_change(own, "difference", metric),
                }
                for metric in metrics
            },
            **_lengths(own),
            **_costs(own),
        }
    first = trials[0]["preference"]["difference"]
    return {
        "seeds": list(seeds),
        "metrics": list(metrics),
        "directions": {metric: first[metric]["direction"] for metric in metrics},
        "n": max(int(trial["preference"]["n"]) for trial in trials),
        "patients": max(int(trial["preference"]["patients"]) for trial in trials),
        "variants": rows,
    }


def _over(trials: Sequence[Record], *keys: str) -> dict[str, Any]:
    """A number of preference.json over seeds."""
    return over_seeds(number_at(trial["preference"], *keys) for trial in trials)


def _change(trials: Sequence[Record], *keys: str) -> dict[str, Any]:
    """The change over seeds, and of each seed with its paired interval by patient."""
    by_seed = []
    for trial in trials:
        one = {key: number_at(trial["preference"], *keys, key) for key in ("difference", "low", "high")}
        by_seed.append({"seed": trial["seed"], **plain(one), "excludes_zero": excludes_zero(one["low"], one["high"])})
    return {"difference": _over(trials, *keys, "difference"), "by_seed": by_seed}


def _lengths(trials: Sequence[Record]) -> dict[str, Any]:
    """Words per report before, after and in the reference; each ratio is one of means."""
    reference = [number_at(trial["preference"], "length", "reference") for trial in trials]
    words = {
        side: [number_at(trial["preference"], "length", "words", side) for trial in trials]
        for side in ("before", "after")
    }
    ratios = {
        side: over_seeds(own / whole if whole else math.nan for own, whole in zip(counts, reference, strict=True))
        for side, counts in words.items()
    }
    return {
        "words": {side: over_seeds(counts) for side, counts in {**words, "reference": reference}.items()},
        "length_ratio": ratios,
    }


def _costs(trials: Sequence[Record]) -> dict[str, Any]:
    """Drift, closed questions, and what the model was trained on."""
    accuracy, error = (
        {side: _over(trials, "questions", key, side) for side in ("before", "after")}
        for key in ("accuracy", "calibration_error")
    )
    questions = [value_at(trial["preference"], "questions", "calibration_error") for trial in trials]
    rise = over_seeds(number_at(one, "after") - number_at(one, "before") for one in questions)
    return {
        "drift": {key: _over(trials, "drift", key) for key in ("kl_report", "kl_token")},
        "accuracy": {**accuracy, **_change(trials, "questions", "accuracy")},
        "calibration_error": {**error, "difference": rise},
        "pairs": over_seeds(nan_if_none(trial["pairs"]["kept"]) for trial in trials),
        "chosen_longer": over_seeds(nan_if_none(trial["pairs"]["chosen_longer"]) for trial in trials),
        "step": _over(trials, "selection", "step"),
        "steps": _over(trials, "selection", "of"),
    }


def robustness_table(
    variants: Mapping[str, AlignmentVariant], seeds: Sequence[int], audits: Mapping[tuple[str, int], Record]
) -> dict[str, Any]:
    """Content of robustness_seeds.json.

    Args:
        variants: By name.
        seeds: Of the study.
        audits: Variant and seed → content of robustness.json of its start ("a") against the aligned model ("b").

    Returns:
        For each variant, condition and quantity: start and aligned model, their difference under attack and the
        difference of their drops, as mean over seeds with Student's interval, and per seed with its paired interval
        and corrected p.
    """
    rows = {}
    for name, variant in variants.items():
        own = [audits[name, seed] for seed in seeds]
        pairs = [audit["comparison"]["a:b"] for audit in own]
        shared = [key for key in pairs[0]["conditions"] if all(key in pair["conditions"] for pair in pairs)]
        rows[name] = {
            "changes": variant.changes,
            "equal_clean": [pair["equal_clean"] for pair in pairs],
            "clean": _clean(own),
            "conditions": {key: _condition([pair["conditions"][key] for pair in pairs], seeds) for key in shared},
            "flips": {key: [pair["flips"].get(key) for pair in pairs] for key in shared},
            "transfer": {key: _transfer([pair["transfer"].get(key) for pair in pairs]) for key in shared},
        }
    first = next(iter(audits.values()))
    return {
        "seeds": list(seeds),
        "n": first["comparison"]["a:b"]["n"],
        "patients": first["comparison"]["a:b"]["patients"],
        "threat": first["threat"],
        "warnings": sorted(line for one in audits.values() for line in one["warnings"]),  # repeats count audits
        "variants": rows,
    }


def _clean(audits: Sequence[Record]) -> dict[str, Any]:
    """Every quantity on clean images, of the start and of the aligned model."""
    models = [{model["key"]: model["clean"] for model in audit["models"].values()} for audit in audits]
    names = [name for name in models[0]["a"] if all(name in one[key] for one in models for key in "ab")]
    return {
        name: {
            role: over_seeds(one[key][name]["value"] for one in models)
            for key, role in (("a", "start"), ("b", "aligned"))
        }
        for name in names
    }


def _condition(audits: Sequence[Record], seeds: Sequence[int]) -> dict[str, Any]:
    """Every quantity under one condition."""
    found = {}
    for name in [name for name in audits[0] if all(name in audit for audit in audits)]:
        rows = [audit[name] for audit in audits]
        found[name] = {
            "start": over_seeds(row["a"] for row in rows),
            "aligned": over_seeds(row["b"] for row in rows),
            "difference": _tested(rows, "difference", seeds),
            "smallest_detectable": over_seeds(row.get("smallest_detectable") for row in rows),
        }
        if all("drop" in row for row in rows):
            found[name]["drop"] = _tested([row["drop"] for row in rows], "value", seeds)
    return found


def _tested(rows: Sequence[Record], key: str, seeds: Sequence[int]) -> dict[str, Any]:
    """A change over seeds and per seed, and in how many seeds it is significant after correction."""
    by_seed = [
        {"seed": seed, "value": row[key], "low": row["low"], "high": row["high"], "p_holm": row.get("p_holm")}
        for seed, row in zip(seeds, rows, strict=True)
    ]
    clear = [row for row in by_seed if row["p_holm"] is not None and row["p_holm"] < ALPHA]
    signs = {nan_if_none(row["value"]) > 0 for row in clear}
    return {**over_seeds(row[key] for row in rows), "by_seed": by_seed, "clear": len(clear), "same_way": len(signs) < 2}


def _transfer(rows: Sequence[Record | None]) -> dict[str, Any]:
    """Share of the harm that transfers, start → aligned and back."""
    ways = {"a_to_b": "start_to_aligned", "b_to_a": "aligned_to_start"}
    return {
        name: over_seeds(number_at(row, way, "ratios", "findings.f1", "value") for row in rows)
        for way, name in ways.items()
    }
