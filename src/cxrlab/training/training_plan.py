"""Plan a training: take a few of its steps in a scratch folder, and multiply their time by the steps of its order."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cxrlab.core.environment import require
from cxrlab.core.errors import ConfigError
from cxrlab.core.plan import Plan, Work, scratch_folder
from cxrlab.core.runs import progress
from cxrlab.training.config import (
    OPERATIONAL,
    AdapterConfig,
    AlignConfig,
    EncoderConfig,
    FinetuneConfig,
    Optimisation,
    ReportConfig,
)
from cxrlab.training.run_folder import CACHE, KEPT, STEPS, SUMMARY, RunFolder, latest, step_of, training_run

if TYPE_CHECKING:
    from cxrlab.training.align_finetune import Prepared, Trained
    from cxrlab.training.trainer import Evaluation, Job, Order

MOST_STEPS, MOST_SECONDS = 8, 20.0  # that are taken to measure; at least two


def plan_report_training(stage: str, config: AlignConfig | FinetuneConfig, out: Path | None = None) -> Plan:
    """Time a few steps of stage 2 or 3 on its own samples.

    Args:
        stage: align or finetune.
        out: A run folder that may hold a part of the training already.
    """
    require("models")
    from cxrlab.training.align_finetune import asks, make_job, prepare_training

    command, settings = f"train {stage}", config.optimisation
    check_one_process()
    if training_done(config, out, settings.seed, OPERATIONAL):
        return Plan(command, ())
    ready = prepare_training(stage, config, asks(config))
    with scratch_folder() as folder, training_run(config, folder / "run", settings.seed, OPERATIONAL) as run:
        few = _few(ready)
        started = time.perf_counter()
        job, _ = make_job(replace(few, config=replace(config, cache=None)), run)
        prepared_s = time.perf_counter() - started
        cached = sum(file.stat().st_size for file in (run.folder / CACHE).rglob("*") if file.is_file())
        timed = time_steps(job, settings, run)
        work = [timed.work(ready.order.steps, steps_done(out))]
        files, images = len(getattr(ready.dataset, "files", ())), len(getattr(few.dataset, "files", ()))
        disk = 0.0
        if cached and images:
            number = images + len(getattr(few.validated, "files", ()))
            whole = files + len(getattr(ready.validated, "files", ()))
            work.insert(0, Work("images into the cache", "image", whole, prepared_s / number, measured=number))
            disk += cached / number * whole
        if job.evaluation is not None and few.validated is not None and ready.validated is not None:
            each = timed.evaluation_s * len(ready.validated) / len(few.validated)
            work.append(Work("validations", "validation", evaluations(ready.order.steps, job.evaluation), each))
        disk += training_disk(job.module, config)
    return Plan(
        command,
        tuple(work),
        estimated_gb=ready.needed.whole / 1e9,
        disk_gb=disk / 1e9,
        facts={
            "samples": len(ready.dataset),
            "samples_per_step": ready.order.step,
            "trained_weights": sum(value.numel() for value in job.module.parameters() if value.requires_grad),
            "tokens_of_the_longest_sample": ready.dataset.longest,
        },
        left_out=("reading the corpora, loading the model, and writing checkpoints.",),
    )


def plan_encoder_training(config: EncoderConfig, out: Path | None = None) -> Plan:
    """Time a few steps of stage 1 on its own pairs."""
    require("models")
    from cxrlab.training.encoder import encoder_job, in_one_batch, prepare_encoder

    settings = config.optimisation
    check_one_process()
    if config.objective == "findings":
        raise ConfigError("--plan measures contrastive training; with --objective findings leave it out.")
    if training_done(config, out, settings.seed, OPERATIONAL):
        return Plan("train encoder", ())
    ready = prepare_encoder(config)
    scratch = replace(ready, config=replace(config, cache=None))
    with scratch_folder() as folder, training_run(config, folder / "run", settings.seed, OPERATIONAL) as run:
        started = time.perf_counter()
        job = encoder_job(scratch, run, first_rows(ready.order))
        prepared_s = time.perf_counter() - started
        cached = sum(file.stat().st_size for file in (run.folder / CACHE).rglob("*") if file.is_file())
        timed = time_steps(job, in_one_batch(settings), run)
    samples = [sample for source in ready.sources for sample in source.samples]
    images = len({image for sample in samples for image in sample.images})
    decoded = len(job.rows.images)  # type: ignore[attr-defined]
    work = [timed.work(ready.order.steps, steps_done(out))]
    if cached:
        work.insert(0, Work("images into the cache", "image", images, prepared_s / decoded, measured=decoded))
    weights = sum(value.numel() for value in ready.module.parameters())
    return Plan(
        "train encoder",
        tuple(work),
        estimated_gb=ready.needed.whole / 1e9,
        disk_gb=(cached / decoded * images + 4 * weights * 2 + (KEPT + 1) * 12 * weights) / 1e9,
        facts={"samples": len(samples), "samples_per_step": ready.order.step, "trained_weights": weights},
        left_out=("reading the corpora, loading the encoders, validations, and writing checkpoints.",),
    )


def training_done(config: Any, out: Path | None, seed: int, operational: tuple[str, ...]) -> bool:
    """Whether the training of a run folder has finished; what the training would refuse to continue is refused."""
    found = progress(out, config, seed=seed, operational=operational)
    return found == "finished" or (out is not None and (out / SUMMARY).is_file())


def steps_done(out: Path | None) -> int:
    """The step from which a stopped training would continue."""
    found = latest(out / STEPS) if out is not None and (out / STEPS).is_dir() else None
    return step_of(found) if found else 0


def check_one_process() -> None:
    """A plan is measured by one process."""
    from cxrlab.training.distributed import process_count

    if (count := process_count()) > 1:
        raise ConfigError(f"--plan measures one process and {count} were launched; call cxrlab without a launcher.")


def evaluations(steps: int, evaluation: Evaluation) -> int:
    """Number of evaluations during so many steps."""
    every = evaluation.every or steps
    return steps // every + bool(steps % every) + evaluation.first


def first_rows(order: Order) -> list[int]:
    """The distinct rows of the steps that are taken to measure, and of the batches that are read ahead."""
    return sorted(set(replace(order, steps=min(order.steps, MOST_STEPS + 2))))


def with_images_of(dataset: Trained, rows: list[int]) -> Trained:
    """The same samples with the image files of some of them alone; the others have none, or the first of these."""
    from cxrlab.training.image_text import ImageTextDataset

    inside = dataset.image_of[rows] >= 0
    used, place = np.unique(dataset.image_of[rows][inside], return_inverse=True)
    files = tuple(dataset.files[number] for number in used)
    other_family = isinstance(dataset, ImageTextDataset)
    numbers = np.where(dataset.image_of >= 0, 0 if other_family else -1, -1)
    chosen = numbers[rows]
    chosen[inside] = place.reshape(-1)
    numbers[rows] = chosen
    if isinstance(dataset, ImageTextDataset):
        return replace(dataset, image_of=numbers, files=files, sizes=tuple(dataset.sizes[number] for number in used))
    return replace(dataset, image_of=numbers, files=files)


def _few(ready: Prepared) -> Prepared:
    """The same training with the images of its first steps, and of two batches of the validation."""
    from cxrlab.training.align_finetune import asks
    from cxrlab.training.image_text import load_image_text
    from cxrlab.training.report_dataset import ReportDataset, load_dataset

    validated = ready.validated
    if ready.held_out is not None:
        settings, start = ready.config.optimisation, ready.start
        load: Any = load_dataset if isinstance(validated, ReportDataset) else load_image_text
        few = replace(ready.held_out, samples=ready.held_out.samples[: 2 * settings.batch_size])
        validated = load([few], start.model, start.processor, ready.config.prompts, settings, asks(ready.config))
    return replace(ready, dataset=with_images_of(ready.dataset, first_rows(ready.order)), validated=validated)


def training_disk(module: Any, config: ReportConfig) -> float:
    """Bytes of the result, and of the checkpoints while the training runs: weights with two numbers of AdamW each."""
    trained = sum(value.numel() for value in module.parameters() if value.requires_grad)
    result = 4 * trained
    if not (isinstance(config, AdapterConfig) and config.lora_rank):
        number = 2 if config.optimisation.precision == "bfloat16" else 4
        result = number * sum(value.numel() for value in module.parameters())
    validation = getattr(config, "validation", None)
    best = validation is not None and validation.every is not None and validation.n != 0
    return float(result * (1 + best) + (KEPT + 1) * 12 * trained)


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, of what the first took longer than the others, and of one evaluation."""

    once_s: float
    seconds_each: float
    steps: int
    evaluation_s: float = 0.0

    def work(self, steps: int, done: int = 0) -> Work:
        """A training of so many steps."""
        return Work("training steps", "step", steps, self.seconds_each, done, self.once_s, self.steps)


