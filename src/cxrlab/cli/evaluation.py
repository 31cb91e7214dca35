"""`cxrlab generate`: predictions of a model on a corpus."""

from __future__ import annotations

from pathlib import Path

from cxrlab.cli.result import Result
from cxrlab.evaluation.config import GenerateConfig


def generate(config: GenerateConfig, out: Path) -> Result:
    """Write a report for every study of a split into RUN/predictions.jsonl.

    A stopped run is continued by running the command again; a finished one is left as it is. A
    study whose film is missing or unreadable gets no prediction: it is listed in RUN/summary.json,
    and the command fails with the count unless --allow-missing is given.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.evaluation.generate import PREDICTIONS
    from cxrlab.evaluation.generate import generate as run

    done = run(config, out)
    lost = f"; without a readable frontal film: {len(done.missing):,}" if done.missing else ""
    return Result(f"{done.predictions:,} reports in {out / PREDICTIONS}{lost}", done)
