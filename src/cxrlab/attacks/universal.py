"""One change for every image: it is made from some images and added to others.

Making it needs gradients; adding it needs nothing of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from cxrlab.attacks.attack import Attack, AttackTask, checked
from cxrlab.attacks.config import AttackSettings, Budget
from cxrlab.attacks.geometry import clip_norm, random_in_ball, steepest_direction
from cxrlab.attacks.objectives import Objective
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.memory import BatchSize
from cxrlab.core.randomness import generator

_BATCH = 16


def make_universal(
    objective: Objective,
    images: Tensor,
    budget: Budget,
    settings: AttackSettings,
    *,
    keys: Sequence[str],
    seed: int = 0,
    region: Tensor | None = None,
    batch_size: BatchSize | None = None,
) -> Tensor:
    """One change that raises the mean loss of the images; [1, C, H, W], no longer than ε.

    It starts at 0, or at random where the objective is flat at the clean images, and takes a step of `step_size` · ε
    after each batch of 16 images, `universal_epochs` times over all of them, in an order that depends on the seed and
    the names of the images only.

    Args:
        objective: What the attacker wants; its rows are the places in `images`.
        images: Images to make it from, [B, C, H, W] float32 in [0, 1]; not those that it will be measured on.
        budget: Its length at most.
        settings: `step_size` and `universal_epochs` are read.
        keys: Name of each image.
        seed: Of the order of images.
        region: [B or 1, 1, H, W] of 0 and 1: where pixels may be changed; everywhere when None.
        batch_size: Images whose gradients are computed at once; 16 when None. A step is the same with any number.
    """
    at_once = batch_size or BatchSize(_BATCH)
    clean = checked(images, keys, region)
    if not objective.gradients:
        raise ConfigError(
            "a universal change is made from gradients and this model gives none; make it with a model that does."
        )
    task = AttackTask(objective, clean, budget, tuple(keys), seed, region)
    change = _start(task)
    for epoch in range(settings.universal_epochs):
        for rows in _batches(task, epoch):
            slope = torch.stack(at_once.map(rows, partial(_slopes, task, change)))
            step = settings.step_size * budget.eps * steepest_direction(slope.mean(dim=0, keepdim=True), budget.norm)
            change = clip_norm(change + step, budget.eps, budget.norm)
    return change


def _slopes(task: AttackTask, change: Tensor, rows: Sequence[int]) -> Tensor:
    """Gradient of each of these images with the change on it."""
    return task.gradients(task.project(task.clean[list(rows)] + change, rows), rows)[1]


def _start(task: AttackTask) -> Tensor:
    """[1, C, H, W]."""
    nothing = torch.zeros_like(task.clean[:1])
    if not task.objective.zero_gradient_at_clean:
        return nothing
    source = generator(task.seed, "attack", "universal", "start")
    return random_in_ball(nothing.shape, task.budget.eps, task.budget.norm, [source]).to(nothing)


def _batches(task: AttackTask, epoch: int) -> list[list[int]]:
    """Rows of the task in the order of one epoch, whatever order the images came in."""
    by_name = sorted(task.rows, key=lambda row: task.keys[row])
    order = [by_name[place] for place in generator(task.seed, "attack", "universal", epoch).permutation(len(by_name))]
    return [order[begin : begin + _BATCH] for begin in range(0, len(order), _BATCH)]


class Universal(Attack):
    """A change that was made before, added to each image.

    Args:
        settings: None of them is read here; see `make_universal`.
        change: [1, C, H, W], as `make_universal` gives it.
    """

    name: ClassVar[str] = "universal"
    white_box: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False

    def __init__(self, settings: AttackSettings | None = None, change: Tensor | None = None) -> None:
        self.settings, self.change = settings or AttackSettings(), change

    def perturb(self, task: AttackTask) -> Tensor:
        """No pass at all."""
        if self.change is None:
            raise ConfigError(
                "the attack 'universal' was given no change to add; make one from images of another split with "
                "make_universal and hand it over as Universal(settings, change=...)."
            )
        if self.change.shape != (1, *task.clean.shape[1:]):
            raise DataError(
                f"the universal change {list(self.change.shape)} does not fit images {list(task.clean.shape)}; "
                "make it from images of the same size."
            )
        return task.clean + self.change.to(task.clean)
