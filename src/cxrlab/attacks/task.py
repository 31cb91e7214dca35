"""One batch under attack: what a subclass of `Attack` works with.

It counts passes, watches gradients, keeps images in their ball and region, and takes images that are broken out of the
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cxrlab.attacks.budget import Budget
from cxrlab.attacks.geometry import inside, project, random_change, random_edge
from cxrlab.attacks.objective import Objective
from cxrlab.core.randomness import generator

if TYPE_CHECKING:
    from numpy.random import Generator

    Rows = Sequence[int]


class Task:
    """Images, aim and budget of one call.

    Args:
        objective: The aim.
        clean: The images, [B, C, H, W] float32.
        budget: The ball.
        keys: Name of each image.
        seed: Of everything random.
        region: [B or 1, 1, H, W] of 0 and 1, or None.
        begin: Images to begin from, or None; moved into the ball where they are outside. An objective that is flat at
            the clean images begins at random ones in their place.

    Attributes:
        warm: Whether `begin` was given.
    """

    def __init__(
        self,
        objective: Objective,
        clean: Tensor,
        budget: Budget,
        keys: tuple[str, ...],
        seed: int,
        region: Tensor | None = None,
        begin: Tensor | None = None,
    ) -> None:
        self.objective, self.clean, self.budget, self.keys, self.seed = objective, clean, budget, keys, seed
        self.region = None if region is None else region.to(clean).expand(len(clean), *region.shape[1:])
        self.warm = begin is not None
        self.begin = clean if begin is None else self.stored(begin.to(clean))
        self._passes = torch.zeros(len(clean), dtype=torch.long)
        self._gradients = torch.zeros(len(clean), dtype=torch.long)
        self._zero = torch.zeros(len(clean), dtype=torch.long)
        if objective.flat_at_clean:
            still = (self.begin == clean).flatten(1).all(dim=1).reshape(-1, 1, 1, 1)
            self.begin = torch.where(still, self.random_images(self.rows, "beside"), self.begin)

    def __len__(self) -> int:
        return len(self.clean)

    @property
    def rows(self) -> list[int]:
        """Every image of the batch."""
        return list(range(len(self)))

    def generators(self, rows: Rows, *names: str | int) -> list[Generator]:
        """A source of randomness for each image, whatever batch it is in."""
        return [generator(self.seed, "attack", *names, self.keys[row]) for row in rows]

    def within_region(self, images: Tensor, rows: Rows | None = None) -> Tensor:
        """The images with every pixel outside of the region as it was."""
        if self.region is None:
            return images
        chosen = self.rows if rows is None else list(rows)
        return torch.where(self.region[chosen] > 0, images, self.clean[chosen])

    def project(self, images: Tensor, rows: Rows | None = None) -> Tensor:
        """The nearest images within region, ball and range."""
        chosen = self.rows if rows is None else list(rows)
        return project(self.within_region(images, chosen), self.clean[chosen], self.budget.eps, self.budget.norm)

    def stored(self, images: Tensor, rows: Rows | None = None) -> Tensor:
        """As `project`, and within the ball to the last bit: the images as the caller of the attack will get them."""
        chosen = self.rows if rows is None else list(rows)
        return inside(self.within_region(images, chosen), self.clean[chosen], self.budget.eps, self.budget.norm)

    def random_images(self, rows: Rows, *names: str | int, edge: bool = False) -> Tensor:
        """An image drawn from the ball around each clean one, or with `edge` from its surface."""
        draw = random_edge if edge else random_change
        shape = (len(rows), *self.clean.shape[1:])
        change = draw(shape, self.budget.eps, self.budget.norm, self.generators(rows, *names))
        return self.project(self.clean[list(rows)] + change.to(self.clean), rows)

    def value(self, images: Tensor) -> Tensor:
        """Losses of the whole batch without gradients, not counted as passes; [B] float64 on the CPU."""
        with torch.no_grad():
            return self.objective.losses(images, self.rows).detach().double().cpu()

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Losses without gradients, [len(rows)] on the CPU; one pass an image."""
        self._passes[list(rows)] += 1
        with torch.no_grad():
            return self.objective.losses(images, rows).detach().double().cpu()

    def gradients(self, images: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """(losses [len(rows)] on the CPU, their gradients in the shape of the images); one pass an image.

        The sum of the losses is differentiated: images do not influence each other, so each gets its own gradient.
        """
        chosen = list(rows)
        self._passes[chosen] += 1
        asked = images.detach().clone().requires_grad_()
        with torch.enable_grad():
            found = self.objective.losses(asked, rows)
            slope = _slope(found, asked)
        slope = torch.nan_to_num(slope.detach())
        self._gradients[chosen] += 1
        self._zero[chosen] += (slope.flatten(1).abs().amax(dim=1) == 0).cpu().long()
        if self.region is not None:
            slope = slope * self.region[chosen]
        return found.detach().double().cpu(), slope

    def broken(self, images: Tensor, rows: Rows) -> Tensor:
        """Whether each image is broken, [len(rows)] bool on the CPU; one pass an image."""
        self._passes[list(rows)] += 1
        with torch.no_grad():
            return self.objective.broken(images, rows).detach().cpu().bool()

    def reached(self, losses: Tensor, rows: Rows) -> Tensor:
        """Whether losses tell that the images are broken, [len(rows)] bool; False where only an answer tells."""
        told = self.objective.reached(losses, rows)
        return torch.zeros(len(losses), dtype=torch.bool) if told is None else told.cpu().bool()

    def verdict(self, images: Tensor, losses: Tensor, rows: Rows) -> Tensor:
        """Whether each image is broken, [len(rows)] bool: by its loss where that tells, else by one more pass."""
        told = self.objective.reached(losses, rows)
        return self.broken(images, rows) if told is None else told.cpu().bool()

    def part(self, rows: Rows) -> Task:
        """The same task for some of its images, with passes of its own; see `absorb`."""
        chosen = list(rows)
        return Task(
            _Part(self.objective, chosen),
            self.clean[chosen],
            self.budget,
            tuple(self.keys[row] for row in chosen),
            self.seed,
            None if self.region is None else self.region[chosen],
            self.begin[chosen] if self.warm else None,
        )

    def absorb(self, part: Task, rows: Rows) -> None:
        """Count what a part spent on these rows."""
        chosen = list(rows)
        self._passes[chosen] += part._passes
        self._gradients[chosen] += part._gradients
        self._zero[chosen] += part._zero

    def passes(self) -> Tensor:
        """Spent on each image so far, [B]."""
        return self._passes.clone()

    def zero_gradients(self) -> Tensor:
        """Share of each image's gradients that were 0 everywhere, [B] float64; not-a-number without any."""
        return self._zero.double() / torch.where(self._gradients > 0, self._gradients, torch.nan)


class _Part(Objective):
    """An objective for some of its images, whose rows are counted anew."""

    def __init__(self, whole: Objective, rows: list[int]) -> None:
        self.whole, self.rows = whole, rows
        self.name, self.gradients, self.scores = whole.name, whole.gradients, whole.scores
        self.flat_at_clean = whole.flat_at_clean

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """As the whole objective gives them."""
        return self.whole.losses(images, self._of_whole(rows))

    def broken(self, images: Tensor, rows: Rows) -> Tensor:
        """As the whole objective says."""
        return self.whole.broken(images, self._of_whole(rows))

    def reached(self, losses: Tensor, rows: Rows) -> Tensor | None:
        """As the whole objective says."""
        return self.whole.reached(losses, self._of_whole(rows))

    def _of_whole(self, rows: Rows) -> list[int]:
        return [self.rows[row] for row in rows]


def _slope(losses: Tensor, images: Tensor) -> Tensor:
    """The gradient of the sum; 0 where a model does not look and leaves no way back to the pixels."""
    if not losses.requires_grad:
        return torch.zeros_like(images)
    return torch.autograd.grad(losses.sum(), images, allow_unused=True, materialize_grads=True)[0]


class Best:
    """The best image seen of each row, by loss; a broken one is better than any that is not.

    Args:
        task: Whose images.
    """

    def __init__(self, task: Task) -> None:
        self.images = task.clean.clone()
        self.losses = torch.full((len(task),), -torch.inf, dtype=torch.float64)
        self.broken = torch.zeros(len(task), dtype=torch.bool)

    def take(self, images: Tensor, losses: Tensor, rows: Rows, broken: Tensor | None = None) -> Tensor:
        """Keep what is better than before; returns which were, [len(rows)] bool."""
        chosen = torch.as_tensor(list(rows))
        there = torch.zeros(len(chosen), dtype=torch.bool) if broken is None else broken
        had = self.broken[chosen]
        better = (there & ~had) | ((there == had) & (losses > self.losses[chosen]))
        kept = chosen[better]
        self.images[kept.to(self.images.device)] = images[better.to(images.device)].detach()
        self.losses[kept] = losses[better]
        self.broken[kept] = there[better]
        return better
