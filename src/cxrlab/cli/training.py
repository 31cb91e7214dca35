"""`cxrlab train align` and `cxrlab train finetune`: stages 2 and 3."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.cli.output import Result, columns
from cxrlab.evaluation.config import RetrieveConfig
from cxrlab.training.config import AlignConfig, EncoderConfig, FinetuneConfig

if TYPE_CHECKING:
    from cxrlab.evaluation.retrieve import ZeroShot
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


def train(config: EncoderConfig, out: Path, seed: int | None = None) -> Result:
    """Train a vision encoder and a text encoder to place each image beside its report (stage 1).

    A step compares all its pairs with one another, over all pieces (--optimisation.accumulate) and processes; images
    with the same report are not held against each other. RUN/checkpoint is a dual encoder; name it as
    hf:RUN/checkpoint. A stopped run goes on at its last checkpoint and ends with the same weights; a finished one
    is left as it is.

    Args:
        config: Settings.
        out: The run folder.
        seed: In place of optimisation.seed: decides order, new weights, dropout and how images are varied.
    """
    from cxrlab.training.encoder import train_encoder

    done = train_encoder(seeded(config, seed), out)
    compared, distinct = done.extra["compared"], done.extra["distinct_reports"]
    lines = [
        f"{done.steps:,} steps on {done.rows:,} images with {distinct:,} different reports; the result is in "
        f"{out / done.checkpoint}",
        f"loss {done.loss:.3f}, where guessing among {compared:,} pairs is {math.log(compared):.3f}",
    ]
    if left := sum(done.left_out.values()):
        reasons = ", ".join(f"{reason}: {count:,}" for reason, count in done.left_out.items())
        lines.append(f"{left:,} studies were left out ({reasons})")
    if done.cut:
        lines.append(f"{done.cut:,} reports lost their end to max_length")
    return Result("\n".join(lines), done)


def retrieve(config: RetrieveConfig, out: Path) -> Result:
    """Look for the report of each image among all reports, and for the image of each report.

    Recall at 1, 5 and 10 both ways with intervals by patient, beside what a random order finds (chance) and what the
    best order finds that never looks (blind), in RUN/retrieval.json; the place of every query in RUN/ranks.jsonl;
    zero-shot classification in RUN/zero_shot.json. A report with the same words counts as found; on phantoms one with
    the same exact findings is counted beside it. A stopped run is continued.

    Args:
        config: Settings.
        out: The run folder.
    """
    from cxrlab.evaluation.retrieve import RETRIEVAL
    from cxrlab.evaluation.retrieve import retrieve as run

    found = run(config, out)
    lines = [f"{found.gallery:,} images and reports ({found.distinct_texts:,} distinct) in {out / RETRIEVAL}"]
    for way, kinds in found.recalls.items():
        for kind, by_k in kinds.items():
            lines.append(f"{way.replace('_', ' ')}, same {kind}")
            rows = [
                (f"  {name}", *map(_three, (one.value, one.low, one.high, one.chance, one.blind)))
                for name, one in by_k.items()
            ]
            lines.append(columns([("", "found", "low", "high", "chance", "blind"), *rows]))
    if found.zero_shot is not None:
        lines.append(_areas(found.zero_shot))
    return Result("\n".join(lines), found)


def _areas(found: ZeroShot) -> str:
    means = {"labels": found.mean_labels, "observations": found.mean_observations}
    parts = [f"mean AUROC over {mean.n} {kind} {mean.value:.3f}" for kind, mean in means.items() if mean.n]
    return "zero-shot: " + (", ".join(parts) or "no label with both positive and negative studies")


def _three(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"
