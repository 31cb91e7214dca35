"""The result of a training: a folder that is whole or absent, and a summary."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cxrlab.core.files import make_folder, read_json
from cxrlab.core.folders import make_private, write_checksums
from cxrlab.training.run_folder import RESULT, SUMMARY, RunFolder


@dataclass(frozen=True)
class Training:
    """What a training came to; RUN/summary.json.

    Args:
        stage: encoder, align or finetune.
        checkpoint: The result, relative to the run folder.
        steps: Optimiser steps.
        samples: Samples seen, repeats counted.
        loss: Mean loss of the last line of the history.
        rows: Different samples.
        left_out: Reason → studies of the train split, or of none, that were not learnt from.
        cut: Samples whose report lost its end to `max_length`.
        trained_parameters: Weights that were trained.
        parameters: All weights.
        extra: What else a stage tells.
    """

    stage: str
    checkpoint: str
    steps: int
    samples: int
    loss: float
    rows: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    cut: int = 0
    trained_parameters: int = 0
    parameters: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)


def read_result(out: Path) -> Training:
    """What a finished run came to."""
    found = read_json(out / SUMMARY)
    loss = found.pop("loss", None)
    return Training(**found, loss=float("nan") if loss is None else float(loss))


def conclude(run: RunFolder, write: Callable[[Path], None], summary: Training) -> None:
    """Write the result, then the summary, and only then remove what a continued run would need."""
    write_result(run, write)
    run.write(SUMMARY, summary)
    run.remove_steps()


def write_result(run: RunFolder, write: Callable[[Path], None], name: str = RESULT) -> Path:
    """Write RUN/checkpoint: `write` fills a temporary folder, which is then renamed.

    Args:
        run: The run; only its first process writes.
        write: Given an empty folder.
        name: Of the folder inside the run; one that is there already is replaced.
    """
    target = run.folder / name
    if not run.writes:
        return target
    temporary = run.folder / f".{name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    write(make_folder(temporary))
    make_private(temporary)
    write_checksums(temporary)
    shutil.rmtree(target, ignore_errors=True)  # of a run that was killed between this line and its end
    os.replace(temporary, target)
    return target
