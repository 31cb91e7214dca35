"""Trainer of every stage: Hugging Face's Trainer with exact steps and exact resume.

Exact resume: a checkpoint holds the trained weights, the optimiser, the random state and the running loss. The order of
the samples depends on the seed alone. A resumed run therefore ends with the same bytes as one that was never stopped.
"""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from cxrlab.core.errors import ConfigError, CxrlabError, RunError
from cxrlab.core.files import read_json, write_json
from cxrlab.core.randomness import generator
from cxrlab.core.terminal import track
from cxrlab.data.parallel import worker_count
from cxrlab.models.local_files import pickled_code_refused
from cxrlab.training import best_weights, sharding
from cxrlab.training.augment import image_seeds
from cxrlab.training.config import Optimisation
from cxrlab.training.distributed import (
    from_main_process,
    process_count,
    shares_weights,
    training_device,
    without_plugin,
)
from cxrlab.training.run_folder import (
    RunFolder,
    complete,
    latest,
    mark_complete,
    remove_incomplete,
    remove_old,
    resumable,
    step_of,
    weights_key,
)
from cxrlab.training.trackers import Log, tracked

WEIGHTS, METER = "trained.safetensors", "meter.json"
ITEMS, ROWS = "items", "rows"


class Rows(Protocol):
    """A data set: any batch of rows at once."""

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """The batch of these rows, by the names of the module's arguments.

        `items` is what the sum of losses is divided by. `rows`, where images are augmented, are the rows of the images;
        the module is given `seeds` in their place, another for each row and step.
        """
        ...


@dataclass(frozen=True)
class Job:
    """One training.

    Args:
        module: Takes a batch as keywords and returns the sum of the losses of its items, a scalar. Its parameters
            with `requires_grad` are trained and saved. Where it has `figures()`, these go into the history too.
        rows: The data set.
        order: Which rows at which step.
        label: Of the progress line.
        trainer_class: Subclass of `ExactTrainer` with another `training_step`.
        evaluation: What is measured on held-out studies in between.
    """

    module: nn.Module
    rows: Rows
    order: Order
    label: str = "training"
    trainer_class: type[ExactTrainer] | None = None
    evaluation: Evaluation | None = None


@dataclass(frozen=True)
class Evaluation:
    """What is measured on held-out studies during training, and by what the best step is selected.

    Args:
        measure: (module in evaluation mode, step) → numbers for the history. Every process calls it and must get the
            same numbers; it cannot disturb the random state.
        every: Steps between evaluations; the last step is evaluated always.
        first: Evaluate before the first step too, as step 0, which is never the best.
        score: The number that selects the best step, whose weights are kept; None selects none.
        larger: Whether a larger score is better.
        patience: Stop after this many evaluations in a row without a better score.
        key: A hash of the data.
    """

    measure: Callable[[Any, int], Mapping[str, float]]
    every: int | None = None
    first: bool = False
    score: str | None = None
    larger: bool = False
    patience: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class BestStep:
    """The step with the best score so far; `best_weights` has its weights."""

    step: int
    score: float


@dataclass(frozen=True)
class Fitted:
    """Steps taken, samples seen, the loss of the last line of the history, and the best step where one is selected."""

    steps: int
    samples: int
    loss: float
    best: BestStep | None = None


