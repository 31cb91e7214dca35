"""The engine of every stage: Hugging Face's Trainer on Accelerate, made exact.

What it adds: a step is divided by what it holds in all forward passes and processes; checkpoints hold
what is trained, optimiser, schedule and random state, and count only when whole; a run that was killed
ends with the same bytes as one that was not; a loss that is no number stops it at once.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import Sampler
from transformers import Trainer

from cxrlab.core.errors import CxrlabError, RunError
from cxrlab.core.files import write_json
from cxrlab.models.local_files import pickled_code_refused
from cxrlab.training import checkpoints, processes
from cxrlab.training.augment import image_seeds
from cxrlab.training.config import Optimisation
from cxrlab.training.fingerprint import weights_key
from cxrlab.training.journal import METER, Journal
from cxrlab.training.order import Order
from cxrlab.training.rows import ITEMS, ROWS, Rows
from cxrlab.training.run_folder import RunFolder
from cxrlab.training.trainer_settings import arguments, fast_kernels

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
    engine: type[Engine] | None = None
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
    engine = (job.engine or Engine)(job, settings, run)
    start = checkpoints.resumable(run.steps) if run.writes else checkpoints.latest(run.steps)
    if run.writes:
        checkpoints.remove_incomplete(run.steps)
        run.forget_after(checkpoints.step_of(start) if start else -1)
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


class Engine(Trainer):
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
            checkpoints.mark_complete(folder)
            checkpoints.remove_old(self.run.steps)

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
