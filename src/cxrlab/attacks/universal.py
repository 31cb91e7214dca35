"""A universal perturbation: one change, made from some images and added to others.

Making it needs gradients; adding it needs nothing from the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from cxrlab.attacks.attack import Attack, AttackTask, check_images
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
        objective: Its rows are the positions in `images`.
        images: [B, C, H, W] float32 in [0, 1]; not those that the change will be tested on.
        budget: Greatest length of the change.
        settings: `step_size` and `universal_epochs` are used.
        keys: Name of each image.
        seed: Of the order of images.
        region: [B or 1, 1, H, W] of 0 and 1: where pixels may change; everywhere when None.
        batch_size: Images whose gradients are computed at once, 16 by default. A step is the same with any number.
    """
    at_once = batch_size or BatchSize(_BATCH)
    clean = check_images(images, keys, region)
    if not objective.gradients:
        raise ConfigError(
            "A universal perturbation is made from gradients, which this model does not provide. Use a model with open "
            "weights, or leave out --attacks universal."
        )
    task = AttackTask(objective, clean, budget, tuple(keys), seed, region)
    change = torch.zeros_like(clean[:1])
    if objective.zero_gradient_at_clean:
        source = generator(seed, "attack", "universal", "start")
        change = random_in_ball(change.shape, budget.eps, budget.norm, [source]).to(change)

    def gradients(change: Tensor, rows: Sequence[int]) -> Tensor:
        return task.loss_and_gradient(task.project(clean[list(rows)] + change, rows), rows)[1]

    by_name = sorted(task.rows, key=lambda row: keys[row])  # whatever order the images came in
    for epoch in range(settings.universal_epochs):
        order = [by_name[place] for place in generator(seed, "attack", "universal", epoch).permutation(len(by_name))]
        for begin in range(0, len(order), _BATCH):
            found = torch.stack(at_once.map(order[begin : begin + _BATCH], partial(gradients, change)))
            direction = steepest_direction(found.mean(dim=0, keepdim=True), budget.norm)
            change = clip_norm(change + settings.step_size * budget.eps * direction, budget.eps, budget.norm)
    return change


class Universal(Attack):
    """A change that was made before, added to each image.

    Args:
        settings: Not used; see `make_universal`.
        change: [1, C, H, W], as `make_universal` gives it.
    """

    name: ClassVar[str] = "universal"
    white_box: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False

    def __init__(self, settings: AttackSettings | None = None, change: Tensor | None = None) -> None:
        self.settings, self.change = settings or AttackSettings(), change

    def perturb(self, task: AttackTask) -> Tensor:
        """No pass."""
        if self.change is None:
            raise ConfigError(
                "Attack 'universal' has no change to add. Make one from images of another split with make_universal and "
                "pass it as Universal(settings, change=...)."
            )
        if self.change.shape != (1, *task.clean.shape[1:]):
            raise DataError(
                f"The universal change has shape {list(self.change.shape)}, which does not fit images "
                f"{list(task.clean.shape)}; make it from images of the same size."
            )
        return task.clean + self.change.to(task.clean)
