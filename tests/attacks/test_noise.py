from __future__ import annotations

import torch
from toy_objectives import Linear, images, names

from cxrlab.attacks.config import Budget
from cxrlab.attacks.gradient_free import Noise


def test_noise_follows_no_aim_and_asks_the_model_nothing() -> None:
    """The same images for an aim and for its opposite; no pass is spent."""
    all_images, aim = 0.25 + 0.5 * images(64), Linear(torch.ones(1, 8, 8))
    found = Noise()(aim, all_images, Budget(0.1), keys=names(64))
    other = Noise()(Linear(-torch.ones(1, 8, 8)), all_images, Budget(0.1), keys=names(64))
    assert torch.equal(found.images, other.images) and found.passes.tolist() == [0] * 64
    # 4096 draws from (−0.1, 0.1): the mean is within 4 · 0.1 / √3 / 64 of 0, the size of one draw is 0.05.
    change = found.images - all_images
    assert abs(float(change.mean())) < 0.0037 and abs(float(change.abs().mean()) - 0.05) < 0.002
