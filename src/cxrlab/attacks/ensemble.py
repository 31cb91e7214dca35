"""The worst case of several attacks, image by image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from cxrlab.attacks.attack import Attack, AttackTask, BestSoFar
from cxrlab.attacks.config import ATTACKS, AttackSettings
from cxrlab.attacks.objectives import Objective

_WITH_GRADIENTS = ("fgsm", "pgd", "apgd")
_WITH_SCORES = ("square",)
_BY_REPORT = ("square-report", "random-report")


class Ensemble(Attack):
    """Several attacks, each with the same seed; of their images and the one to begin from, the worst is kept.

    An image that breaks the model is worse than any that does not; otherwise the higher loss is. With `early_exit` an
    attack sees only the images that none before it has broken.

    Args:
        settings: Of every member.
        members: Names of the attacks, in order; None takes those that the objective has gradients and scores for.
    """

    name: ClassVar[str] = "ensemble"
    white_box: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False
    starts_from_smaller_radius: ClassVar[bool] = True  # so that the worst case never falls with the radius

    def __init__(self, settings: AttackSettings | None = None, members: Sequence[str] | None = None) -> None:
        self.settings = settings or AttackSettings()
        self.members = None if members is None else tuple(members)

    def perturb(self, task: AttackTask) -> Tensor:
        """The passes of every member, and one or two an image to compare each of its images."""
        members = [self._member(name, task.objective) for name in self.members or default_members(task.objective)]
        best = BestSoFar(task)
        left = self._compare(task, best, task.initial_images, task.rows)
        for member in members:
            if not left:
                break
            part = task.part(left)
            found = member.perturb(part).detach()
            task.absorb(part, left)
            # Compared as they will be stored: a last bit of a pixel may decide which is worse.
            left = self._compare(task, best, task.stored(found, left), left)
        return best.images

    def _member(self, name: str, objective: Objective) -> Attack:
        member: Attack = ATTACKS.load(name)(self.settings)
        member._refuse(objective)
        return member

    def _compare(self, task: AttackTask, best: BestSoFar, found: Tensor, rows: list[int]) -> list[int]:
        """Keep what is worse than before; returns the rows that the next attack sees."""
        losses = task.losses(found, rows)
        there = task.verdict(found, losses, rows)
        best.take(found, losses, rows, there)
        if not self.settings.early_exit:
            return rows
        return [row for row, gone in zip(rows, there.tolist(), strict=True) if not gone]


def default_members(objective: Objective) -> tuple[str, ...]:
    """Every kind of attack that an objective allows: by gradients, by scores, or else by reports."""
    chosen = (_WITH_GRADIENTS if objective.gradients else ()) + (_WITH_SCORES if objective.scores else ())
    return chosen or _BY_REPORT
