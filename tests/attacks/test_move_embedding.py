"""Vectors that move away: an aim without a slope where every attack begins."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from toy_objectives import images, names

from cxrlab.attacks.attack import Attack, AttackTask
from cxrlab.attacks.config import AttackSettings, Budget, Norm
from cxrlab.attacks.ensemble import Ensemble
from cxrlab.attacks.gradient import Apgd, Fgsm, MiFgsm, Pgd, make_universal
from cxrlab.attacks.objectives import MoveEmbedding

DIRECTIONS = torch.randn(4, 64, generator=torch.Generator().manual_seed(3))


def vectors(images: Tensor) -> Tensor:
    return torch.nn.functional.normalize((images.flatten(1) - 0.5) @ DIRECTIONS.T, dim=1)


def moved(images: Tensor) -> MoveEmbedding:
    return MoveEmbedding(vectors, vectors(images))


def test_a_vector_that_moved_is_measured_by_its_cosine() -> None:
    homes = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
    aim = MoveEmbedding(lambda all_images: torch.tensor([[0.0, 1.0]]).expand(len(all_images), 2), homes)
    assert aim.losses(images(2), [0, 1]).tolist() == pytest.approx([0.0, -0.8])
    assert aim.succeeded(images(2), [0, 1]).tolist() == [True, False]
    assert aim.succeeded_by_loss(torch.tensor([0.0, -0.8]), [0, 1]).tolist() == [True, False]  # type: ignore[union-attr]


def test_a_clean_image_has_no_slope_away_from_its_own_vector() -> None:
    """The cosine is at its maximum there: what is left of the gradient is rounding, far below that beside it."""
    all_images = images(3)
    aim = moved(all_images)

    def slope(at: Tensor) -> float:
        asked = at.clone().requires_grad_()
        return float(torch.autograd.grad(aim.losses(asked, [0, 1, 2]).sum(), asked)[0].abs().max())

    assert aim.zero_gradient_at_clean and slope(all_images) < 1e-4 * slope(
        (all_images + 0.05 * images(3, seed=1)).clamp(0, 1)
    )


STILL = AttackSettings(steps=6, random_start=False)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("attack", [Fgsm(STILL), Pgd(STILL), MiFgsm(STILL), Apgd(STILL)], ids=lambda one: one.name)
def test_attacks_on_a_vector_begin_beside_the_clean_image_and_move_it(attack: Attack, norm: Norm) -> None:
    """Each beats noise of the same size by far; from the clean image the sign of rounding errors would lead."""
    all_images, keys = 0.3 + 0.4 * images(6), names(6)
    budget = Budget(0.05, "linf") if norm == "linf" else Budget(0.3, "l2")
    aim = moved(all_images)
    found = attack(aim, all_images, budget, keys=keys, seed=2)
    noise = torch.rand(all_images.shape, generator=torch.Generator().manual_seed(4)) * 2 - 1
    scale = 0.05 if norm == "linf" else (0.3 / noise.flatten(1).norm(dim=1)).reshape(-1, 1, 1, 1)
    by_chance = aim.losses(all_images + scale * noise, range(6)).double()
    assert bool((found.final_loss + 1 > 1.5 * (by_chance + 1)).all()) and bool(
        (found.final_loss > found.initial_loss + 0.01).all()
    )
    alone = attack(moved(all_images[2:3]), all_images[2:3], budget, keys=keys[2:3], seed=2)
    assert torch.allclose(alone.images, found.images[2:3], atol=1e-6)  # whatever batch it is in


def test_a_image_given_to_begin_from_is_kept_and_a_clean_one_is_not() -> None:
    all_images = 0.3 + 0.4 * images(2)
    given = all_images.clone()
    given[1] += 0.01
    task = AttackTask(moved(all_images), all_images, Budget(0.05), ("a", "b"), 0, None, given)
    assert not torch.equal(task.initial_images[0], all_images[0]) and torch.allclose(
        task.initial_images[1], given[1], atol=1e-6
    )
    subset = task.subset([1])
    assert subset.objective.zero_gradient_at_clean and torch.equal(subset.initial_images[0], task.initial_images[1])


def test_a_universal_change_of_vectors_and_the_worst_of_all_attacks_find_their_way_too() -> None:
    all_images, keys = 0.3 + 0.4 * images(12), names(12)
    aim = moved(all_images)
    change = make_universal(aim, all_images, Budget(0.05), AttackSettings(), keys=keys)
    drawn = 0.05 * (2 * images(1, seed=8) - 1)
    reached, chance = (float(aim.losses(all_images + one, range(12)).mean()) for one in (change, drawn))
    assert reached + 1 > 1.5 * (chance + 1)
    worst = Ensemble(STILL, ["fgsm", "pgd"])(aim, all_images, Budget(0.05), keys=keys)
    single = Pgd(STILL)(aim, all_images, Budget(0.05), keys=keys)
    assert bool((worst.final_loss >= single.final_loss - 1e-6).all())
