"""Looks at every loss without making a GPU wait.

Asking a GPU for a number stops the processor until all that was queued before is done, and the GPU then stands idle
until new work reaches it. Each loss is instead copied beside the training and looked at when it has arrived,
a step or two later.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

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
