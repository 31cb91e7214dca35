"""The base of every attack: it keeps the promises, a subclass has the idea.

Whatever a subclass returns is moved into the ball and into [0, 1], kept to the region, checked bit by bit, and scored
again from the stored image. A subclass cannot report success; it can only hand over images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from cxrlab.attacks.budget import Budget
from cxrlab.attacks.geometry import lengths
from cxrlab.attacks.objective import Objective
from cxrlab.attacks.task import Task
from cxrlab.core.errors import ConfigError, DataError

_SLACK = 1e-9  # of a sum of squares in double precision


@dataclass(frozen=True, eq=False)
class Perturbed:
    """Images after an attack, and what the stored pixels come to.

    Args:
        images: [B, C, H, W] float32, within the ball and [0, 1].
        start: Loss of each clean image, [B].
        end: Loss of each stored image, [B].
        broken: Whether the aim is reached on each stored image, [B] bool.
        linf: Largest change of a pixel, [B].
        l2: Euclidean length of the change, [B].
        passes: Forward passes spent on each image, [B]; those that score the result are not counted.
        zero_gradients: Share of the gradients of each image that were 0 everywhere, [B]; not-a-number without any.
    """

    images: Tensor
    start: Tensor
    end: Tensor
    broken: Tensor
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
        warm: Goes on from the image of the next smaller radius in a sweep; the others begin anew at every radius.
        by_words: Looks at the words of reports alone, also where a model would tell more.
        control: Stands beside attacks for comparison and follows no aim.
    """

    name: ClassVar[str] = ""
    white_box: ClassVar[bool] = True
    needs_scores: ClassVar[bool] = True
    warm: ClassVar[bool] = False
    by_words: ClassVar[bool] = False
    control: ClassVar[bool] = False

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
        begin: Tensor | None = None,
    ) -> Perturbed:
        """Attack a batch of images; the result of an image does not depend on the others.

        Args:
            objective: What the attacker wants; its rows are the places in this batch.
            images: [B, C, H, W] float32 in [0, 1].
            budget: How far they may be changed.
            keys: Name of each image, which with the seed decides what is random about it.
            seed: Of everything random.
            region: [B or 1, 1, H, W] of 0 and 1: where pixels may be changed; everywhere when None.
            begin: Images in the ball to begin from, such as those of a smaller budget; the clean ones when None.
        """
        clean = checked(images, keys, region)
        if begin is not None and (begin.shape != clean.shape or not bool(begin.isfinite().all())):
            raise DataError(
                f"images to begin from must be numbers in the shape {list(clean.shape)} of the clean ones, "
                f"not {list(begin.shape)}."
            )
        self._refuse(objective)
        task = Task(objective, clean, budget, tuple(keys), seed, region, begin)
        start = task.value(clean)
        found = clean if budget.eps == 0 else self.perturb(task).detach()
        passes, zero = task.passes(), task.zero_gradients()
        stored = self._kept(found, task)
        with torch.no_grad():
            broken = objective.broken(stored, task.rows).detach().cpu().bool()
        return Perturbed(
            images=stored,
            start=start,
            end=task.value(stored),
            broken=broken,
            linf=lengths(stored.double() - clean.double(), "linf").cpu(),
            l2=lengths(stored.double() - clean.double(), "l2").cpu(),
            passes=passes,
            zero_gradients=zero,
        )

    @abstractmethod
    def perturb(self, task: Task) -> Tensor:
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

    def _kept(self, found: Tensor, task: Task) -> Tensor:
        """The images as they are stored: in the region, the ball and the range, or the program is wrong."""
        clean, budget = task.clean, task.budget
        if found.shape != clean.shape or not bool(found.isfinite().all()):
            raise RuntimeError(
                f"the attack '{self.name}' gave back images of another shape, or with values that are no numbers"
            )
        stored = task.stored(found.to(clean))
        size = lengths(stored.double() - clean.double(), budget.norm)
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
