"""Objectives of the aims target, remove and invent, image by image.

An image on which a wish makes no sense (nothing to remove, what should be invented is there already, or the chosen
findings are) is left in the batch with nothing to gain: its loss is 0 whatever the pixels, it is never broken, and the
share of broken images leaves it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cxrlab.attacks.objectives import LowerReportLoss, Objective, invent_finding, present_observations, remove_finding
from cxrlab.findings.reader import read
from cxrlab.robustness.wishes import INVENT, REMOVE, TARGET, Wishes

if TYPE_CHECKING:
    from cxrlab.attacks.objectives import GenerateReports, Rows


def wished(
    wishes: Wishes,
    aim: str,
    model: Any,
    before: Sequence[str],
    indications: Sequence[str | None],
    writes: GenerateReports,
) -> Objective:
    """The objective of an aim.

    Args:
        wishes: What is wanted.
        aim: target, remove or invent.
        model: With `losses(images, reports, indications)`.
        before: What it wrote for each clean image.
        indications: Of each image.
        writes: How it writes.
    """
    there = [present_observations(text) for text in before]
    if aim == TARGET:
        able = [found != present_observations(wishes.report) for found in there]
        inner: Objective = LowerReportLoss(model, [wishes.report] * len(before), indications, writes)
    elif aim == REMOVE:
        names = [wishes.remove or _first(text) for text in before]
        able = [name in found for name, found in zip(names, there, strict=True)]
        safe = [name or "pleural effusion" for name in names]  # never asked about where `able` is False
        inner = remove_finding(model, before, safe, indications, writes)
    else:
        assert aim == INVENT
        able = [wishes.invent not in found for found in there]
        inner = invent_finding(model, before, [wishes.invent] * len(before), indications, writes)
    return WhereAble(inner, able)


def _first(report: str) -> str:
    """The finding that a report names first; empty where it names none."""
    return next((one.observation for one in read(report) if one.present), "")


class WhereAble(Objective):
    """Another objective on the images where it makes sense.

    Args:
        inner: The objective.
        able: Whether it makes sense, of each row.
    """

    def __init__(self, inner: Objective, able: Sequence[bool]) -> None:
        self.name, self._inner, self._able = inner.name, inner, list(able)
        self.gradients, self.scores = inner.gradients, inner.scores

    def losses(self, images: Tensor, rows: Rows) -> Tensor:
        """Those of the objective; 0 where it makes no sense."""
        found = self._inner.losses(images, rows)
        return torch.where(self._of(rows).to(found.device), found, torch.zeros_like(found))

    def succeeded(self, images: Tensor, rows: Rows) -> Tensor:
        """As the objective says; False where it makes no sense."""
        return self._inner.succeeded(images, rows) & self._of(rows)

    def _of(self, rows: Rows) -> Tensor:
        return torch.tensor([self._able[row] for row in rows])
