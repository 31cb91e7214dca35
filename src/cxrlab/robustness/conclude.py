"""From evidence to robustness.json: every model under every condition, and the models against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cxrlab.core.json_values import plain
from cxrlab.core.terminal import track
from cxrlab.metrics.statistics.intervals import METHOD
from cxrlab.metrics.tally import Matrix
from cxrlab.robustness.by_label import by_label
from cxrlab.robustness.compare import compare_all
from cxrlab.robustness.conditions import WORST
from cxrlab.robustness.curves import curves
from cxrlab.robustness.outcomes import TRIALS, Audit, Outcome, described
from cxrlab.robustness.tables import Evidence, Said, Table, read_evidence
from cxrlab.robustness.worst_case import SmallestEps, smallest_harmful, wrong_answers

FEW = 30  # patients; from fewer an interval is rough


def conclude_folder(
    folder: Path, names: Mapping[str, str] | None = None, *, trials: int = TRIALS, seed: int = 7
) -> dict[str, Any]:
    """The content of robustness.json from the evidence files of a run folder; see `conclude`."""
    return conclude(read_evidence(folder), names, trials=trials, seed=seed)


def conclude(
    evidence: Evidence, names: Mapping[str, str] | None = None, *, trials: int = TRIALS, seed: int = 7
) -> dict[str, Any]:
    """The content of robustness.json: plain values, null where undefined.

    Args:
        evidence: All lines of the audit.
        names: Key → name of each model; the key itself where it is not given.
        trials: Resamples of patients for every interval.
        seed: Decides resamples and swaps.
    """
    audit = Audit(evidence, trials=trials, seed=seed)
    named = _names(evidence, names or {})
    models = {named[key]: _model(audit, key) for key in track(evidence.models, "concluding")}
    first, *others = evidence.models
    compared = compare_all(audit, first, others) if others else {}
    for key, one in compared.items():
        one["names"] = {model: named[model] for model in key.split(":")}
    content = {"models": models, "comparison": compared, "controls": {}, "warnings": _warnings(audit)}
    content["interval"] = METHOD
    told: dict[str, Any] = plain(content)
    return told


def _names(evidence: Evidence, names: Mapping[str, str]) -> dict[str, str]:
    """A name for each model; one that is borne twice gets its key behind it."""
    given = {key: names.get(key, key) for key in evidence.models}
    borne = list(given.values())
    return {key: name if borne.count(name) == 1 else f"{name} ({key})" for key, name in given.items()}


def _model(audit: Audit, model: str) -> dict[str, Any]:
    clean, tables = audit.clean(model), audit.tables(model)
    outcomes = {condition: audit.outcome(table) for condition, table in tables.items()}
    told: dict[str, Any] = {"key": model, "clean": described(clean.image, None)}
    if clean.uint8 is not None:
        told["clean_uint8"] = described(clean.uint8, None)
    told |= {"attacks": {}, "corruptions": {}, "worst": {}}
    for condition, outcome in outcomes.items():
        kind = outcome.table.condition
        if kind.name == WORST:
            told["worst"][kind.eps_text] = _condition(outcome, clean)
        else:
            told[f"{kind.kind}s"][condition] = _condition(outcome, clean)
    told["labels"] = {
        condition: by_label(audit.evidence, table.image, clean.table.image, audit.resamples)
        for condition, table in tables.items()
    }
    told["smallest_eps"] = _smallest(audit, model)
    told["curves"] = curves(clean.image, outcomes.values())
    return told


def _condition(outcome: Outcome, clean: Outcome) -> dict[str, Any]:
    told = described(outcome.image, clean.image)
    if outcome.uint8 is not None:
        told["uint8"] = described(outcome.uint8, clean.uint8 or clean.image)
    return {**told, **_traced(outcome.table)}


def _traced(table: Table) -> dict[str, Any]:
    """How the attacks went, over the images of which it is known; nothing where no image was attacked."""
    known = {name: column[~np.isnan(column)] for name, column in table.trace.items()}
    found = {name: float(column.mean()) if len(column) else None for name, column in known.items()}
    if not found:
        return {}
    realised = {
        name: {"mean": found[name], "max": float(known[name].max()) if len(known[name]) else None}
        for name in ("linf", "l2")
    }
    return {"realised": realised, **{name: found[name] for name in ("passes", "broken", "zero_gradients")}}


def _smallest(audit: Audit, model: str) -> dict[str, Any]:
    """From which size on reports and answers are harmed; nothing by size without an attack."""
    clean, worst = audit.evidence.clean(model), audit.worst(model)
    harms: dict[str, Callable[[Said], Matrix]] = {
        "report": audit.scores.errors,
        "asked": partial(wrong_answers, truth=audit.evidence.truth),
    }
    found = {
        name: smallest_harmful(clean, worst, harm, f"harmed.{name}", audit.resamples) for name, harm in harms.items()
    }
    return {name: _sizes(one) for name, one in found.items()}


def _sizes(found: SmallestEps) -> dict[str, Any]:
    shares = zip(found.grid, found.sizes, found.shares, strict=True)
    return {
        "n": int((~np.isnan(found.by_study)).sum()),
        "median": found.median,
        "harmed": {text: {"eps": size, **share.to_json()} for text, size, share in shares},
    }


def _warnings(audit: Audit) -> list[str]:
    patients, found = audit.resamples.clusters.count, []
    if patients < FEW:
        found.append(f"There are few patients ({patients}); intervals from fewer than {FEW} are rough.")
    return found
