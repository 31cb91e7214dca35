"""What the watermark shows: in marked and unmarked reports, enriched, in other words, and in the copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cxrlab.evaluation.score_inputs import read_predictions
from cxrlab.extraction.defence.adaptive import rewrite
from cxrlab.extraction.defence.watermark import Watermark
from cxrlab.extraction.defence.watermark_test import queries_needed, reports_for, watermark_test
from cxrlab.extraction.enrich import enrich
from cxrlab.extraction.oracles import load_oracle

PREDICTIONS = "predictions"  # key of an extraction's result: where the copy's reports lie in its run folder


def watermark_evidence(
    reports: Sequence[str], key: bytes, copies: Mapping[str, tuple[Path, Mapping[str, Any]]], seed: int
) -> dict[str, Any]:
    """The test on every kind of text.

    Args:
        reports: What the unmarked model wrote for benign images.
        key: The secret.
        copies: Attack → its run folder and result.
        seed: Of the oracle and of the other words.
    """
    marked = [Watermark(key).worded(report) for report in reports]
    told = {
        "unmarked": watermark_test(reports, key),
        "marked": with_needs(marked, key),
        "enriched": with_needs(_enriched(marked, seed), key),
        "reworded": with_needs([rewrite(report, seed) for report in marked], key),
    }
    return {**told, "copies": {name: _of_copy(folder, found, key) for name, (folder, found) in copies.items()}}


def _enriched(reports: Sequence[str], seed: int) -> list[str]:
    """What an attack asks for after it has mixed the oracle's descriptions into reports, with the usual shares."""
    descriptions = load_oracle("rules", seed).describe()
    keys = [str(number) for number in range(len(reports))]
    return [one.text for one in enrich(reports, descriptions, seed=seed, keys=keys)]


def with_needs(reports: Sequence[str], key: bytes) -> dict[str, Any]:
    """The test with the contexts and reports that a decision at p < 0.01 would take at this rate with power 0.9."""
    found = watermark_test(reports, key)
    needed = queries_needed(found["rate"]) if found["rate"] is not None else None
    asked = reports_for(reports, needed) if needed is not None else None
    return {**found, "contexts_needed": needed, "queries_needed": asked}


def _of_copy(folder: Path, found: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    if not found.get(PREDICTIONS):
        return {"p": None, "reason": "the attack does not tell where the reports of the copy are"}
    texts = read_predictions(folder / found[PREDICTIONS]).items.values()
    return with_needs([text for text in texts if text], key)
