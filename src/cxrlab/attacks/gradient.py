"""Attacks that follow the gradient: FGSM, PGD, MI-FGSM, APGD and universal perturbations.

FGSM takes one step of length ε. PGD takes many short ones from a random image of the ball, each projected back into it.
MI-FGSM steps along a decaying sum of normalised gradients. APGD (Croce and Hein 2020) adds momentum and halves the step
of each image that makes no progress. A universal perturbation is one change, made with the gradients of some images and
added to others, which needs nothing from the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import ClassVar

import torch
from torch import Tensor

from cxrlab.attacks.attack import Attack, AttackTask, BestSoFar, check_images
from cxrlab.attacks.config import AttackSettings, Budget
from cxrlab.attacks.norm_balls import clip_norm, random_in_ball, steepest_direction
from cxrlab.attacks.objectives import Objective
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.randomness import generator

_TINY = 1e-12


class Fgsm(Attack):
    """Fast gradient sign method: one step of length ε."""

    name: ClassVar[str] = "fgsm"

    def perturb(self, task: AttackTask) -> Tensor:
        """One pass per image: at the clean one, or at a random image of the ball where the clean one has no gradient."""
        flat = task.objective.zero_gradient_at_clean
        images = task.random_images(task.rows, self.name) if flat else task.clean
        _, gradients = task.loss_and_gradient(images, task.rows)
        return task.project(task.clean + task.budget.eps * steepest_direction(gradients, task.budget.norm))


class Pgd(Attack):
    """Projected gradient ascent with restarts."""

    name: ClassVar[str] = "pgd"
    starts_on_sphere: ClassVar[bool] = False

    def perturb(self, task: AttackTask) -> Tensor:
        """`steps` passes per image and restart; one more where steps or restarts are compared by their loss."""
        best = BestSoFar(task)
        active = task.rows  # no restart has succeeded on them yet
        for restart in range(self.settings.restarts):
            found = self.ascend(task, restart, active)
            if self.settings.restarts == 1:
                return found.images
            images, losses, succeeded = found.images[active], found.losses[active], None
            if self.settings.early_exit:
                succeeded = task.check_success(images, losses, active)
            best.update(images, losses, active, succeeded)
            if succeeded is not None:
                active = list(compress(active, ~succeeded))
            if not active:
                break
        return best.images

    def ascend(self, task: AttackTask, restart: int, rows: list[int]) -> BestSoFar:
        """One restart: the highest-loss iterate of each row, or its last with `keep=last`."""
        settings, keep_last = self.settings, self.settings.keep == "last"
        best, images, active = BestSoFar(task), self.initial_images(task, restart), rows
        for _ in range(settings.steps):
            losses, gradients = task.loss_and_gradient(images[active], active)
            best.update(images[active], losses, active, latest=keep_last)
            if settings.early_exit:
                unbroken = ~task.succeeded_by_loss(losses, active)
                active, losses, gradients = list(compress(active, unbroken)), losses[unbroken], gradients[unbroken]
            if not active:
                return best
            images[active] = self.step(task, images[active], losses, gradients, active)
        # The last image of a single restart is kept whatever its loss, which is then not computed.
        compared = not keep_last or settings.restarts > 1
        losses = task.losses(images[active], active) if compared else torch.zeros(len(active), dtype=torch.float64)
        best.update(images[active], losses, active, latest=keep_last)
        return best

    def initial_images(self, task: AttackTask, restart: int) -> Tensor:
        """Where a restart begins, [B, C, H, W]: random, except for a first one with given images or no random start."""
        if restart == 0 and (task.has_initial_images or not self.settings.random_start):
            return task.initial_images.clone()
        return task.random_images(task.rows, self.name, restart, on_sphere=self.starts_on_sphere)

    def step(self, task: AttackTask, images: Tensor, losses: Tensor, gradients: Tensor, active: list[int]) -> Tensor:
        """The next images of the active rows, within the ball."""
        direction = steepest_direction(gradients, task.budget.norm)
        return task.project(images + self.settings.step_size * task.budget.eps * direction, active)


class MiFgsm(Pgd):
    """Momentum iterative FGSM: steps of ε / steps along a decaying sum of gradients, from the clean image."""

    name: ClassVar[str] = "mi-fgsm"

    def __init__(self, settings: AttackSettings | None = None) -> None:
        super().__init__(replace(settings or AttackSettings(), random_start=False, restarts=1))

    def perturb(self, task: AttackTask) -> Tensor:
        """`steps` passes per image; there are no restarts, since the start is fixed."""
        self._momentum = torch.zeros_like(task.clean)
        return super().perturb(task)

    def step(self, task: AttackTask, images: Tensor, losses: Tensor, gradients: Tensor, active: list[int]) -> Tensor:
        """Each gradient enters the sum divided by its mean absolute value."""
        scale = gradients.flatten(1).abs().mean(dim=1).clamp(min=_TINY).reshape(-1, 1, 1, 1)
        self._momentum[active] = self.settings.momentum * self._momentum[active] + gradients / scale
        direction = steepest_direction(self._momentum[active], task.budget.norm)
        return task.project(images + task.budget.eps / self.settings.steps * direction, active)


_NEW = 0.75  # share of the gradient step in a move; the rest repeats the move before
_RISING = 0.75  # share of the steps between two checkpoints that must raise the loss


class Apgd(Pgd):
    """Auto-PGD: momentum, and a step size per image that is halved at checkpoints without progress."""

    name: ClassVar[str] = "apgd"
    starts_on_sphere: ClassVar[bool] = True

    def __init__(self, settings: AttackSettings | None = None) -> None:
        super().__init__(replace(settings or AttackSettings(), keep="best"))
        self._windows = checkpoints(self.settings.steps)

    def initial_images(self, task: AttackTask, restart: int) -> Tensor:
        """As of PGD, with the step sizes of a new run."""
        images = super().initial_images(task, restart)
        self._state = _ApgdState(task, images)
        return images

    def step(self, task: AttackTask, images: Tensor, losses: Tensor, gradients: Tensor, active: list[int]) -> Tensor:
        """At a checkpoint, images without progress go back to their best point with half the step size."""
        state, rows = self._state, torch.tensor(active)
        state.rises[rows] += (losses > state.losses[rows]).long()
        state.losses[rows] = losses
        better = state.best.update(images, losses, active)
        state.best_gradients[rows[better].to(images.device)] = gradients[better.to(images.device)]
        if window := self._windows.get(state.steps_taken):
            stuck = state.rises[rows] <= _RISING * window
            stuck |= ~state.halved[rows] & (state.best.losses[rows] <= state.best_at_checkpoint[rows])
            state.halved[rows], state.best_at_checkpoint[rows], state.rises[rows] = stuck, state.best.losses[rows], 0
            back = rows[stuck].tolist()
            state.step_size[back] /= 2
            places = stuck.to(images.device)
            images[places], gradients[places] = state.best.images[back], state.best_gradients[back]
        ahead = images + state.step_size[active] * steepest_direction(gradients, task.budget.norm)
        ahead = task.project(ahead, active)
        new = 1.0 if state.steps_taken == 0 else _NEW
        moved = images + new * (ahead - images) + (1 - new) * (images - state.previous[active])
        state.previous[active] = images
        state.steps_taken += 1
        return task.project(moved, active)


class _ApgdState:
    """What one restart of APGD remembers of each image."""

    def __init__(self, task: AttackTask, images: Tensor) -> None:
        self.steps_taken = 0
        self.step_size = torch.full_like(task.clean[:, :1, :1, :1], 2 * task.budget.eps)
        self.previous = images.clone()  # before the last move
        self.losses = torch.full((len(task),), torch.inf, dtype=torch.float64)  # at the last image
        self.best, self.best_gradients = BestSoFar(task), torch.zeros_like(images)
        self.rises = torch.zeros(len(task), dtype=torch.long)  # of the loss since the last checkpoint
        self.best_at_checkpoint = torch.full((len(task),), -torch.inf, dtype=torch.float64)
        self.halved = torch.ones(len(task), dtype=torch.bool)  # at the last checkpoint


def checkpoints(steps: int) -> dict[int, int]:
    """Steps after which step sizes are judged, each with the number of steps since the checkpoint before.

    The first comes after 22 % of the steps; each interval is 3 % of them shorter than the last, 6 % at least.
    """
    window, shrink, least = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    found: dict[int, int] = {}
    at = window
    while at <= steps:
        found[at] = window
        window = max(window - shrink, least)
        at += window
    return found


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
    micro_batch: BatchSize | None = None,
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
        micro_batch: Images whose gradients are computed at once, 16 by default. A step is the same with any number.
    """
    clean = check_images(images, keys, region)
    if not objective.gradients:
        raise ConfigError(
            "A universal perturbation is made from gradients, which this model does not provide. Use a model with open "
            "weights, or leave out --attacks universal."
        )
    task = AttackTask(objective, clean, budget, tuple(keys), seed, region, micro_batch=micro_batch)
    change = torch.zeros_like(clean[:1])
    if objective.zero_gradient_at_clean:
        source = generator(seed, "attack", "universal", "start")
        change = random_in_ball(change.shape, budget.eps, budget.norm, [source]).to(change)

    by_name = sorted(task.rows, key=lambda row: keys[row])  # whatever order the images came in
    for epoch in range(settings.universal_epochs):
        order = [by_name[place] for place in generator(seed, "attack", "universal", epoch).permutation(len(by_name))]
        for begin in range(0, len(order), _BATCH):
            rows = order[begin : begin + _BATCH]
            _, gradients = task.loss_and_gradient(task.project(clean[rows] + change, rows), rows)
            direction = steepest_direction(gradients.mean(dim=0, keepdim=True), budget.norm)
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
        super().__init__(settings)
        self.change = change

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
