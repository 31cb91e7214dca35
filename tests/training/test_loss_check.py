"""Losses that arrive late are looked at all the same."""

from __future__ import annotations

import math

import pytest
import torch

from cxrlab.training import trainer
from cxrlab.training.trainer import NonFiniteLossCheck


class Copy:
    """A number on its way: `arrive` lets it in, and `wait` as well."""

    def __init__(self, number: float) -> None:
        self.number, self.value, self.there = number, torch.tensor(0.0), False

    def arrive(self) -> None:
        self.value.fill_(self.number)
        self.there = True

    def arrived(self) -> bool:
        return self.there


def watched() -> tuple[NonFiniteLossCheck, list[int]]:
    reported: list[int] = []
    return NonFiniteLossCheck(lambda loss, step: reported.append(step)), reported


def test_on_the_processor_a_loss_is_looked_at_at_once() -> None:
    found, reported = watched()
    for step, loss in enumerate((1.0, math.inf, 2.0, math.nan), 1):
        found.note(torch.tensor(loss), step)
    assert reported == [2, 4]


def test_nobody_waits_for_a_loss_that_has_not_arrived() -> None:
    """What the buffer holds before is no loss; the step that is reported is that of the loss, not that of the look."""
    found, reported = watched()
    copies = [Copy(1.0), Copy(math.nan), Copy(3.0)]
    for step, one in enumerate(copies, 1):
        found.follow(one.value, one.arrived, one.arrive, step)
    assert reported == [] and not any(one.there for one in copies)
    ready = Copy(4.0)
    for one in (*copies, ready):
        one.arrive()
    found.follow(ready.value, ready.arrived, lambda: None, 4)
    assert reported == [2]


def test_before_anything_is_saved_all_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found, reported = watched()
    late = Copy(math.nan)
    found.follow(late.value, late.arrived, late.arrive, 7)
    found.all()
    assert reported == [7]
    monkeypatch.setattr(trainer, "_MOST", 1)
    one, other = Copy(math.inf), Copy(1.0)
    found.follow(one.value, one.arrived, one.arrive, 8)
    found.follow(other.value, other.arrived, other.arrive, 9)  # more under way than allowed: the oldest is waited for
    assert reported == [7, 8]