def fit(job: Job, settings: Optimisation, run: RunFolder, track: Sequence[str] = ()) -> Fitted:
    """Train the job's module, or resume from the last checkpoint in the run folder.

    Args:
        job: What is trained.
        settings: Of the optimisation.
        run: The run folder.
        track: Experiment trackers that get the history too.

    Raises:
        RunError: When the loss or a weight is NaN or infinite; when the run was begun with other data, from other
            weights or with another number of processes; when the checkpoint to resume from is damaged.
        KeyboardInterrupt: After Ctrl-C, once the current step is done and saved.
    """
    shared = shares_weights(settings)
    if run.writes:
        run.check_basis(
            {
                "processes": process_count(),
                "sharding": "fsdp2" if shared else None,
                "samples per step": job.order.step,
                "samples": len(job.rows),
                "data": getattr(job.rows, "key", None),
                "weights": weights_key(job.module),
                "evaluation data": job.evaluation.key if job.evaluation is not None else None,
            }
        )
    make_whole = sharding.shard(job.module, training_device()) if shared else None
    trainer = (job.trainer_class or ExactTrainer)(job, settings, run)
    start = resumable(run.steps) if run.writes else latest(run.steps)
    journal = trainer.journal
    if start:
        journal.restore(step_of(start))
    if run.writes:
        remove_incomplete(run.steps)
        run.forget_after(step_of(start) if start else -1)
        trainer.remove_unused_best_weights()
    if start and journal.out_of_patience:  # stopped early before, and killed before the result was written
        trainer.load_trained_weights(start)
        trainer.state.global_step = step_of(start)
    else:
        done = step_of(start) if start else 0
        trackers = tracked(track if run.writes else (), run.folder, settings, done)
        with journal.interruptible(), fast_kernels(settings), trackers as journal.track:
            with pickled_code_refused(start) if start else contextlib.nullcontext():
                trainer.train(resume_from_checkpoint=str(start) if start else None)
    if journal.interrupted:
        raise KeyboardInterrupt
    if make_whole is not None:
        make_whole(run.writes)
    steps = trainer.state.global_step
    return Fitted(steps, steps * job.order.step, journal.last_loss, journal.best)


