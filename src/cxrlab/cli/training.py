"""`cxrlab train align` and `cxrlab train finetune`: stages 2 and 3."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.cli.result import Result
from cxrlab.training.config import AlignConfig, FinetuneConfig

if TYPE_CHECKING:
    from cxrlab.training.run_folder import TrainingResult


def align(config: AlignConfig, out: Path, seed: int | None = None) -> Result:
    """Train a new projector between a frozen vision encoder and a frozen language model (stage 2).

    The image stands alone in front of the report. RUN/checkpoint is a whole LLaVA; RUN/history.jsonl has the loss. A
    stopped run goes on at its last checkpoint and ends with the same weights; a finished one is left as it is.

    Args:
        config: Settings.
        out: The run folder.
        seed: In place of optimisation.seed: decides order, new weights and dropout.
    """
    from cxrlab.training.report_training import align as run

    return _told(run(seeded(config, seed), out), out)


def finetune(config: FinetuneConfig, out: Path, seed: int | None = None) -> Result:
    """Train projector and language model to write the report for image and indication (stage 3).

    RUN/checkpoint is an adapter with the projector in it, or with --lora-rank 0 a whole LLaVA; the model's name is then
    hf:RUN/checkpoint. A stopped run goes on at its last checkpoint and ends with the same weights; a finished one is
    left as it is.

    Args:
        config: Settings.
        out: The run folder.
        seed: In place of optimisation.seed: decides order, new weights and dropout.
    """
    from cxrlab.training.report_training import finetune as run

    return _told(run(seeded(config, seed), out), out)


def seeded(config: Any, seed: int | None) -> Any:
    """The config with another seed, where one was given."""
    return config if seed is None else replace(config, optimisation=replace(config.optimisation, seed=seed))


def _told(done: TrainingResult, out: Path) -> Result:
    left, result = sum(done.left_out.values()), out / done.checkpoint
    parts = [
        f"{done.steps:,} steps on {done.rows:,} samples, loss {done.loss:.3f}; the result is in {result}",
        f"trained {done.trained_parameters:,} of {done.parameters:,} weights",
    ]
    if left:
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in done.left_out.items())
        parts.append(f"{left:,} studies were left out ({reasons})")
    if done.cut:
        parts.append(f"{done.cut:,} reports lost their end to max_length")
    return Result("\n".join(parts), done)
