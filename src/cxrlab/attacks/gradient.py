"""Attacks that follow the gradient: FGSM, PGD and MI-FGSM.

FGSM takes one step of length ε. PGD takes many short ones, each brought back into the ball, from a random image of it.
MI-FGSM steps along a decaying sum of the gradients, each divided by its mean absolute value.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from cxrlab.attacks.base import Attack
from cxrlab.attacks.config import AttackSettings
from cxrlab.attacks.geometry import steepest
from cxrlab.attacks.task import Best, Task

_TINY = 1e-12


class Fgsm(Attack):
    """One step of the whole radius up the gradient."""

    name: ClassVar[str] = "fgsm"

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def perturb(self, task: Task) -> Tensor:
        """One pass an image: at the clean one, or where that one has no slope at a random image of its ball."""
        flat = task.objective.flat_at_clean
        _, slope = task.gradients(task.random_images(task.rows, self.name) if flat else task.clean, task.rows)
        return task.project(task.clean + task.budget.eps * steepest(slope, task.budget.norm))


class Pgd(Attack):
    """Projected gradient steps."""

    name: ClassVar[str] = "pgd"

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def perturb(self, task: Task) -> Tensor:
        """`steps` passes an image for each restart, and one to compare restarts."""
        settings = self.settings
        if settings.restarts == 1:
            return self._climb(task, task.rows, 0)
        best = Best(task)
        left = task.rows
        for restart in range(settings.restarts):
            found = self._climb(task, left, restart)
            losses = task.losses(found, left)
            there = task.verdict(found, losses, left) if settings.early_exit else None
            best.take(found, losses, left, there)
            if there is not None:
                left = [row for row, gone in zip(left, there.tolist(), strict=True) if not gone]
            if not left:
                break
        return best.images

    def _climb(self, task: Task, rows: list[int], restart: int) -> Tensor:
        """One run over some images of the task; [len(rows), C, H, W]."""
        begin = task.random_images(rows, self.name, restart) if self._random(task, restart) else task.begin[rows]
        state = _State(task, rows, begin)
        for _ in range(self.settings.steps):
            if not state.active:
                break
            images, chosen = state.current()
            losses, slope = task.gradients(images, chosen)
            if not state.leave(losses, keep_best=self.settings.keep == "best", early=self.settings.early_exit):
                break
            slope = slope[state.stayed]
            images, chosen = state.current()
            state.move(task.project(images + self.step(task, chosen, slope), chosen))
        return state.finish(keep_best=self.settings.keep == "best")

    def _random(self, task: Task, restart: int) -> bool:
        return restart > 0 or (self.settings.random_start and not task.warm)

    def step(self, task: Task, rows: list[int], slope: Tensor) -> Tensor:
        """What is added to the images of these rows."""
        return self.settings.step_size * task.budget.eps * steepest(slope, task.budget.norm)


class MiFgsm(Pgd):
    """PGD from the clean image along a decaying sum of gradients."""

    name: ClassVar[str] = "mi-fgsm"

    def perturb(self, task: Task) -> Tensor:
        """`steps` passes an image; it has no restarts, since it begins where the clean image is."""
        self._sums = torch.zeros_like(task.clean)
        return self._climb(task, task.rows, 0)

    def _random(self, task: Task, restart: int) -> bool:
        return False

    def step(self, task: Task, rows: list[int], slope: Tensor) -> Tensor:
        """ε / steps along the sum."""
        scale = slope.flatten(1).abs().mean(dim=1).clamp(min=_TINY).reshape(-1, 1, 1, 1)
        self._sums[rows] = self.settings.momentum * self._sums[rows] + slope / scale
        return task.budget.eps / self.settings.steps * steepest(self._sums[rows], task.budget.norm)


class _State:
    """Images on their way, those that are done among them."""

    def __init__(self, task: Task, rows: list[int], begin: Tensor) -> None:
        self.task, self.rows, self.images = task, rows, begin.clone()
        self.active = list(range(len(rows)))  # places in `rows` of the images that still move
        self.stayed: list[int] = []  # of those last asked, the places of the ones that did not leave
        self._best = begin.clone()
        self._losses = torch.full((len(rows),), -torch.inf, dtype=torch.float64)

    def current(self) -> tuple[Tensor, list[int]]:
        """Images that still move, and their rows in the task."""
        return self.images[self.active], [self.rows[place] for place in self.active]

    def leave(self, losses: Tensor, *, keep_best: bool, early: bool) -> bool:
        """Note the losses of the images that move, and let those go that are broken; False when none is left."""
        if keep_best:
            self._note(losses)
        chosen = [self.rows[place] for place in self.active]
        gone = self.task.reached(losses, chosen).tolist() if early else [False] * len(chosen)
        self.stayed = [number for number, left in enumerate(gone) if not left]
        self.active = [self.active[number] for number in self.stayed]
        return bool(self.active)

    def move(self, images: Tensor) -> None:
        """Where the images that still move are now."""
        self.images[self.active] = images.detach()

    def finish(self, *, keep_best: bool) -> Tensor:
        """The images at the end; with `keep_best` each at its highest loss, the last one asked for it too."""
        if not keep_best:
            return self.images
        if self.active:
            images, chosen = self.current()
            self._note(self.task.losses(images, chosen))
        return self._best

    def _note(self, losses: Tensor) -> None:
        places = torch.as_tensor(self.active)
        better = losses > self._losses[places]
        kept = places[better]
        self._losses[kept] = losses[better]
        self._best[kept.to(self._best.device)] = self.images[kept.to(self.images.device)]
