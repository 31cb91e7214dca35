"""PGD of cxrlab: one batch at a time, through `HfModel.losses`."""

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
    """Perturbed images [N, 1, H, W] on the CPU.

    Calls `perturb` alone: generating reports to verify the attack is not part of the measurement.
    """
    settings = AttackSettings(steps=strength.steps, step_size=strength.share, random_start=False, keep="last")
    perturbed = []
    for start in range(0, len(images), batch):
        some = images[start : start + batch]
        objective = RaiseReportLoss(
            model, some.reports, some.indications, [""] * len(some), lambda all_images, rows: []
        )
        keys = tuple(map(str, range(start, start + len(some))))
        task = AttackTask(objective, some.images.to(model.device), Budget(strength.eps), keys, seed=0)
        perturbed.append(Pgd(settings).perturb(task).cpu())
    return torch.cat(perturbed)
