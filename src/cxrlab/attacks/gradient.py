"""Attacks that follow the gradient: FGSM, PGD and MI-FGSM.

FGSM takes one step of length ε. PGD takes many short ones, each brought back into the ball, from a random image of it.
MI-FGSM steps along a decaying sum of the gradients, each divided by its mean absolute value.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from cxrlab.attacks.attack import Attack, AttackTask, BestSoFar
from cxrlab.attacks.config import AttackSettings
from cxrlab.attacks.geometry import steepest_direction

_TINY = 1e-12


class Fgsm(Attack):
    """One step of the whole radius up the gradient."""

    name: ClassVar[str] = "fgsm"

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def perturb(self, task: AttackTask) -> Tensor:
        """One pass an image: at the clean one, or where that one has no slope at a random image of its ball."""
        flat = task.objective.zero_gradient_at_clean
        _, slope = task.gradients(task.random_images(task.rows, self.name) if flat else task.clean, task.rows)
        return task.project(task.clean + task.budget.eps * steepest_direction(slope, task.budget.norm))


class Pgd(Attack):
    """Projected gradient steps."""

    name: ClassVar[str] = "pgd"

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def perturb(self, task: AttackTask) -> Tensor:
        """`steps` passes an image for each restart, and one to compare restarts."""
        settings = self.settings
        if settings.restarts == 1:
            return self._climb(task, task.rows, 0)
        best = BestSoFar(task)
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

    def _climb(self, task: AttackTask, rows: list[int], restart: int) -> Tensor:
        """One run over some images of the task; [len(rows), C, H, W]."""
        begin = (
            task.random_images(rows, self.name, restart) if self._random(task, restart) else task.initial_images[rows]
        )
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

    def _random(self, task: AttackTask, restart: int) -> bool:
        return restart > 0 or (self.settings.random_start and not task.has_initial_images)

    def step(self, task: AttackTask, rows: list[int], slope: Tensor) -> Tensor:
        """What is added to the images of these rows."""
        return self.settings.step_size * task.budget.eps * steepest_direction(slope, task.budget.norm)


class MiFgsm(Pgd):
    """PGD from the clean image along a decaying sum of gradients."""

    name: ClassVar[str] = "mi-fgsm"

    def perturb(self, task: AttackTask) -> Tensor:
        """`steps` passes an image; it has no restarts, since it begins where the clean image is."""
        self._sums = torch.zeros_like(task.clean)
        return self._climb(task, task.rows, 0)

    def _random(self, task: AttackTask, restart: int) -> bool:
        return False

    def step(self, task: AttackTask, rows: list[int], slope: Tensor) -> Tensor:
        """ε / steps along the sum."""
        scale = slope.flatten(1).abs().mean(dim=1).clamp(min=_TINY).reshape(-1, 1, 1, 1)
        self._sums[rows] = self.settings.momentum * self._sums[rows] + slope / scale
        return task.budget.eps / self.settings.steps * steepest_direction(self._sums[rows], task.budget.norm)


class _State:
    """Images on their way, those that are done among them."""

    def __init__(self, task: AttackTask, rows: list[int], initial_images: Tensor) -> None:
        self.task, self.rows, self.images = task, rows, initial_images.clone()
        self.active = list(range(len(rows)))  # places in `rows` of the images that still move
        self.stayed: list[int] = []  # of those last asked, the places of the ones that did not leave
        self._best = initial_images.clone()
        self._losses = torch.full((len(rows),), -torch.inf, dtype=torch.float64)

    def current(self) -> tuple[Tensor, list[int]]:
        """Images that still move, and their rows in the task."""
        return self.images[self.active], [self.rows[place] for place in self.active]

    def leave(self, losses: Tensor, *, keep_best: bool, early: bool) -> bool:
        """Note the losses of the images that move, and let those go that are broken; False when none is left."""
        if keep_best:
            self._note(losses)
        chosen = [self.rows[place] for place in self.active]
        gone = self.task.succeeded_by_loss(losses, chosen).tolist() if early else [False] * len(chosen)
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


_NEW = 0.75  # share of the gradient step in a move; the rest is the move before
_RISING = 0.75  # share of the steps between two checkpoints that must raise the loss


class Apgd(Attack):
    """Gradient steps with momentum and a step size of their own; the best image is kept."""

    name: ClassVar[str] = "apgd"

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def perturb(self, task: AttackTask) -> Tensor:
        """`steps` + 1 passes an image for each restart."""
        best, left = BestSoFar(task), task.rows
        compared = self.settings.early_exit and self.settings.restarts > 1
        for restart in range(self.settings.restarts):
            found, losses = self._climb(task, left, restart)
            there = task.verdict(found, losses, left) if compared else None
            best.take(found, losses, left, there)
            if there is not None:
                left = [row for row, gone in zip(left, there.tolist(), strict=True) if not gone]
            if not left:
                break
        return best.images

    def _climb(self, task: AttackTask, rows: list[int], restart: int) -> tuple[Tensor, Tensor]:
        """One run over some images of the task; (best images, their losses)."""
        walk = _Walk(task, rows, self._begin(task, rows, restart))
        windows = checkpoints(self.settings.steps)
        for number in range(1, self.settings.steps + 1):
            if self.settings.early_exit:
                walk.leave()
            if not walk.active:
                break
            walk.step(1.0 if number == 1 else _NEW)
            walk.look(last=number == self.settings.steps)
            if number in windows:
                walk.judge(windows[number])
        return walk.best, walk.best_losses

    def _begin(self, task: AttackTask, rows: list[int], restart: int) -> Tensor:
        if restart > 0 or (self.settings.random_start and not task.has_initial_images):
            return task.random_images(rows, self.name, restart, edge=True)
        return task.initial_images[rows]


def checkpoints(steps: int) -> dict[int, int]:
    """Steps after which step sizes are judged, each with the number of steps since the checkpoint before.

    The first comes after 22 % of the steps; each wait is 3 % of them shorter than the last, 6 % at least.
    """
    window, shrink, least = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    found: dict[int, int] = {}
    at = window
    while at <= steps:
        found[at] = window
        window = max(window - shrink, least)
        at += window
    return found


class _Walk:
    """Images on their way, each with its own step; those that are done stay where they were best."""

    def __init__(self, task: AttackTask, rows: list[int], initial_images: Tensor) -> None:
        self.task, self.rows = task, rows
        self.active = list(range(len(rows)))  # places in `rows` of the images that still move
        self.images, self.before = initial_images.clone(), initial_images.clone()
        self.losses, self.slope = task.gradients(initial_images, rows)
        self.best, self.best_losses, self.best_slope = initial_images.clone(), self.losses.clone(), self.slope.clone()
        self.length = torch.full(
            (len(rows), 1, 1, 1), 2 * task.budget.eps, dtype=initial_images.dtype, device=initial_images.device
        )
        self.rises = torch.zeros(len(rows), dtype=torch.long)
        self.mark = self.losses.clone()  # best losses at the last checkpoint
        self.halved = torch.ones(len(rows), dtype=torch.bool)

    def leave(self) -> None:
        """Let the images go whose loss says that they are broken."""
        done = self.task.succeeded_by_loss(self.losses[self.active], self._chosen()).tolist()
        for place, gone in zip(self.active, done, strict=True):
            if gone:
                self.best[place], self.best_losses[place] = self.images[place], self.losses[place]
        self.active = [place for place, gone in zip(self.active, done, strict=True) if not gone]

    def step(self, new: float) -> None:
        """Move: `new` of the way to where the gradient leads, the rest as the image moved before."""
        task, active, chosen = self.task, self.active, self._chosen()
        here = self.images[active]
        drift = here - self.before[active]
        self.before[active] = here
        ahead = task.project(
            here + self.length[active] * steepest_direction(self.slope[active], task.budget.norm), chosen
        )
        self.images[active] = task.project(here + new * (ahead - here) + (1 - new) * drift, chosen)

    def look(self, *, last: bool) -> None:
        """Losses and gradients where the images are now; the last step needs no gradient."""
        active, chosen = self.active, self._chosen()
        if last:
            losses = self.task.losses(self.images[active], chosen)
        else:
            losses, self.slope[active] = self.task.gradients(self.images[active], chosen)
        self.rises[active] += (losses > self.losses[active]).long()
        self.losses[active] = losses
        better = [place for place in active if self.losses[place] > self.best_losses[place]]
        self.best_losses[better] = self.losses[better]
        self.best[better], self.best_slope[better] = self.images[better], self.slope[better]

    def judge(self, window: int) -> None:
        """Halve the step of the images that got nowhere, and send them back to their best point."""
        active = torch.as_tensor(self.active)
        restless = self.rises[active] <= _RISING * window
        still = ~self.halved[active] & (self.best_losses[active] <= self.mark[active])
        self.halved[active] = restless | still
        self.mark[active] = self.best_losses[active]
        self.rises[active] = 0
        back = active[restless | still].tolist()
        self.length[back] /= 2
        self.images[back], self.slope[back] = self.best[back], self.best_slope[back]

    def _chosen(self) -> list[int]:
        """Rows in the task of the images that still move."""
        return [self.rows[place] for place in self.active]
