"""The audits of a study of alignment over its seeds: does alignment change how a model stands perturbed images?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cxrlab.core.files import read_json
from cxrlab.core.json_values import nan_if_none, plain
from cxrlab.studies.over_seeds import over_seeds
from cxrlab.studies.preference_config import PreferenceStudyConfig
from cxrlab.studies.preference_plan import AlignmentTrial

ALPHA = 0.05
Audit = Mapping[str, Any]


def audits_over_seeds(config: PreferenceStudyConfig, trials: Sequence[AlignmentTrial], out: Path) -> dict[str, Any]:
    """The content of robustness_seeds.json.

    Args:
        config: Settings of the study.
        trials: Every variant and seed, with the folder of its audit.
        out: Folder of the study.

    Returns:
        Of every variant, condition and quantity: start and aligned model, their difference under attack and the
        difference of their drops, each as mean over seeds with Student's interval, and of each seed with its paired
        interval and corrected p.
    """
    found = {(trial.variant, trial.seed): _read(out / str(trial.robustness)) for trial in trials if trial.robustness}
    variants = {
        name: {"changes": variant.changes, **_variant([found[name, seed] for seed in config.seeds], config.seeds)}
        for name, variant in config.chosen().items()
    }
    first = next(iter(found.values()))
    return {
        "seeds": list(config.seeds),
        "n": first["comparison"]["a:b"]["n"],
        "patients": first["comparison"]["a:b"]["patients"],
        "threat": first["threat"],
        "warnings": sorted(line for one in found.values() for line in one["warnings"]),  # repeats tell how often
        "variants": variants,
    }


def _read(folder: Path) -> Audit:
    told: Audit = read_json(folder / "robustness.json")
    return told


def _variant(audits: Sequence[Audit], seeds: Sequence[int]) -> dict[str, Any]:
    pairs = [audit["comparison"]["a:b"] for audit in audits]
    shared = [name for name in pairs[0]["conditions"] if all(name in pair["conditions"] for pair in pairs)]
    return {
        "equal_clean": [pair["equal_clean"] for pair in pairs],
        "clean": _clean(audits),
        "conditions": {name: _condition([pair["conditions"][name] for pair in pairs], seeds) for name in shared},
        "flips": {name: [pair["flips"].get(name) for pair in pairs] for name in shared},
        "transfer": {name: _transfer([pair["transfer"].get(name) or {} for pair in pairs]) for name in shared},
    }


def _clean(audits: Sequence[Audit]) -> dict[str, Any]:
    """Every quantity on clean images: the start's and the aligned model's."""
    sides = [{model["key"]: model["clean"] for model in audit["models"].values()} for audit in audits]
    names = [name for name in sides[0]["a"] if all(name in side[key] for side in sides for key in "ab")]
    return {
        name: {
            "start": _over(side["a"][name]["value"] for side in sides),
            "aligned": _over(side["b"][name]["value"] for side in sides),
        }
        for name in names
    }


def _condition(rows: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> dict[str, Any]:
    names = [name for name in rows[0] if all(name in row for row in rows)]
    told = {}
    for name in names:
        several = [row[name] for row in rows]
        told[name] = {
            "start": _over(one["a"] for one in several),
            "aligned": _over(one["b"] for one in several),
            "difference": _change(several, "difference", seeds),
            "smallest_detectable": _over(one.get("smallest_detectable") for one in several),
        }
        if all("drop" in one for one in several):
            told[name]["drop"] = _change([one["drop"] for one in several], "value", seeds)
    return told


def _change(rows: Sequence[Mapping[str, Any]], key: str, seeds: Sequence[int]) -> dict[str, Any]:
    """A change over seeds, of each seed, and in how many it is clear after correction."""
    by_seed = [
        {"seed": seed, "value": row[key], "low": row["low"], "high": row["high"], "p_holm": row.get("p_holm")}
        for seed, row in zip(seeds, rows, strict=True)
    ]
    clear = [row for row in by_seed if row["p_holm"] is not None and row["p_holm"] < ALPHA]
    ways = {1 if nan_if_none(row["value"]) > 0 else -1 for row in clear}
    return {**_over(row[key] for row in rows), "by_seed": by_seed, "clear": len(clear), "same_way": len(ways) < 2}


def _transfer(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Share of the harm that goes along, start → aligned and back."""
    ways = {"a_to_b": "start_to_aligned", "b_to_a": "aligned_to_start"}
    return {
        name: _over((row.get(way) or {}).get("ratios", {}).get("findings.f1", {}).get("value") for row in rows)
        for way, name in ways.items()
    }


def _over(values: Iterable[Any]) -> dict[str, Any]:
    """Mean over seeds with its interval, and the values themselves."""
    known = [math.nan if value is None else nan_if_none(value) for value in values]
    found = over_seeds(known)
    told: dict[str, Any] = plain(found)
    return told
