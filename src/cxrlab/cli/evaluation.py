"""`cxrlab generate`: predictions of a model on a corpus."""

from __future__ import annotations

from pathlib import Path

from cxrlab.cli.result import Result
from cxrlab.evaluation.config import GenerateConfig


def generate(config: GenerateConfig, out: Path) -> Result:
    """Write a report for every study of a split into RUN/predictions.jsonl.

    A stopped run is continued by running the command again; a finished one is left as it is. A
    study whose image is missing or unreadable, or for which the model refuses to write, gets no
    prediction: it is listed in RUN/summary.json, and the command fails with the count unless
    --allow-missing is given. Up to --control-studies studies are answered again with wrong images;
    a guarded server takes them for an attack, so leave them out there: --control-studies 0.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.evaluation.generate import PREDICTIONS, SUMMARY
    from cxrlab.evaluation.generate import generate as run

    done = run(config, out)
    lost = f"; without a report: {len(done.missing):,}, see {out / SUMMARY}" if done.missing else ""
    unanswered = [kind for kind, count in done.controls.items() if not count] if config.control_studies else []
    refused = f"; not answered with wrong images: {', '.join(unanswered)}" if unanswered else ""
    cautions = "".join(f"\ncaution: {one}" for one in done.cautions)
    return Result(f"{done.predictions:,} reports in {out / PREDICTIONS}{lost}{refused}{cautions}", done)
