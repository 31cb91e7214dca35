"""Targeted aims, image by image: one that does not apply to an image leaves it alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cxrlab.robustness.audited_models import targeted_objective
from cxrlab.robustness.config import AttackGoals

TWO = "There is a small left pleural effusion. There is cardiomegaly."
AIR, CLEAR = "There is pneumothorax.", "The lungs are clear."


class Lengths:
    """The loss of a report is the number of its letters, and rises with the image."""

    def losses(self, images: Tensor, reports: Sequence[str], indications: Sequence[str | None]) -> Tensor:
        return torch.tensor([float(len(text)) for text in reports]) * images.flatten(1).mean(dim=1)

    def losses_of_each(
        self, images: Tensor, reports: Sequence[Sequence[str]], indications: Sequence[str | None]
    ) -> list[Tensor]:
        return [self.losses(images, one, indications) for one in reports]


def aim(
    name: str, before: Sequence[str], after: Sequence[str], goals: AttackGoals | None = None
) -> tuple[list[float], list[bool]]:
    found = targeted_objective(
        goals or AttackGoals(),
        name,
        Lengths(),
        before,
        [None] * len(before),
        lambda images, rows: [after[row] for row in rows],
    )
    images, rows = torch.ones(len(before), 1, 2, 2), range(len(before))
    assert found.name == name and found.gradients and found.scores
    return found.losses(images, rows).tolist(), found.succeeded(images, rows).tolist()


def test_the_first_finding_of_a_report_is_removed_and_a_normal_one_has_none() -> None:
    """Effusion comes first in the text although cardiomegaly comes first in the alphabet."""
    losses, broken = aim("remove", [TWO, TWO, CLEAR], ["There is cardiomegaly.", "There is a left effusion.", CLEAR])
    wanted = "There is cardiomegaly. There is no pleural effusion."
    assert losses == [len(TWO) - len(wanted)] * 2 + [0.0]
    assert broken == [True, False, False]


def test_a_named_finding_is_removed_where_it_is() -> None:
    losses, broken = aim("remove", [TWO, AIR], [CLEAR, CLEAR], AttackGoals(remove="cardiomegaly"))
    assert losses[0] != 0 and losses[1] == 0 and broken == [True, False]


def test_what_is_there_cannot_be_invented() -> None:
    losses, broken = aim("invent", [CLEAR, AIR], [AIR, AIR])
    assert losses == [float(len(CLEAR) - len(f"{AIR} {CLEAR}")), 0.0] and broken == [True, False]


def test_a_target_is_one_report_for_all() -> None:
    losses, broken = aim("target", [TWO, CLEAR], [AIR, TWO], AttackGoals(report=AIR))
    assert losses == [-float(len(AIR))] * 2 and broken == [True, False]
