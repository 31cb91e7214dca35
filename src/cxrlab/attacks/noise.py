"""Noise of the same size: what a change does that follows no aim. The control beside every attack."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from cxrlab.attacks.base import Attack
from cxrlab.attacks.config import AttackSettings
from cxrlab.attacks.task import Task


class Noise(Attack):
    """An image drawn evenly from the ball around the clean one."""

    name: ClassVar[str] = "noise"
    white_box: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False
    control: ClassVar[bool] = True

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def perturb(self, task: Task) -> Tensor:
        """No pass at all."""
        return task.random_images(task.rows, self.name)
