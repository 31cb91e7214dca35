"""The base of every attack: it keeps the promises, a subclass has the idea.

Whatever a subclass returns is moved into the ball and into [0, 1], kept to the region, checked bit by bit, and scored
again from the stored image. A subclass cannot report success; it can only hand over images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import torch
from torch import Tensor

from cxrlab.attacks.config import Budget
from cxrlab.attacks.geometry import change_norms, project, project_exactly, random_in_ball, random_on_sphere
from cxrlab.attacks.objectives import Objective
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.randomness import generator

_SLACK = 1e-9  # of a sum of squares in double precision


@dataclass(frozen=True, eq=False)
class AttackResult:
    """Images after an attack, and what the stored pixels come to.

    Args:
        images: [B, C, H, W] float32, within the ball and [0, 1].
        initial_loss: Loss of each clean image, [B].
        final_loss: Loss of each stored image, [B].
        succeeded: Whether the aim is reached on each stored image, [B] bool.
        linf: Largest change of a pixel, [B].
        l2: Euclidean length of the change, [B].
        passes: Forward passes spent on each image, [B]; those that score the result are not counted.
        zero_gradients: Share of the gradients of each image that were 0 everywhere, [B]; not-a-number without any.
    """

    images: Tensor
    initial_loss: Tensor
    final_loss: Tensor
    succeeded: Tensor
    linf: Tensor
    l2: Tensor
    passes: Tensor
    zero_gradients: Tensor


class Attack(ABC):
    """A way to change images.

    Attributes:
        name: In the table.
        white_box: Needs gradients.
        needs_scores: Needs a number for each image; without it, the words of the answers do.
        starts_from_smaller_radius: In a sweep, start from this image's result at the previous radius.
        text_only: Uses only the generated text, even if the model exposes scores.
        is_control: A baseline without an objective (noise), reported beside the attacks.
    """

    name: ClassVar[str] = ""
    white_box: ClassVar[bool] = True
    needs_scores: ClassVar[bool] = True
    starts_from_smaller_radius: ClassVar[bool] = False
    text_only: ClassVar[bool] = False
    is_control: ClassVar[bool] = False

    def __init_subclass__(cls, **more: object) -> None:
        """A subclass that answers for itself, past the checks, is a mistake of the programmer."""
        super().__init_subclass__(**more)
        if "__call__" in cls.__dict__:
            raise TypeError(f"{cls.__name__} must not define __call__, which keeps the promises; define perturb.")

    @final
    def __call__(
        self,
        objective: Objective,
        images: Tensor,
        budget: Budget,
        *,
        keys: Sequence[str],
        seed: int = 0,
        region: Tensor | None = None,
        initial_images: Tensor | None = None,
    ) -> AttackResult:
        """Attack a batch of images; the result of an image does not depend on the others.

        Args:
            objective: What the attacker wants; its rows are the places in this batch.
            images: [B, C, H, W] float32 in [0, 1].
            budget: How far they may be changed.
            keys: Name of each image, which with the seed decides what is random about it.
            seed: Of everything random.
            region: [B or 1, 1, H, W] of 0 and 1: where pixels may be changed; everywhere when None.
            initial_images: Images in the ball to begin from, such as those of a smaller budget; the clean ones when None.
        """
        clean = checked(images, keys, region)
        if initial_images is not None and (
            initial_images.shape != clean.shape or not bool(initial_images.isfinite().all())
        ):
            raise DataError(
                f"Initial images have shape {list(initial_images.shape)}; expected {list(clean.shape)}, the shape of the "
                "clean images, with finite values."
            )
        self._refuse(objective)
        task = AttackTask(objective, clean, budget, tuple(keys), seed, region, initial_images)
        initial_loss = task.value(clean)
        found = clean if budget.eps == 0 else self.perturb(task).detach()
        passes, zero = task.passes(), task.zero_gradients()
        stored = self._kept(found, task)
        with torch.no_grad():
            succeeded = objective.succeeded(stored, task.rows).detach().cpu().bool()
        return AttackResult(
            images=stored,
            initial_loss=initial_loss,
            final_loss=task.value(stored),
            succeeded=succeeded,
            linf=change_norms(stored.double() - clean.double(), "linf").cpu(),
            l2=change_norms(stored.double() - clean.double(), "l2").cpu(),
            passes=passes,
            zero_gradients=zero,
        )

    @abstractmethod
    def perturb(self, task: AttackTask) -> Tensor:
        """Changed images [B, C, H, W]; where they leave ball, range or region they are moved back."""

    def _refuse(self, objective: Objective) -> None:
        if self.white_box and not objective.gradients:
            raise ConfigError(
                f"the attack '{self.name}' follows gradients and the model gives none; choose a black-box attack "
                "(random-report, square-report) or the control 'noise'."
            )
        if self.needs_scores and not objective.scores:
            raise ConfigError(
                f"the attack '{self.name}' needs a score for each image and the model gives words alone; "
                f"choose '{self.name}-report', or another attack by reports."
            )

    def _kept(self, found: Tensor, task: AttackTask) -> Tensor:
        """The images as they are stored: in the region, the ball and the range, or the program is wrong."""
        clean, budget = task.clean, task.budget
        if found.shape != clean.shape or not bool(found.isfinite().all()):
            raise RuntimeError(
                f"the attack '{self.name}' gave back images of another shape, or with values that are no numbers"
            )
        stored = task.stored(found.to(clean))
        size = change_norms(stored.double() - clean.double(), budget.norm)
        if bool((size > budget.eps * (1 + _SLACK)).any()) or bool(((stored < 0) | (stored > 1)).any()):
            raise RuntimeError(f"images of the attack '{self.name}' are outside of their ball after projection")
        return stored


def checked(images: Tensor, keys: Sequence[str], region: Tensor | None) -> Tensor:
    """The images, detached; a `DataError` where images, names or region are not what an attack can work with."""
    if images.ndim != 4 or images.dtype != torch.float32:
        raise DataError(
            f"images to attack must be one tensor [B, C, H, W] of float32, not {list(images.shape)} of {images.dtype}; "
            "half precision cannot hold a change of one grey level."
        )
    if not len(images) or len(keys) != len(images) or len(set(keys)) < len(keys):
        raise DataError(f"{len(images)} images came with {len(set(keys))} different names; give each image its own.")
    if not bool(((images >= 0) & (images <= 1)).all()):
        raise DataError("images to attack must have pixels in [0, 1].")
    fits = [(1, len(images)), (1, images.shape[1]), images.shape[2:3], images.shape[3:]]
    if region is not None and not (
        region.ndim == 4 and all(size in sizes for size, sizes in zip(region.shape, fits, strict=True))
    ):
        raise DataError(
            f"the region {list(region.shape)} does not fit images {list(images.shape)}; give it as [B or 1, 1, H, W]."
        )
    return images.detach()


if TYPE_CHECKING:
    from numpy.random import Generator

    Rows = Sequence[int]


class AttackTask:
    """Images, aim and budget of one call.

    Args:
        objective: The aim.
        clean: The images, [B, C, H, W] float32.
        budget: The ball.
        keys: Name of each image.
        seed: Of everything random.
        region: [B or 1, 1, H, W] of 0 and 1, or None.
        initial_images: Images to begin from, or None; moved into the ball where they are outside. An objective that is flat at
            the clean images begins at random ones in their place.

    Attributes:
        has_initial_images: Whether `initial_images` was given.
    """

    def __init__(
        self,
        objective: Objective,
        clean: Tensor,
        budget: Budget,
        keys: tuple[str, ...],
        seed: int,
        region: Tensor | None = None,
        initial_images: Tensor | None = None,
    ) -> None:
        self.objective, self.clean, self.budget, self.keys, self.seed = objective, clean, budget, keys, seed
        self.region = None if region is None else region.to(clean).expand(len(clean), *region.shape[1:])
        self.has_initial_images = initial_images is not None
        self.initial_images = clean if initial_images is None else self.stored(initial_images.to(clean))
        self._passes = torch.zeros(len(clean), dtype=torch.long)
        self._gradients = torch.zeros(len(clean), dtype=torch.long)
        self._zero = torch.zeros(len(clean), dtype=torch.long)
        if objective.zero_gradient_at_clean:
            still = (self.initial_images == clean).flatten(1).all(dim=1).reshape(-1, 1, 1, 1)
            self.initial_images = torch.where(still, self.random_images(self.rows, "beside"), self.initial_images)

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
        return project_exactly(
            self.within_region(images, chosen), self.clean[chosen], self.budget.eps, self.budget.norm
        )

    def random_images(self, rows: Rows, *names: str | int, edge: bool = False) -> Tensor:
        """An image drawn from the ball around each clean one, or with `edge` from its surface."""
        draw = random_on_sphere if edge else random_in_ball
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

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """Whether each image is broken, [len(rows)] bool on the CPU; one pass an image."""
        self._passes[list(rows)] += 1
        with torch.no_grad():
            return self.objective.succeeded(images, rows).detach().cpu().bool()

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor:
        """Whether losses tell that the images are broken, [len(rows)] bool; False where only an answer tells."""
        told = self.objective.succeeded_by_loss(losses, rows)
        return torch.zeros(len(losses), dtype=torch.bool) if told is None else told.cpu().bool()

    def verdict(self, images: Tensor, losses: Tensor, rows: Rows) -> Tensor:
        """Whether each image is broken, [len(rows)] bool: by its loss where that tells, else by one more pass."""
        told = self.objective.succeeded_by_loss(losses, rows)
        return self.succeeded(images, rows) if told is None else told.cpu().bool()

    def part(self, rows: Rows) -> AttackTask:
        """The same task for some of its images, with passes of its own; see `absorb`."""
        chosen = list(rows)
        return AttackTask(
            _Part(self.objective, chosen),
            self.clean[chosen],
            self.budget,
            tuple(self.keys[row] for row in chosen),
            self.seed,
            None if self.region is None else self.region[chosen],
            self.initial_images[chosen] if self.has_initial_images else None,
        )

    def absorb(self, part: AttackTask, rows: Rows) -> None:
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
        self.zero_gradient_at_clean = whole.zero_gradient_at_clean

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """As the whole objective gives them."""
        return self.whole.losses(images, self._of_whole(rows))

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """As the whole objective says."""
        return self.whole.succeeded(images, self._of_whole(rows))

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor | None:
        """As the whole objective says."""
        return self.whole.succeeded_by_loss(losses, self._of_whole(rows))

    def _of_whole(self, rows: Rows) -> list[int]:
        return [self.rows[row] for row in rows]


def _slope(losses: Tensor, images: Tensor) -> Tensor:
    """The gradient of the sum; 0 where a model does not look and leaves no way back to the pixels."""
    if not losses.requires_grad:
        return torch.zeros_like(images)
    return torch.autograd.grad(losses.sum(), images, allow_unused=True, materialize_grads=True)[0]


class BestSoFar:
    """The best image seen of each row, by loss; a broken one is better than any that is not.

    Args:
        task: Whose images.
    """

    def __init__(self, task: AttackTask) -> None:
        self.images = task.clean.clone()
        self.losses = torch.full((len(task),), -torch.inf, dtype=torch.float64)
        self.succeeded = torch.zeros(len(task), dtype=torch.bool)

    def take(self, images: Tensor, losses: Tensor, rows: Rows, succeeded: Tensor | None = None) -> Tensor:
        """Keep what is better than before; returns which were, [len(rows)] bool."""
        chosen = torch.as_tensor(list(rows))
        there = torch.zeros(len(chosen), dtype=torch.bool) if succeeded is None else succeeded
        had = self.succeeded[chosen]
        better = (there & ~had) | ((there == had) & (losses > self.losses[chosen]))
        kept = chosen[better]
        self.images[kept.to(self.images.device)] = images[better.to(images.device)].detach()
        self.losses[kept] = losses[better]
        self.succeeded[kept] = there[better]
        return better