@dataclass
class Clock:
    """Seconds of consecutive steps; `enough` says when no more need be taken."""

    now: Callable[[], float] = time.perf_counter
    ends: list[float] = field(default_factory=list)

    def tick(self) -> None:
        """The end of a step, or the start of the first."""
        self.ends.append(self.now())

    @property
    def enough(self) -> bool:
        """Whether two steps or more took long enough."""
        steps = len(self.ends) - 1
        return steps >= MOST_STEPS or (steps >= 2 and self.ends[-1] - self.ends[0] > MOST_SECONDS)

    def steps(self, evaluation_s: float = 0.0) -> StepTime:
        """The mean of all steps but the first."""
        each = np.diff(self.ends)
        rest = float(each[1:].mean()) if len(each) > 1 else float(each[0])
        return StepTime(max(0.0, float(each[0]) - rest), rest, len(each), evaluation_s)


def time_steps(job: Job, settings: Optimisation, run: RunFolder) -> StepTime:
    """Take a few steps of a job, and one evaluation; no checkpoint is written."""
    import torch
    from transformers import TrainerCallback

    from cxrlab.training.trainer import ExactTrainer, fast_kernels

    clock = Clock()

    def now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    clock.now = now

    class Stop(TrainerCallback):
        """Ends the training after a few steps, without a checkpoint."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            clock.tick()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            clock.tick()
            control.should_training_stop = clock.enough or state.global_step >= state.max_steps
            control.should_save = False
            return control

    evaluation = job.evaluation
    trainer = (job.trainer_class or ExactTrainer)(replace(job, evaluation=None), settings, run)
    trainer.add_callback(Stop())
    with fast_kernels(settings):
        trainer.train()
    spent = 0.0
    if evaluation is not None:
        start = now()
        with torch.random.fork_rng(), torch.no_grad(), trainer.accelerator.autocast():
            job.module.eval()
            evaluation.measure(job.module, 0)
        spent = now() - start
    return clock.steps(spent)
