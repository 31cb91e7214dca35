"""What both trainings share: the model, its adapters, the clock and what is told.

Nothing heavy is imported at the top: each way imports all that it needs before it takes its size.
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


def stir(model: Any, seed: int) -> None:
    """New adapters change nothing, and every DPO loss would be ln 2; these are given numbers, the same in every way."""
    import torch

    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in sorted(model.named_parameters()):
            if "lora_" in name:
                value.copy_(0.05 * torch.randn(value.shape, generator=rng))


class Clock:
    """Notes the time when the training begins and after every window of steps, those of the warm-up left out."""

    def __init__(self, warm: int, window: int) -> None:
        self.warm, self.window = warm, window
        self.marks: list[tuple[float, float]] = []  # on the wall, of the processor
        self.began = self.ended = 0.0

    def begin(self) -> None:
        """The first step begins."""
        self.began = time.perf_counter()

    def step(self, number: int) -> None:
        """A step is done."""
        self.ended = time.perf_counter()
        if number >= self.warm and (number - self.warm) % self.window == 0:
            self.marks.append((self.ended, time.process_time()))

    def spans(self, kind: int) -> list[float]:
        """Seconds a step of every window: 0 on the wall, 1 of the processor."""
        marks = [mark[kind] for mark in self.marks]
        return [(b - a) / self.window for a, b in zip(marks, marks[1:], strict=False)]


def listener(clock: Clock) -> Any:
    """The clock as a callback."""
    from transformers import TrainerCallback

    class Listener(TrainerCallback):
        """Tells the clock."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Before the first step."""
            clock.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """After each."""
            clock.step(state.global_step)

    return Listener()


def size_now() -> int:
    """Largest resident size of this program so far, in bytes.

    Linux tells it in its status; `getrusage` there also counts what the process was before it became this program,
    which may be a large parent.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        (peak,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def told(clock: Clock, loss: float, before: int, prepared: float) -> dict[str, Any]:
    """What a way came to, for the process that asked."""
    return {
        "spans": clock.spans(0),
        "processor": clock.spans(1),
        "training_s": clock.ended - clock.began,
        "prepared_s": prepared,
        "loss": loss,
        "memory": size_now() - before,
        "imported": before,
    }
