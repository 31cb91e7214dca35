"""What a training says while it runs: progress, history, and that it must stop.

The mean loss since the last line is carried over a kill in the checkpoint, so that a continued run
writes the same lines as a straight one.
"""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from cxrlab.core.errors import RunError
from cxrlab.core.files import read_json
from cxrlab.core.progress import track
from cxrlab.training.config import Optimisation
from cxrlab.training.run_folder import RunFolder
from cxrlab.training.watch import LossWatch

if TYPE_CHECKING:
    from cxrlab.training.engine import Engine, Job


METER = "meter.json"


class Journal(TrainerCallback):
    """Listens to the engine; see the module.

    Args:
        engine: The engine.
        job: What it trains.
        settings: How.
        run: Where the history goes.
    """

    def __init__(self, engine: Engine, job: Job, settings: Optimisation, run: RunFolder) -> None:
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
