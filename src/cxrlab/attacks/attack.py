"""Base classes of attacks: `Attack` verifies what a subclass returns, `AttackTask` evaluates the objective.

Whatever `perturb` returns is projected into the ball, [0, 1] and the region, checked bit by bit and scored again from
the stored image, so that a subclass cannot report a success that the stored image does not have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import torch
from torch import Tensor

from cxrlab.attacks.config import AttackSettings, Budget
from cxrlab.attacks.norm_balls import change_norms, project, project_exactly, random_in_ball, random_on_sphere
from cxrlab.attacks.objectives import Objective
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.core.randomness import generator

if TYPE_CHECKING:
    from numpy.random import Generator

    Rows = Sequence[int]

_SLACK = 1e-9  # of a sum of squares in double precision


@dataclass(frozen=True, eq=False)
class AttackResult:
    """Images after an attack, with everything measured on the stored pixels; every other field has shape [B]."""

    images: Tensor  # [B, C, H, W] float32, within the ball and [0, 1]
    initial_loss: Tensor  # On the clean images
    final_loss: Tensor  # On the stored images
    succeeded: Tensor  # Whether the objective is reached
    linf: Tensor  # Largest change of a pixel
    l2: Tensor  # Euclidean length of the change
    passes: Tensor  # Forward passes spent, without those that score the result
    zero_gradients: Tensor  # Share of gradients that were 0 everywhere; not-a-number without any gradient


class Attack(ABC):
    """Base class of perturbation attacks. Subclasses implement `perturb`; `__call__` projects, verifies and scores.

    Attributes:
        name: Row of the table of attacks.
        white_box: Needs gradients.
        needs_scores: Needs a loss for each image, not only the generated text.
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

    def __init__(self, settings: AttackSettings | None = None) -> None:
        self.settings = settings or AttackSettings()

    def __init_subclass__(cls, **more: object) -> None:
        """Refuse a subclass that would bypass the verification."""
        super().__init_subclass__(**more)
        if "__call__" in cls.__dict__:
            raise TypeError(f"{cls.__name__} must not define __call__, which verifies the result; define perturb.")

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
        initial_loss: Tensor | None = None,
        micro_batch: BatchSize | None = None,
    ) -> AttackResult:
        """Attack a batch of images; the result for an image does not depend on the others.

        Args:
            objective: Its rows are the positions in this batch.
            images: [B, C, H, W] float32 in [0, 1].
            budget: The ball around each image.
            keys: Name of each image; with the seed it decides every random number used for it.
            region: [B or 1, 1, H, W] of 0 and 1: where pixels may change; everywhere when None.
            initial_images: Start of the search, such as the result for a smaller radius; the clean images when None.
            initial_loss: Losses of the clean images, where an earlier attack with this objective has computed them.
            micro_batch: Images whose gradients are computed at once; all when None. The result is the same.
        """
        clean = check_images(images, keys, region)
        if initial_images is not None and (
            initial_images.shape != clean.shape or not bool(initial_images.isfinite().all())
        ):
            raise DataError(
                f"Initial images have shape {list(initial_images.shape)}; expected {list(clean.shape)}, the shape of the "
                "clean images, with finite values."
            )
        self.check_support(objective)
        task = AttackTask(objective, clean, budget, tuple(keys), seed, region, initial_images, micro_batch)
        if initial_loss is None:
            initial_loss = task.uncounted_losses(clean)
        perturbed = clean if budget.eps == 0 else self.perturb(task).detach()
        passes, zero_gradients = task.passes(), task.zero_gradients()
        if perturbed.shape != clean.shape or not bool(perturbed.isfinite().all()):
            raise RuntimeError(
                f"Attack '{self.name}' returned images of another shape or with values that are not finite."
            )
        stored = task.project_exactly(perturbed.to(clean))
        size = change_norms(stored.double() - clean.double(), budget.norm)
        if bool((size > budget.eps * (1 + _SLACK)).any()) or bool(((stored < 0) | (stored > 1)).any()):
            raise RuntimeError(f"Images of attack '{self.name}' lie outside their ball after projection.")
        with torch.no_grad():
            succeeded = objective.succeeded(stored, task.rows).detach().cpu().bool()
        return AttackResult(
            images=stored,
            initial_loss=initial_loss,
            final_loss=task.uncounted_losses(stored),
            succeeded=succeeded,
            linf=change_norms(stored.double() - clean.double(), "linf").cpu(),
            l2=change_norms(stored.double() - clean.double(), "l2").cpu(),
            passes=passes,
            zero_gradients=zero_gradients,
        )

    @abstractmethod
    def perturb(self, task: AttackTask) -> Tensor:
        """Perturbed images [B, C, H, W]; the caller projects them into ball, range and region."""

    def check_support(self, objective: Objective) -> None:
        """Refuse an objective that lacks the gradients or scores that this attack needs."""
        if self.white_box and not objective.gradients:
            raise ConfigError(
                f"Attack '{self.name}' needs gradients, which this model does not provide. Use a black-box attack "
                "(--attacks random-report or --attacks square-report) or the control 'noise'."
            )
        if self.needs_scores and not objective.scores:
            raise ConfigError(
                f"Attack '{self.name}' needs a score for each image, and this model returns only text. "
                f"Use --attacks {self.name}-report, or another attack by reports."
            )


