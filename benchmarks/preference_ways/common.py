"""Parts shared by both preference trainings: the model, its adapters, the clock and the measurements.

Heavy imports are inside functions: each training imports all it needs before it measures its memory.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

RANK, ALPHA, THREADS = 64, 128, 2


def open_model(folder: Path) -> tuple[Any, Any]:
    """(model, processor)."""
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    return LlavaForConditionalGeneration.from_pretrained(folder), AutoProcessor.from_pretrained(folder)


def randomise_adapters(model: Any, seed: int) -> None:
    """Fill the adapters with the same random numbers in every training; with new adapters every DPO loss is ln 2."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in sorted(model.named_parameters()):
            if "lora_" in name:
                value.copy_(0.05 * torch.randn(value.shape, generator=rng))


class Clock:
    """Records the time at the start of training and after every window of steps that follows the warm-up."""

    def __init__(self, warm: int, window: int) -> None:
        self.warm, self.window = warm, window
        self.marks: list[tuple[float, float]] = []  # wall time, CPU time
        self.began = self.ended = 0.0

    def begin(self) -> None:
        """Start of the first step."""
        self.began = time.perf_counter()

    def step(self, number: int) -> None:
        """End of a step."""
        self.ended = time.perf_counter()
        if number >= self.warm and (number - self.warm) % self.window == 0:
            self.marks.append((self.ended, time.process_time()))

    def spans(self, kind: int) -> list[float]:
        """Seconds per step of every window: `kind` 0 is wall time, 1 is CPU time."""
        marks = [mark[kind] for mark in self.marks]
        return [(b - a) / self.window for a, b in zip(marks, marks[1:], strict=False)]


def clock_callback(clock: Clock) -> Any:
    """The clock as a callback of the trainer."""
    from transformers import TrainerCallback

    class ClockCallback(TrainerCallback):
        """Calls the clock."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Start of training."""
            clock.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """End of a step."""
            clock.step(state.global_step)

    return ClockCallback()


def peak_memory() -> int:
    """Peak resident memory of this process in bytes.

    On Linux `getrusage` includes the memory of the parent before `exec`, so /proc is read there instead.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        (peak,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measurements(clock: Clock, loss: float, before: int, prepared: float) -> dict[str, Any]:
    """The measurements of one training, for the parent process."""
    return {
        "spans": clock.spans(0),
        "processor": clock.spans(1),
        "training_s": clock.ended - clock.began,
        "prepared_s": prepared,
        "loss": loss,
        "memory": peak_memory() - before,
        "imported": before,
    }
