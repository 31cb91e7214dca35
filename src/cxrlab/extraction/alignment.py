"""Adversarial domain alignment: a picture is moved until its guide, the surrogate, would rather have the new report.

One step of length ε along the sign of the gradient is the paper's. Its equation adds the gradient of the loss, which
makes the wanted report less likely; `direction` says which way is gone, and towards the report is the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cxrlab.attacks.config import ATTACKS, AttackSettings, parse_eps
from cxrlab.attacks.objectives import Objective, report_losses
from cxrlab.core.image_codec import to_uint8
from cxrlab.core.memory import BatchSize
from cxrlab.core.terminal import track
from cxrlab.extraction.config import Alignment
from cxrlab.extraction.records import Picture

if TYPE_CHECKING:
    from numpy.typing import NDArray

_REACH = 2.5  # of several steps together, in radii: enough to cross the ball and to turn


class MoveReport(Objective):
    """The enriched report of each picture becomes likelier, or less likely.

    Args:
        model: The surrogate or another guide, with its `losses(images, reports, indications)`.
        reports: The enriched report of each picture.
        sign: -1 lowers the loss of the report, +1 raises it.
    """

    name = "enriched"

    def __init__(self, model: Any, reports: Sequence[str], sign: float) -> None:
        self.model, self.reports, self.sign = model, reports, sign

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """`sign` times the guide's loss: a surrogate's mean of −log p over the tokens of the enriched report."""
        return self.sign * report_losses(self.model, images, rows, self.reports, [None] * len(self.reports))

    def succeeded(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Nobody asks here: what a moved picture is worth, the victim says."""
        return torch.zeros(len(rows), dtype=torch.bool)


def move_pictures(
    model: Any, pictures: Sequence[Picture], reports: Sequence[str], settings: Alignment, *, seed: int, round: int,
    batch_size: BatchSize | None = None,
) -> tuple[list[Picture], list[dict[str, float]]]:  # fmt: skip
    """Every picture moved and rounded to 8 bits, and what each was moved by.

    Args:
        model: The surrogate or another guide.
        pictures: uint8 [S, S] each, all of one size.
        reports: The enriched report of each; a picture with an empty one stays as it is.
        settings: How far, how often and which way.
        seed: Of everything random.
        round: Named in the keys of the pictures that were moved.
        batch_size: Images at once; those of the settings when None.
    """
    found: list[tuple[Picture, dict[str, float]]] = []
    at_once = batch_size or BatchSize(settings.batch_size)
    pairs, size = list(zip(pictures, reports, strict=True)), settings.batch_size
    parts = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    for part in track(parts, f"moving images, round {round}", len(pairs), size=len):
        found += at_once.map(part, partial(_moved, model, settings=settings, seed=seed, round=round))
    return [picture for picture, _ in found], [told for _, told in found]


def _moved(
    model: Any, pairs: Sequence[tuple[Picture, str]], settings: Alignment, seed: int, round: int
) -> list[tuple[Picture, dict[str, float]]]:
    """One batch of `move_pictures`."""
    wished = [place for place, (_, text) in enumerate(pairs) if text.strip()]
    found: list[tuple[Picture, dict[str, float]]] = [(picture, {}) for picture, _ in pairs]
    if not wished:
        return found
    images = _images([pairs[place][0].pixels for place in wished], model)
    named = [pairs[place][0].key for place in wished]
    sign = _sign(settings)
    objective = MoveReport(model, [pairs[place][1] for place in wished], sign)
    result = _attack(settings)(objective, images, parse_eps(settings.eps), keys=named, seed=seed)
    for place, image, before, after, linf in zip(
        wished, result.images.cpu().numpy(), result.initial_loss, result.final_loss, result.linf, strict=True
    ):
        picture = pairs[place][0]
        told = {"before": sign * float(before), "after": sign * float(after), "linf": float(linf)}
        found[place] = Picture(f"{picture.key}@{round}", to_uint8(image[0]), picture.in_domain), told
    return found


def _attack(settings: Alignment) -> Any:
    if settings.steps == 1:
        return ATTACKS.load("fgsm")(AttackSettings(steps=1))
    step = min(1.0, _REACH / settings.steps)
    return ATTACKS.load("pgd")(AttackSettings(steps=settings.steps, step_size=step, random_start=False))


def _sign(settings: Alignment) -> float:
    return -1.0 if settings.direction == "towards" else 1.0


def _images(pixels: Sequence[NDArray[np.uint8]], model: Any) -> Tensor:
    """[B, 1, S, S] float32 in [0, 1], where the guide is."""
    return torch.from_numpy(np.stack(pixels)).to(model.device).float().div(255.0)[:, None]
