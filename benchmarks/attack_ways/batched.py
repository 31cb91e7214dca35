"""PGD as it is here: a batch at a time, through `HfModel.losses`."""

from __future__ import annotations

import torch
from attack_ways.subjects import Images, Strength
from torch import Tensor

from cxrlab.attacks.attack import AttackTask
from cxrlab.attacks.config import AttackSettings, Budget
from cxrlab.attacks.gradient import Pgd
from cxrlab.attacks.objectives import RaiseReportLoss
from cxrlab.models.hf.model import HfModel


def attack(model: HfModel, images: Images, strength: Strength, batch: int) -> Tensor:
    """Images after the attack, [N, 1, H, W] on the processor.

    Nothing is written for any image: the verdict of an attack is no part of what is compared, so that `perturb` runs
    without the call around it.

    Args:
        model: What is attacked.
        images: With their reports.
        strength: Of the attack.
        batch: Images at once.
    """
    settings = AttackSettings(steps=strength.steps, step_size=strength.share, random_start=False, keep="last")
    found = []
    for start in range(0, len(images), batch):
        some = images[start : start + batch]
        aim = RaiseReportLoss(model, some.reports, some.indications, [""] * len(some), lambda all_images, rows: [])
        keys = tuple(map(str, range(start, start + len(some))))
        task = AttackTask(aim, some.images.to(model.device), Budget(strength.eps), keys, seed=0)
        found.append(Pgd(settings).perturb(task).cpu())
    return torch.cat(found)