class ExactTrainer(Trainer):
    """Takes the steps of a `Job`."""

    def __init__(self, job: Job, settings: Optimisation, run: RunFolder) -> None:
        from transformers.trainer_callback import PrinterCallback, ProgressCallback

        self.job, self.run = job, run
        self._trained = sharding.trained_names(job.module)
        self._shared = sharding.is_sharded(job.module)
        self.journal = Journal(self, job, settings, run)
        # The libraries warn about settings that are deliberate here.
        loggers = [logging.getLogger(name) for name in ("transformers", "accelerate")]
        levels = [logger.level for logger in loggers]
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            with without_plugin():
                super().__init__(
                    model=job.module,
                    args=arguments(settings, job.order, run.steps),
                    train_dataset=job.rows,
                    data_collator=self.collate,
                    callbacks=[self.journal],
                )
            self.remove_callback(PrinterCallback)
            self.remove_callback(ProgressCallback)
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

    @staticmethod
    def collate(batch: Any) -> Any:
        """The batch as it is: the data set returns whole batches."""
        return batch

    def _get_train_sampler(self, *_: Any) -> Any:
        return self.job.order

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, *_: Any) -> tuple[list[Any], Any]:
        """The batches of one step and the number of items in all of them, over all processes."""
        try:
            batches = [batch for _, batch in zip(range(num_batches), epoch_iterator, strict=False)]
        except CxrlabError as error:
            # A loader process wraps an error into a traceback; the error's own message is its last line.
            lines = str(error).strip().splitlines()
            if not lines or not lines[0].startswith("Caught "):
                raise
            raise type(error)(lines[-1].partition(": ")[2]) from None
        counts = [batch.pop(ITEMS) for batch in batches if ITEMS in batch]
        if not counts:
            return batches, None
        items = torch.stack([count.sum() for count in counts]).sum().to(self.args.device)
        return batches, self.accelerator.gather(items.reshape(1)).sum()

    def training_step(self, model: nn.Module, inputs: dict[str, Any], items: Any = None) -> Tensor:
        """Forward and backward of one batch; returns its share of the step's loss, detached."""
        batch = self.ready(inputs)
        with self.compute_loss_context_manager():
            loss: Tensor = model(**batch)
        if items is None:
            loss = loss / self.args.gradient_accumulation_steps
        else:
            # Processes average their gradients; the sum over all items is wanted.
            loss = loss * (self.accelerator.num_processes / items)
        self.journal.note(loss.detach())
        self.accelerator.backward(loss)
        return loss.detach()

    def ready(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The batch on the device, with a seed per image where the rows of images are given."""
        batch: dict[str, Any] = self._prepare_inputs(inputs)
        if ROWS in batch:
            batch["seeds"] = image_seeds(self.args.seed, batch.pop(ROWS), self.state.global_step)
        return batch

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Weight decay applies to matrices alone, not to biases, norms and scalars."""
        return [name for name, value in model.named_parameters() if value.dim() >= 2 and not name.endswith("bias")]

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        if not self._shared:  # sharded weights are on their devices
            super()._move_model_to_device(model, device)

    def _wrap_model(self, model: nn.Module, *arguments: Any, **named: Any) -> nn.Module:
        if self._shared:  # autocast alone: sharded layers exchange their gradients by themselves
            model = self.accelerator.prepare_model(model, device_placement=False, evaluation_mode=True)
            model._is_accelerate_prepared = True  # type: ignore[assignment]
        wrapped: nn.Module = super()._wrap_model(model, *arguments, **named)
        return wrapped

    def _save_checkpoint(self, model: nn.Module, trial: Any = None) -> None:
        self.journal.loss_check.all()  # nothing is saved when any loss so far is NaN or infinite
        weights = self._weights = sharding.trained_weights(self.job.module, keep=self.args.should_save)
        # A gradient may be NaN although the loss is finite.
        no_numbers = from_main_process(lambda: [name for name in weights if not torch.isfinite(weights[name]).all()])
        if no_numbers:
            raise RunError(
                f"the weights '{no_numbers[0]}' are no longer numbers after step {self.state.global_step}; the last "
                "checkpoint is kept. Try a lower learning_rate or a longer warmup, in a new folder."
            )
        self.state.log_history.clear()  # history.jsonl has it
        super()._save_checkpoint(model, trial)
        self._weights = {}
        self.accelerator.wait_for_everyone()
        if self.run.writes:
            folder = self.run.steps / f"checkpoint-{self.state.global_step}"
            write_json(folder / METER, self.journal.state())
            mark_complete(folder)
            remove_old(self.run.steps)
            self.remove_unused_best_weights()

    def remove_unused_best_weights(self) -> None:
        """Remove the weights of earlier best steps to which no complete checkpoint refers."""
        named = (read_json(folder / METER).get("best") for _, folder in complete(self.run.steps))
        best_weights.remove_except(self.run.steps, {one["step"] for one in named if one is not None})

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        folder = Path(str(output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        save_file(self._weights, folder / WEIGHTS)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self._shared:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        state = sharding.whole_optimiser_state(self.optimizer, keep=self.args.should_save)
        if self.args.should_save:
            torch.save(state, Path(output_dir) / OPTIMIZER_NAME)
            torch.save(self._schedule.state_dict(), Path(output_dir) / SCHEDULER_NAME)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if not self._shared:
            super()._load_optimizer_and_scheduler(checkpoint)
        elif checkpoint is not None:
            state, schedule = (
                torch.load(Path(checkpoint) / name, map_location="cpu", weights_only=True)
                for name in (OPTIMIZER_NAME, SCHEDULER_NAME)
            )
            sharding.load_optimiser_state(self.optimizer, state)
            self._schedule.load_state_dict(schedule)

    @property
    def _schedule(self) -> Any:
        return self.lr_scheduler

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        self.load_trained_weights(Path(resume_from_checkpoint))

    def load_trained_weights(self, checkpoint: Path) -> None:
        """Put the trained weights of a checkpoint into the module."""
        stored = load_file(checkpoint / WEIGHTS)
        if set(stored) != set(self._trained):
            raise RunError(f"{checkpoint} holds other weights than this model trains; choose a new folder.")
        sharding.put_weights(self.job.module, stored)


class Journal(TrainerCallback):
    """Writes the history, evaluates, checks the loss and handles Ctrl-C, as a callback of the trainer."""

    def __init__(self, trainer: ExactTrainer, job: Job, settings: Optimisation, run: RunFolder) -> None:
        self.trainer, self.job, self.settings, self.run = trainer, job, settings, run
        self.interrupted = False
        self.track: Log = lambda step, numbers: None
        self.last_loss = math.nan
        self.best: BestStep | None = None
        self._without_gain = 0  # evaluations in a row without a better score
        self._sum: Tensor | None = None  # of the losses since the last line, on the device
        self._since = 0  # step of the last line
        self._rate = settings.learning_rate
        self.loss_check = NonFiniteLossCheck(self._refuse)
        self._progress: Iterator[int] = iter(())

    def note(self, loss: Tensor) -> None:
        """Add the loss of one forward pass, a detached scalar."""
        self._sum = loss.float().clone() if self._sum is None else self._sum + loss
        self.loss_check.note(loss, self.trainer.state.global_step + 1)

    def _refuse(self, loss: float, step: int) -> None:
        raise RunError(
            f"the loss is {loss} at step {step} with a learning rate of {self._rate:.2g}; the last checkpoint is kept. "
            "Try a lower learning_rate, a longer warmup or a smaller clip, in a new folder."
        )

    def state(self) -> dict[str, Any]:
        """The running loss and the best step, which a checkpoint must hold for what follows."""
        return {
            "sum": 0.0 if self._sum is None else float(self._sum),
            "since": self._since,
            "loss": self.last_loss,
            "best": None if self.best is None else asdict(self.best),
            "without_gain": self._without_gain,
        }

    def restore(self, step: int) -> None:
        """Continue from the state in the checkpoint of this step."""
        saved = read_json(self.run.steps / f"checkpoint-{step}" / METER)
        self._sum = torch.tensor(saved["sum"], device=self.trainer.args.device)
        self._since = int(saved["since"])
        self.last_loss = math.nan if saved["loss"] is None else float(saved["loss"])
        self.best = None if saved["best"] is None else BestStep(**saved["best"])
        self._without_gain = int(saved["without_gain"])

    @property
    def out_of_patience(self) -> bool:
        """Whether training stops early."""
        evaluation = self.job.evaluation
        return evaluation is not None and 0 < (evaluation.patience or 0) <= self._without_gain

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within it Ctrl-C finishes the current step, saves and stops; a second one stops at once."""
        alone = self.trainer.args.world_size == 1 and threading.current_thread() is threading.main_thread()
        if not alone:
            yield  # several processes would stop at different steps: their last checkpoint is what is kept
            return
        before = signal.getsignal(signal.SIGINT)

        def stop(*_: Any) -> None:
            self.interrupted = True
            signal.signal(signal.SIGINT, before)

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate the start and show the progress."""
        # Once, not at every step: setting the mode of thousands of modules takes as long as a small step.
        self.job.module.train()
        if not state.global_step and self.job.evaluation is not None and self.job.evaluation.first:
            self._evaluate(self.job.evaluation, 0)
        steps = range(state.global_step, state.max_steps)
        self._progress = track(steps, self.job.label, quiet=None if self.run.writes else True)
        next(self._progress, None)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Remember the learning rate of this step: after it the schedule has moved on."""
        self._rate = float(named["optimizer"].param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """After a step: log, evaluate, stop."""
        next(self._progress, None)
        last = state.global_step >= state.max_steps
        if last or state.global_step % self.settings.log_every == 0:
            self._log(state.global_step)
        evaluation = self.job.evaluation
        if evaluation is not None and (last or (evaluation.every and state.global_step % evaluation.every == 0)):
            self._evaluate(evaluation, state.global_step)
            if self.out_of_patience:
                self._log(state.global_step)
                control.should_save = control.should_training_stop = True
        if self.interrupted:
            control.should_save = control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close the progress line."""
        for _step in self._progress:
            pass

    def _log(self, step: int) -> None:
        if self._sum is None:
            return
        mean = self.trainer.accelerator.gather(self._sum.reshape(1)).mean()
        self.last_loss = float(mean) / (step - self._since)
        self._sum, self._since = None, step
        more: Callable[[], dict[str, float]] | None = getattr(self.job.module, "figures", None)
        numbers = {
            "loss": self.last_loss,
            "learning_rate": self._rate,
            "samples": step * self.job.order.step,
            **(more() if more is not None else {}),
        }
        self.run.record({"step": step, **numbers})
        self.track(step, numbers)

    def _evaluate(self, evaluation: Evaluation, step: int) -> None:
        module = self.job.module
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        with torch.random.fork_rng(devices), torch.no_grad(), self.trainer.accelerator.autocast():
            module.eval()
            measured = evaluation.measure(module, step)
            module.train()
        numbers = {name: value if math.isfinite(value) else math.nan for name, value in measured.items()}
        if step and evaluation.score is not None:
            score, sign = numbers[evaluation.score], 1.0 if evaluation.larger else -1.0
            if not math.isnan(score) and (self.best is None or sign * score > sign * self.best.score):
                self.best, self._without_gain = BestStep(step, score), 0
                weights = sharding.trained_weights(module, keep=self.run.writes)
                if self.run.writes:
                    best_weights.keep(self.run.steps, step, weights)
            else:
                self._without_gain += 1
        self.run.record({"step": step, "evaluation": numbers})
        self.track(step, {f"eval_{name}": value for name, value in numbers.items()})
        self.trainer.accelerator.wait_for_everyone()


_MOST = 16  # pending losses; with more the oldest is waited for


class NonFiniteLossCheck:
    """Calls `refuse(loss, step)`, which raises, for a loss that is NaN or infinite.

    On a GPU the losses are copied in the background, so that no step waits for them; at most 16 are pending.
    """

    def __init__(self, refuse: Callable[[float, int], None]) -> None:
        self._refuse = refuse
        # Step, value on the CPU, whether the copy has finished, and a call that waits for it.
        self._pending: deque[tuple[int, Tensor, Callable[[], bool], Callable[[], None]]] = deque()

    def note(self, loss: Tensor, step: int) -> None:
        """Check a detached scalar; one on the CPU is checked now."""
        if loss.device.type != "cuda":
            self._check(float(loss), step)
            return
        value = torch.empty((), dtype=torch.float32, pin_memory=True)
        value.copy_(loss, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self.follow(value, event.query, event.synchronize, step)

    def follow(self, value: Tensor, arrived: Callable[[], bool], wait: Callable[[], None], step: int) -> None:
        """Check a value, and those before it, once they have arrived."""
        self._pending.append((step, value, arrived, wait))
        while self._pending and (len(self._pending) > _MOST or self._pending[0][2]()):
            self._check_first()

    def all(self) -> None:
        """Wait for every pending loss and check it."""
        while self._pending:
            self._check_first()

    def _check_first(self) -> None:
        step, value, _, wait = self._pending.popleft()
        wait()
        self._check(float(value), step)

    def _check(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            self._pending.clear()
            self._refuse(loss, step)


def arguments(settings: Optimisation, order: Order, folder: Path) -> TrainingArguments:
    """Settings of Hugging Face's Trainer; its own logging, progress and uploads are off."""
    workers = 0
    if settings.workers:  # processes that train together share the cores
        workers = max(
            1, worker_count(settings.workers * process_count(), "optimisation.workers x processes") // process_count()
        )
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulate,
        max_steps=order.steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup" if settings.schedule == "constant" else settings.schedule,
        warmup_steps=round(settings.warmup * order.steps),
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip,
        optim="adamw_torch_fused",
        bf16=settings.precision == "bfloat16",
        seed=settings.seed,
        full_determinism=settings.deterministic,
        dataloader_num_workers=workers,
        dataloader_persistent_workers=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        dataloader_drop_last=True,
        remove_unused_columns=False,
        logging_strategy="no",
        logging_nan_inf_filter=False,  # would wait for the GPU at every step; the journal checks every loss
        accelerator_config={"non_blocking": True},
        save_strategy="steps",
        save_steps=settings.save_every,
        save_total_limit=None,
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        average_tokens_across_devices=False,
        use_cpu=not torch.cuda.is_available(),
    )


@contextlib.contextmanager
def fast_kernels(settings: Optimisation) -> Iterator[None]:
    """On a GPU, choose the kernels that suit a training; the earlier choice is restored afterwards."""
    if not torch.cuda.is_available():
        yield
        return
    attention: bool = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    products = torch.get_float32_matmul_precision()
    # cuDNN's attention is planned anew for every new length of a batch, which takes longer than the step.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if settings.precision == "bfloat16":
        torch.set_float32_matmul_precision("high")  # the remaining float32 products need no more precision
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(attention)
        torch.set_float32_matmul_precision(products)


def length_multiple() -> int:
    """What the length of a batch is rounded up to: a GPU plans its kernels for each new shape, a CPU does not."""
    return 32 if torch.cuda.is_available() else 1


# Steps whose samples are sorted by length together; more would make the order less random, fewer leave more padding.
_POOL = 50


@dataclass(frozen=True)
class Part:
    """Consecutive rows with equal weight: how many, and passes per epoch (0.5 is a random half)."""

    rows: int
    passes: float = 1.0

    @property
    def drawn(self) -> int:
        """Samples of it per epoch."""
        return max(1, round(self.rows * self.passes)) if self.rows else 0


@dataclass(frozen=True)
class Order:
    """Sampler of a whole training: iterates over the row indices, step after step.

    Args:
        parts: The rows in their order in the data set.
        step: Samples per step, over all forward passes and processes.
        steps: Steps of the whole training.
        seed: Decides the order.
        lengths: Tokens of each row, to put similar lengths into one step; None shuffles freely.
    """

    parts: tuple[Part, ...]
    step: int
    steps: int
    seed: int
    lengths: NDArray[np.integer] | None = None

    def __len__(self) -> int:
        return self.step * self.steps

    def __iter__(self) -> Iterator[int]:
        done, epoch = 0, 0
        while done < self.steps:
            for rows in self.epoch(epoch)[: self.steps - done]:
                yield from rows.tolist()
                done += 1
            epoch += 1

    def epoch(self, number: int) -> NDArray[np.int64]:
        """The rows of one epoch, [steps of the epoch, samples per step]; within a step the longest come first."""
        rng = generator(self.seed, "order", number)
        drawn, start = [], 0
        for part in self.parts:
            rows = np.arange(start, start + part.rows, dtype=np.int64)
            whole, rest = divmod(part.drawn, part.rows) if part.rows else (0, 0)
            drawn += [*[rows] * whole, rng.permutation(rows)[:rest]]
            start += part.rows
        rows = np.concatenate(drawn)
        rng.shuffle(rows)
        rows = rows[: len(rows) // self.step * self.step]
        if self.lengths is None:
            return rows.reshape(-1, self.step)
        pool = _POOL * self.step
        for start in range(0, len(rows), pool):
            piece = rows[start : start + pool]
            rows[start : start + pool] = piece[np.argsort(-self.lengths[piece].astype(np.int64), kind="stable")]
        return np.asarray(rng.permutation(rows.reshape(-1, self.step)))


def plan(
    parts: Sequence[Part], step: int, epochs: float, steps: int | None, seed: int,
    lengths: NDArray[np.integer] | None = None,
) -> Order:  # fmt: skip
    """The order of so many epochs or steps; data that do not fill one step raise a `ConfigError`."""
    an_epoch = sum(part.drawn for part in parts)
    if an_epoch < step:
        raise ConfigError(
            f"a step takes {step:,} samples (batch_size x accumulate x processes) and the data have {an_epoch:,}; "
            "make batch_size or accumulate smaller."
        )
    return Order(tuple(parts), step, steps or max(1, round(epochs * (an_epoch // step))), seed, lengths)


def plan_steps(parts: Sequence[Part], settings: Optimisation, lengths: NDArray[np.integer]) -> Order:
    """The order for these settings, over all processes."""
    step = settings.batch_size * settings.accumulate * process_count()
    by_length = lengths if settings.group_by_length else None
    return plan(parts, step, settings.epochs, settings.steps, settings.seed, by_length)
