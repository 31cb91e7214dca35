"""The worst case of several attacks, image by image."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import ClassVar

from torch import Tensor

from cxrlab.attacks.attack import Attack, AttackTask, BestSoFar
from cxrlab.attacks.config import ATTACKS, AttackSettings
from cxrlab.attacks.objectives import Objective

_WITH_GRADIENTS = ("fgsm", "pgd", "apgd")
_WITH_SCORES = ("square",)
_BY_REPORT = ("square-report", "random-report")


class Ensemble(Attack):
    """Several attacks with the same seed; the worst of their images and the initial one is kept.

    An image on which the attack succeeds is worse than any other; otherwise the higher loss is. With `early_exit` an
    attack gets only the images on which none before it succeeded.

    Args:
        settings: Of every member.
        members: Names of the attacks, in order; by default those that the objective has gradients and scores for.
    """

    name: ClassVar[str] = "ensemble"
    white_box: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False
    starts_from_smaller_radius: ClassVar[bool] = True  # so that the worst case never falls with the radius

    def __init__(self, settings: AttackSettings | None = None, members: Sequence[str] | None = None) -> None:
        super().__init__(settings)
        self.members = None if members is None else tuple(members)

    def perturb(self, task: AttackTask) -> Tensor:
        """The passes of every member, and one or two per image to compare each of its images."""
        names = self.members or default_members(task.objective)
        members: list[Attack] = [ATTACKS.load(name)(self.settings) for name in names]
        for member in members:
            member.check_support(task.objective)
        best = BestSoFar(task)
        active = self._compare(task, best, task.initial_images, task.rows)
        for member in members:
            if not active:
                break
            subset = task.subset(active)
            found = member.perturb(subset).detach()
            task.add_passes(subset, active)
            # Compared as they will be stored: the last bit of a pixel may decide which is worse.
            active = self._compare(task, best, task.project_exactly(found, active), active)
        return best.images

    def _compare(self, task: AttackTask, best: BestSoFar, images: Tensor, rows: list[int]) -> list[int]:
        """Keep what is worse than before; returns the rows that the next attack gets."""
        losses = task.losses(images, rows)
        succeeded = task.check_success(images, losses, rows)
        best.update(images, losses, rows, succeeded)
        return list(compress(rows, ~succeeded)) if self.settings.early_exit else rows


def default_members(objective: Objective) -> tuple[str, ...]:
    """Every kind of attack that an objective allows: with gradients, with scores, or else by reports."""
    selected = (_WITH_GRADIENTS if objective.gradients else ()) + (_WITH_SCORES if objective.scores else ())
    return selected or _BY_REPORT
