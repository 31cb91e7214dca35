"""Trainer of every stage: Hugging Face's Trainer with exact steps and exact resume."""

from __future__ import annotations

import contextlib
import logging
import math
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import Trainer, TrainerCallback, TrainingArguments

from cxrlab.core.errors import ConfigError, CxrlabError, RunError
from cxrlab.core.files import read_json, write_json
from cxrlab.core.randomness import generator
from cxrlab.core.terminal import track
from cxrlab.data.parallel import worker_count
from cxrlab.models.local_files import pickled_code_refused
from cxrlab.training import processes
from cxrlab.training.augment import image_seeds
from cxrlab.training.config import Optimisation
from cxrlab.training.fingerprint import weights_key
from cxrlab.training.processes import count
from cxrlab.training.run_folder import (
    RunFolder,
    latest,
    mark_complete,
    remove_incomplete,
    remove_old,
    resumable,
    step_of,
)

WEIGHTS = "trained.safetensors"

Evaluate = Callable[[Any, int], Mapping[str, float]]
"""(module, step) → name → number; the numbers go into the history."""


@dataclass(frozen=True)
class Job:
    """One training.

    Args:
        module: Takes a batch as keywords and returns the sum of the losses of its items, a scalar. Its parameters
            with `requires_grad` are trained and saved. Where it has `figures()`, these stand in the history too.
        rows: What is learnt.
        order: Which rows when.
        label: A few words for the progress line.
        engine: The class that takes the steps; a subclass may have another `training_step`.
        on_evaluate: Called with the module in evaluation mode; it cannot disturb the random state of the training.
        look_first: Call it before the first step too, as step 0.
    """

    module: nn.Module
    rows: Rows
    order: Order
    label: str = "training"
    engine: type[ExactTrainer] | None = None
    on_evaluate: Evaluate | None = None
    look_first: bool = False


@dataclass(frozen=True)
class Fitted:
    """What a training came to: its steps, samples seen, and the loss of the last line of the history."""

    steps: int
    samples: int
    loss: float


def fit(job: Job, settings: Optimisation, run: RunFolder) -> Fitted:
    """Train the job's module, or go on where the run in this folder stopped.

    Raises:
        RunError: When the loss or a weight is no number, with the step and what to try; when the run in this folder
            was begun with other data, from other weights or with another number of processes; when the checkpoint
            that it would resume from is damaged.
        KeyboardInterrupt: After Ctrl-C, once the step under way is done and saved.
    """
    if run.writes:
        run.stand_on(_basis(job))
    engine = (job.engine or ExactTrainer)(job, settings, run)
    start = resumable(run.steps) if run.writes else latest(run.steps)
    if run.writes:
        remove_incomplete(run.steps)
        run.forget_after(step_of(start) if start else -1)
    with engine.journal.interruptible(), fast_kernels(settings):
        with pickled_code_refused(start) if start else contextlib.nullcontext():
            engine.train(resume_from_checkpoint=str(start) if start else None)
    if engine.journal.interrupted:
        raise KeyboardInterrupt
    return Fitted(engine.state.global_step, engine.state.global_step * job.order.step, engine.journal.last_loss)


def _basis(job: Job) -> dict[str, Any]:
    """What must be the same when a run goes on, beyond its config."""
    return {
        "processes": processes.count(),
        "samples a step": job.order.step,
        "samples": len(job.rows),
        "data": getattr(job.rows, "key", None),
        "weights": weights_key(job.module),
    }