def check_images(images: Tensor, keys: Sequence[str], region: Tensor | None) -> Tensor:
    """The images, detached; a `DataError` where images, keys or region cannot be used."""
    if images.ndim != 4 or images.dtype != torch.float32:
        raise DataError(
            f"Images have shape {list(images.shape)} and type {images.dtype}; an attack takes one tensor [B, C, H, W] of "
            "float32, since half precision cannot hold a change of one grey level."
        )
    if not len(images) or len(keys) != len(images) or len(set(keys)) < len(keys):
        raise DataError(f"{len(images)} images came with {len(set(keys))} different keys; give each image its own key.")
    if not bool(((images >= 0) & (images <= 1)).all()):
        raise DataError("Images to attack have pixels outside [0, 1]; scale them to [0, 1].")
    fits = [(1, len(images)), (1, images.shape[1]), images.shape[2:3], images.shape[3:]]
    if region is not None and not (
        region.ndim == 4 and all(size in sizes for size, sizes in zip(region.shape, fits, strict=True))
    ):
        raise DataError(
            f"The region has shape {list(region.shape)}, which does not fit images {list(images.shape)}; "
            "expected [B or 1, 1, H, W]."
        )
    return images.detach()


class AttackTask:
    """What one call of an attack works on: objective, clean images, ball and region, and the passes spent so far.

    Methods take images together with their `rows`, the positions in the batch, so that images that are finished can
    leave the batch. Results about images are on the CPU.

    Args:
        initial_images: Projected into the ball. Where the objective is flat at the clean images, those that equal the
            clean image are replaced by random ones.
        micro_batch: Images whose gradients are computed at once, halved where they do not fit in memory; all when None.

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
        micro_batch: BatchSize | None = None,
    ) -> None:
        self.micro_batch = micro_batch or BatchSize(len(clean))
        self.objective, self.clean, self.budget, self.keys, self.seed = objective, clean, budget, keys, seed
        self.rows = list(range(len(clean)))
        self.region = None if region is None else region.to(clean).expand(len(clean), *region.shape[1:])
        self.has_initial_images = initial_images is not None
        self.initial_images = clean if initial_images is None else self.project_exactly(initial_images.to(clean))
        self._passes, self._gradients, self._zero = (torch.zeros(len(clean), dtype=torch.long) for _ in range(3))
        if objective.zero_gradient_at_clean:
            unchanged = (self.initial_images == clean).flatten(1).all(dim=1).reshape(-1, 1, 1, 1)
            self.initial_images = torch.where(unchanged, self.random_images(self.rows, "beside"), self.initial_images)

    def __len__(self) -> int:
        return len(self.clean)

    def loss_and_gradient(self, images: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Losses [len(rows)] on the CPU and their gradients in the shape of the images; one pass per image.

        The sum of the losses is differentiated: images do not influence each other, so each gets its own gradient. A
        model that ignores the pixels has the gradient 0.
        """
        selected = list(rows)
        self._passes[selected] += 1

        def differentiate(places: Rows) -> Iterable[tuple[Tensor, Tensor]]:
            pixels = images[list(places)].detach().clone().requires_grad_()
            with torch.enable_grad():
                losses = self.objective.losses(pixels, [selected[place] for place in places])
                gradients = torch.zeros_like(pixels)
                if losses.requires_grad:
                    gradients = torch.autograd.grad(losses.sum(), pixels, allow_unused=True, materialize_grads=True)[0]
            return zip(losses.detach(), gradients.detach(), strict=True)

        found = self.micro_batch.map(range(len(selected)), differentiate)
        losses = torch.stack([loss for loss, _ in found])
        gradients = torch.nan_to_num(torch.stack([gradient for _, gradient in found]))
        self._gradients[selected] += 1
        self._zero[selected] += (gradients.flatten(1).abs().amax(dim=1) == 0).cpu().long()
        if self.region is not None:
            gradients = gradients * self.region[selected]
        return losses.double().cpu(), gradients

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Losses without gradients, [len(rows)]; one pass per image."""
        self._passes[list(rows)] += 1
        with torch.no_grad():
            return self.objective.losses(images, rows).detach().double().cpu()

    def uncounted_losses(self, images: Tensor) -> Tensor:
        """Losses of the whole batch without gradients, [B] float64; they do not count as passes."""
        with torch.no_grad():
            return self.objective.losses(images, self.rows).detach().double().cpu()

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """Whether the objective is reached on each image, [len(rows)] bool; one pass per image."""
        self._passes[list(rows)] += 1
        with torch.no_grad():
            return self.objective.succeeded(images, rows).detach().cpu().bool()

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor:
        """Whether the losses show success, [len(rows)] bool; False where only the model's answer decides."""
        known = self.objective.succeeded_by_loss(losses, rows)
        return torch.zeros(len(losses), dtype=torch.bool) if known is None else known.cpu().bool()

    def check_success(self, images: Tensor, losses: Tensor, rows: Rows) -> Tensor:
        """Success by the losses where they decide it, else by one more pass; [len(rows)] bool."""
        known = self.objective.succeeded_by_loss(losses, rows)
        return self.succeeded(images, rows) if known is None else known.cpu().bool()

    def within_region(self, images: Tensor, rows: Rows) -> Tensor:
        """The images with every pixel outside the region set back to the clean one."""
        if self.region is None:
            return images
        return torch.where(self.region[list(rows)] > 0, images, self.clean[list(rows)])

    def project(self, images: Tensor, rows: Rows | None = None) -> Tensor:
        """The nearest images within region, ball and range."""
        selected = self.rows if rows is None else list(rows)
        return project(self.within_region(images, selected), self.clean[selected], self.budget.eps, self.budget.norm)

    def project_exactly(self, images: Tensor, rows: Rows | None = None) -> Tensor:
        """As `project`, and within the ball to the last bit: the images that the caller of the attack gets."""
        selected = self.rows if rows is None else list(rows)
        return project_exactly(
            self.within_region(images, selected), self.clean[selected], self.budget.eps, self.budget.norm
        )

    def generators(self, rows: Rows, *names: str | int) -> list[Generator]:
        """A random generator for each image; it does not depend on the batch."""
        return [generator(self.seed, "attack", *names, self.keys[row]) for row in rows]

    def random_images(self, rows: Rows, *names: str | int, on_sphere: bool = False) -> Tensor:
        """An image drawn from the ball around each clean one, or with `on_sphere` from its surface."""
        draw = random_on_sphere if on_sphere else random_in_ball
        shape = (len(rows), *self.clean.shape[1:])
        change = draw(shape, self.budget.eps, self.budget.norm, self.generators(rows, *names))
        return self.project(self.clean[list(rows)] + change.to(self.clean), rows)

    def subset(self, rows: Rows) -> AttackTask:
        """The same task for some of the images, with its own count of passes; see `add_passes`."""
        selected = list(rows)
        return AttackTask(
            _SubsetObjective(self.objective, selected),
            self.clean[selected],
            self.budget,
            tuple(self.keys[row] for row in selected),
            self.seed,
            None if self.region is None else self.region[selected],
            self.initial_images[selected] if self.has_initial_images else None,
            self.micro_batch,
        )

    def add_passes(self, subset: AttackTask, rows: Rows) -> None:
        """Count what a subset of these rows spent."""
        selected = list(rows)
        self._passes[selected] += subset._passes
        self._gradients[selected] += subset._gradients
        self._zero[selected] += subset._zero

    def passes(self) -> Tensor:
        """Forward passes spent on each image so far, [B]."""
        return self._passes.clone()

    def zero_gradients(self) -> Tensor:
        """Share of each image's gradients that were 0 everywhere, [B] float64; not-a-number without any."""
        return self._zero.double() / torch.where(self._gradients > 0, self._gradients, torch.nan)


