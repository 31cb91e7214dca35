"""Scored run folders for tests, without scoring any text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cxrlab.core.runs import Run
from cxrlab.evaluation.scored_runs import write_tallies
from cxrlab.metrics.base import Tally
from cxrlab.metrics.report_pairs import Batch, Pair


def batch(ids: Sequence[str], patients: Sequence[str] | None = None, reference: str = "No effusion of {}.") -> Batch:
    """One pair an id, with a reference text that names it; the patient is the id where none is given."""
    return Batch(
        [Pair(key, reference.format(key), "x", who) for key, who in zip(ids, patients or [""] * len(ids), strict=True)]
    )


def scored(folder: Path, pairs: Batch, tallies: Sequence[Tally], version: str = "") -> Path:
    """A run folder with these tallies; `version` changes what the metrics say of themselves."""
    if version:
        conventions = {"case": version}
        tallies = [replace(tally, metric=replace(tally.metric, conventions=conventions)) for tally in tallies]
    with Run.open(folder, {"made": "for a test"}) as run:
        write_tallies(run, pairs, tallies)
    return folder