class ExactTrainer(Trainer):
    """Takes the steps of a `Job`.

    Args:
        job: What to train on what.
        settings: How.
        run: Where history and checkpoints go.
    """

    def __init__(self, job: Job, settings: Optimisation, run: RunFolder) -> None:
        self.job = job
        self.run = run
        self._trained = [name for name, value in job.module.named_parameters() if value.requires_grad]
        self.journal = Journal(self, job, settings, run)
        with _quiet():
            super().__init__(
                model=job.module,
                args=arguments(settings, job.order, run.steps),
                train_dataset=job.rows,
                data_collator=_as_it_is,
                callbacks=[self.journal],
            )
            from transformers.trainer_callback import PrinterCallback, ProgressCallback

            self.remove_callback(PrinterCallback)
            self.remove_callback(ProgressCallback)

    def _get_train_sampler(self, *_: Any) -> Sampler[int]:
        return _Sampler(self.job.order)

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, *_: Any) -> tuple[list[Any], Any]:
        """The batches of one step and the number of items in all of them, over all processes."""
        with _told_plainly():
            batches = [batch for _, batch in zip(range(num_batches), epoch_iterator, strict=False)]
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
        self.accelerator.backward(loss, **self._backward_settings())
        return loss.detach()

    def ready(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The batch on the device, with a seed an image where the rows of images are named."""
        batch: dict[str, Any] = self._prepare_inputs(inputs)
        if ROWS in batch:
            batch["seeds"] = image_seeds(self.args.seed, batch.pop(ROWS), self.state.global_step)
        return batch

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Matrices alone: biases, norms and single numbers are what they are for a reason."""
        return [name for name, value in model.named_parameters() if value.dim() >= 2 and not name.endswith("bias")]

    def _backward_settings(self) -> dict[str, Any]:
        # DeepSpeed would divide by the number of forward passes once more.
        return {"scale_wrt_gas": False} if self.is_deepspeed_enabled else {}

    def _save_checkpoint(self, model: nn.Module, trial: Any = None) -> None:
        self.journal.refuse_no_number()
        self._refuse_broken_weights()
        self.state.log_history.clear()  # history.jsonl has it
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.run.writes:
            folder = self.run.steps / f"checkpoint-{self.state.global_step}"
            write_json(folder / METER, self.journal.state())
            mark_complete(folder)
            remove_old(self.run.steps)

    def _refuse_broken_weights(self) -> None:
        """A gradient may be no number although the loss is one; the weights are then lost, and must not be kept."""
        tensors = dict(self.job.module.named_parameters())
        for name in self._trained:
            if not torch.isfinite(tensors[name]).all():
                raise RunError(
                    f"the weights '{name}' are no longer numbers after step {self.state.global_step}; the last "
                    "checkpoint is kept. Try a lower learning_rate or a longer warmup, in a new folder."
                )

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        folder = Path(str(output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            super()._save(output_dir, state_dict)  # their own loaders want every tensor
            return
        tensors = dict(self.job.module.named_parameters())
        save_file({name: tensors[name].detach().contiguous().cpu() for name in self._trained}, folder / WEIGHTS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            super()._load_from_checkpoint(resume_from_checkpoint, model)
            return
        stored = load_file(Path(resume_from_checkpoint) / WEIGHTS)
        tensors = dict(self.job.module.named_parameters())
        if set(stored) != set(self._trained):
            raise RunError(f"{resume_from_checkpoint} holds other weights than this model trains; choose a new folder.")
        with torch.no_grad():
            for name, value in stored.items():
                tensors[name].copy_(value)


@contextlib.contextmanager
def _told_plainly() -> Iterator[None]:
    """An error of ours in a process that reads images: its own sentence, without the loader's traceback around it."""
    try:
        yield
    except CxrlabError as error:
        lines = str(error).strip().splitlines()
        if not lines or not lines[0].startswith("Caught "):
            raise
        raise type(error)(lines[-1].partition(": ")[2]) from None


class _Sampler(Sampler[int]):
    """The order, as a loader asks for it."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def __iter__(self) -> Any:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


def _as_it_is(batch: Any) -> Any:
    """Rows come as whole batches already."""
    return batch


@contextlib.contextmanager
def _quiet() -> Any:
    """No advice of the libraries while they are set up: everything it is about is set on purpose."""
    loggers = [logging.getLogger(name) for name in ("transformers", "accelerate")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


METER = "meter.json"


class Journal(TrainerCallback):
    """Listens to the engine; see the module.

    Args:
        engine: The engine.
        job: What it trains.
        settings: How.
        run: Where the history goes.
    """

    def __init__(self, engine: ExactTrainer, job: Job, settings: Optimisation, run: RunFolder) -> None:
        self.engine, self.job, self.settings, self.run = engine, job, settings, run
        self.interrupted = False
        self.last_loss = math.nan
        self._sum: Tensor | None = None  # of the losses since the last line, on the device
        self._since = 0  # step of the last line
        self._rate = settings.learning_rate
        self._watch = LossWatch(self._refuse)
        self._progress: Iterator[int] = iter(())

    def note(self, loss: Tensor) -> None:
        """Take in the loss of one forward pass, a detached scalar."""
        self._sum = loss.float().clone() if self._sum is None else self._sum + loss
        self._watch.note(loss, self.engine.state.global_step + 1)

    def refuse_no_number(self) -> None:
        """Raise when any loss so far is no number; nothing of such a state is saved."""
        self._watch.all()

    def _refuse(self, loss: float, step: int) -> None:
        raise RunError(
            f"the loss is {loss} at step {step} with a learning rate of {self._rate:.2g}; the last checkpoint is kept. "
            "Try a lower learning_rate, a longer warmup or a smaller clip, in a new folder."
        )

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold for the next line of the history."""
        return {"sum": 0.0 if self._sum is None else float(self._sum), "since": self._since, "loss": self.last_loss}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._sum = torch.tensor(state["sum"], device=self.engine.args.device)
        self._since = int(state["since"])
        self.last_loss = math.nan if state["loss"] is None else float(state["loss"])

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within it Ctrl-C ends the step under way, saves and stops; a second one stops at once."""
        alone = self.engine.args.world_size == 1 and threading.current_thread() is threading.main_thread()
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
        """Take up the line that a kill cut off, and show where the training stands."""
        # Once, not at every step: walking through thousands of modules takes as long as a small step.
        self.job.module.train()
        if state.global_step:
            self.restore(read_json(self.run.steps / f"checkpoint-{state.global_step}" / METER))
        elif self.job.look_first:
            self._evaluate(0)
        steps = range(state.global_step, state.max_steps)
        self._progress = track(steps, self.job.label, quiet=None if self.run.writes else True)
        next(self._progress, None)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Remember the learning rate of this step: after it the schedule has moved on."""
        self._rate = float(named["optimizer"].param_groups[0]["lr"])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """One step is done: a line, an evaluation, a stop."""
        next(self._progress, None)
        last = state.global_step >= state.max_steps
        if last or state.global_step % self.settings.log_every == 0:
            self._line(state.global_step)
        every = self.settings.evaluate_every
        if self.job.on_evaluate is not None and (last or (every is not None and state.global_step % every == 0)):
            self._evaluate(state.global_step)
        if self.interrupted:
            control.should_save = control.should_training_stop = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close the progress line."""
        for _step in self._progress:
            pass

    def _line(self, step: int) -> None:
        if self._sum is None:
            return
        mean = self.engine.accelerator.gather(self._sum.reshape(1)).mean()
        self.last_loss = float(mean) / (step - self._since)
        self._sum, self._since = None, step
        more: Callable[[], dict[str, float]] | None = getattr(self.job.module, "figures", None)
        self.run.record(
            {
                "step": step,
                "loss": self.last_loss,
                "learning_rate": self._rate,
                "samples": step * self.job.order.step,
                **(more() if more is not None else {}),
            }
        )

    def _evaluate(self, step: int) -> None:
        if self.run.writes and self.job.on_evaluate is not None:
            module = self.job.module
            devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
            with torch.random.fork_rng(devices), torch.no_grad(), self.engine.accelerator.autocast():
                module.eval()
                numbers = self.job.on_evaluate(module, step)
                module.train()
            self.run.record({"step": step, "evaluation": dict(numbers)})
        self.engine.accelerator.wait_for_everyone()


_MOST = 16  # losses under way; with more the oldest is waited for


@dataclass(frozen=True)
class _Late:
    """A loss on its way: the step it belongs to, where it arrives, and what tells or awaits its arrival."""

    step: int
    value: Tensor
    arrived: Callable[[], bool]
    wait: Callable[[], None]


class LossWatch:
    """Calls `refuse` for a loss that is no number.

    Args:
        refuse: Given the loss and its step; raises.
    """

    def __init__(self, refuse: Callable[[float, int], None]) -> None:
        self._refuse = refuse
        self._late: deque[_Late] = deque()

    def note(self, loss: Tensor, step: int) -> None:
        """Take in a detached scalar; one that is on the processor is looked at now."""
        if loss.device.type != "cuda":
            self._look(float(loss), step)
            return
        self.follow(*_on_its_way(loss), step)

    def follow(self, value: Tensor, arrived: Callable[[], bool], wait: Callable[[], None], step: int) -> None:
        """Look at a value once it has arrived, and at those before it."""
        self._late.append(_Late(step, value, arrived, wait))
        while self._late and (len(self._late) > _MOST or self._late[0].arrived()):
            self._first()

    def all(self) -> None:
        """Wait for every loss under way: nothing may be kept of a state whose loss is no number."""
        while self._late:
            self._first()

    def _first(self) -> None:
        late = self._late.popleft()
        late.wait()
        self._look(float(late.value), late.step)

    def _look(self, loss: float, step: int) -> None:
        if not math.isfinite(loss):
            self._late.clear()
            self._refuse(loss, step)


def _on_its_way(loss: Tensor) -> tuple[Tensor, Callable[[], bool], Callable[[], None]]:
    value = torch.empty((), dtype=torch.float32, pin_memory=True)
    value.copy_(loss, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return value, event.query, event.synchronize


def arguments(settings: Optimisation, order: Order, folder: Path) -> TrainingArguments:
    """The Trainer's own settings; what it would log, show or upload is off."""
    warm = round(settings.warmup * order.steps)
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulate,
        max_steps=order.steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant_with_warmup" if settings.schedule == "constant" else settings.schedule,
        warmup_steps=warm,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.clip,
        optim="adamw_torch_fused",
        bf16=settings.precision == "bfloat16",
        seed=settings.seed,
        full_determinism=settings.deterministic,
        dataloader_num_workers=_workers(settings),
        dataloader_persistent_workers=False,
        dataloader_pin_memory=torch.cuda.is_available(),
        dataloader_drop_last=True,
        remove_unused_columns=False,
        logging_strategy="no",
        logging_nan_inf_filter=False,  # would wait for the GPU at every step; the journal looks at every loss
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


def _workers(settings: Optimisation) -> int:
    """Processes that read images for this process; all processes that train together share the cores."""
    if not settings.workers:
        return 0
    return max(1, worker_count(settings.workers * count(), "optimisation.workers x processes") // count())


@contextlib.contextmanager
def fast_kernels(settings: Optimisation) -> Iterator[None]:
    """On a GPU, the kernels that suit a training; what was set before is set again afterwards."""
    if not torch.cuda.is_available():
        yield
        return
    attention, products = _cudnn_attention(), torch.get_float32_matmul_precision()
    # cuDNN's attention is planned anew for every new length of a batch, which takes longer than the step.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if settings.precision == "bfloat16":
        torch.set_float32_matmul_precision("high")  # what is left of float32 need not be finer than the rest
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(attention)
        torch.set_float32_matmul_precision(products)


def length_multiple() -> int:
    """What the length of a batch is rounded up to: a GPU prepares itself for each new shape, a processor does not."""
    return 32 if torch.cuda.is_available() else 1


def _cudnn_attention() -> bool:
    return bool(torch.backends.cuda.cudnn_sdp_enabled())  # type: ignore[no-untyped-call]


ITEMS, ROWS = "items", "rows"


class Rows(Protocol):
    """What is learnt: any batch of rows at once."""

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        """The batch of these rows, by the names of the module's arguments.

        `items` is what the sum is divided by. `rows`, where images are varied, are the rows of the images; the module
        is given `seeds` in their place, another for each row and step.
        """
        ...


# Steps whose samples are sorted by length together; more would make the order less random, fewer leave more padding.
_POOL = 50


@dataclass(frozen=True)
class Part:
    """Consecutive rows that are learnt equally often: how many, and passes an epoch (0.5 is a random half)."""

    rows: int
    passes: float = 1.0

    @property
    def drawn(self) -> int:
        """Samples that an epoch takes of it."""
        return max(1, round(self.rows * self.passes)) if self.rows else 0


@dataclass(frozen=True)
class Order:
    """The rows of a whole training, step after step; iterate it for indices.

    Args:
        parts: The rows in their order in the data set.
        step: Samples a step, over all forward passes and processes.
        steps: Steps of the whole training.
        seed: Decides the order.
        lengths: Tokens of each row, to put like lengths into one step; None shuffles freely.
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
        """The rows of one epoch, [steps of the epoch, samples a step]; within a step the longest stand first."""
        rng = generator(self.seed, "order", number)
        rows = np.concatenate([part for part in self._drawn(rng)])
        rng.shuffle(rows)
        rows = rows[: len(rows) // self.step * self.step]
        if self.lengths is None:
            return rows.reshape(-1, self.step)
        pool = _POOL * self.step
        for start in range(0, len(rows), pool):
            piece = rows[start : start + pool]
            rows[start : start + pool] = piece[np.argsort(-self.lengths[piece].astype(np.int64), kind="stable")]
        return np.asarray(rng.permutation(rows.reshape(-1, self.step)))

    def _drawn(self, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        start = 0
        for part in self.parts:
            rows = np.arange(start, start + part.rows, dtype=np.int64)
            whole, rest = divmod(part.drawn, part.rows) if part.rows else (0, 0)
            yield np.concatenate([*[rows] * whole, rng.permutation(rows)[:rest]])
            start += part.rows


def plan(
    parts: Sequence[Part], step: int, epochs: float, steps: int | None, seed: int,
    lengths: NDArray[np.integer] | None = None,
) -> Order:  # fmt: skip
    """The order of so many epochs or steps; data that do not fill one step are a `ConfigError`."""
    an_epoch = sum(part.drawn for part in parts)
    if an_epoch < step:
        raise ConfigError(
            f"a step takes {step:,} samples (batch_size x accumulate x processes) and the data have {an_epoch:,}; "
            "make batch_size or accumulate smaller."
        )
    return Order(tuple(parts), step, steps or max(1, round(epochs * (an_epoch // step))), seed, lengths)