class _SubsetObjective(Objective):
    """An objective for some of its images, with rows counted from 0."""

    def __init__(self, whole: Objective, rows: list[int]) -> None:
        self.whole, self.rows = whole, rows
        self.name, self.gradients, self.scores = whole.name, whole.gradients, whole.scores
        self.zero_gradient_at_clean = whole.zero_gradient_at_clean

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Those of the whole objective."""
        return self.whole.losses(images, [self.rows[row] for row in rows])

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """As in the whole objective."""
        return self.whole.succeeded(images, [self.rows[row] for row in rows])

    def succeeded_by_loss(self, losses: Tensor, rows: Rows) -> Tensor | None:
        """As in the whole objective."""
        return self.whole.succeeded_by_loss(losses, [self.rows[row] for row in rows])


class BestSoFar:
    """The best image of each row so far: a successful one before any other, then the one with the highest loss."""

    def __init__(self, task: AttackTask) -> None:
        self.images = task.clean.clone()
        self.losses = torch.full((len(task),), -torch.inf, dtype=torch.float64)
        self.succeeded = torch.zeros(len(task), dtype=torch.bool)

    def update(
        self, images: Tensor, losses: Tensor, rows: Rows, succeeded: Tensor | None = None, *, latest: bool = False
    ) -> Tensor:
        """Keep what is better than before, or with `latest` everything; returns what was kept, [len(rows)] bool."""
        selected = torch.as_tensor(list(rows))
        success = torch.zeros(len(selected), dtype=torch.bool) if succeeded is None else succeeded
        before = self.succeeded[selected]
        better = (success & ~before) | ((success == before) & (losses > self.losses[selected]))
        better |= torch.full_like(better, latest)
        kept = selected[better]
        self.images[kept.to(self.images.device)] = images[better.to(images.device)].detach()
        self.losses[kept] = losses[better]
        self.succeeded[kept] = success[better]
        return better
