from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from toy_objectives import CrossEntropy, Linear, Margin, Valley, images, names, predicted_labels, small_net

from cxrlab.attacks.config import AttackSettings, Budget, Norm
from cxrlab.attacks.gradient import Fgsm, MiFgsm, Pgd

NET = small_net()
PLAIN = AttackSettings(steps=5, random_start=False)


def test_fgsm_on_a_linear_model_is_the_closed_form() -> None:
    """Loss w · x, ε = 1/8, all numbers exact in binary: x + ε · sign(w), cut to [0, 1]; no step where w is 0."""
    images = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.5, 0.0625, 0.25]).reshape(1, 1, 1, 7)
    weights = torch.tensor([2.0, -3.0, 0.25, -1.0, 4.0, -5.0, 0.0]).reshape(1, 1, 7)
    found = Fgsm()(Linear(weights), images, Budget(0.125), keys=["a"])
    assert found.images.flatten().tolist() == [0.125, 0.0, 1.0, 0.875, 0.625, 0.0, 0.25]
    # 2 · ⅛ + ¼ · 0 + (−1) · (−⅛) + 4 · ⅛ + (−5) · (−1/16), the pixels at the ends staying where they are.
    assert float(found.final_loss - found.initial_loss) == 0.25 + 0.125 + 0.5 + 0.3125
    assert found.passes.tolist() == [1] and found.zero_gradients.tolist() == [0.0]


def test_fgsm_for_l2_goes_along_the_gradient() -> None:
    """W has length 2, so that a step of ¼ changes each pixel by ⅛; white cannot grow whiter."""
    images = torch.tensor([0.5, 0.5, 1.0, 0.0]).reshape(1, 1, 2, 2)
    weights = torch.tensor([1.0, -1.0, 1.0, 1.0]).reshape(1, 2, 2)
    found = Fgsm()(Linear(weights), images, Budget(0.25, "l2"), keys=["a"])
    assert found.images.flatten().tolist() == [0.625, 0.375, 1.0, 0.125]
    assert float(found.l2) == pytest.approx(0.125 * 3**0.5)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_pgd_of_one_whole_step_from_the_clean_image_is_fgsm_bit_by_bit(norm: Norm) -> None:
    all_images = images(8, channels=3)
    aim = CrossEntropy(net := small_net(channels=3), predicted_labels(net, all_images))
    budget = Budget(0.03 if norm == "linf" else 0.4, norm)
    one = Pgd(AttackSettings(steps=1, step_size=1.0, random_start=False))(aim, all_images, budget, keys=names(8))
    assert torch.equal(one.images, Fgsm()(aim, all_images, budget, keys=names(8)).images)
    first = MiFgsm(AttackSettings(steps=1))(aim, all_images, budget, keys=names(8))
    assert torch.allclose(first.images, one.images, atol=1e-7)


def test_pgd_on_a_linear_model_ends_in_the_corner_of_the_ball() -> None:
    """Five steps of ε / 4 reach x + ε · sign(w) from anywhere in the ball that they can: the clean image."""
    all_images, weights = 0.25 + 0.5 * images(4), images(1)[0] - 0.5
    found = Pgd(PLAIN)(Linear(weights), all_images, Budget(0.125), keys=names(4))
    assert torch.allclose(found.images, all_images + 0.125 * weights.sign(), atol=1e-7)
    assert found.passes.tolist() == [5] * 4


class Turning(Linear):
    """Two pixels: the slope is one pair of numbers until the first pixel is above a half, and another from then on."""

    def __init__(self, before: tuple[float, float], after: tuple[float, float]) -> None:
        super().__init__(torch.zeros(1))
        self.before, self.after = torch.tensor(before), torch.tensor(after)

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        pixels = images.flatten(1)
        slope = torch.where(pixels.detach()[:, :1] > 0.5, self.after, self.before)
        return (slope * pixels).sum(dim=1)


def test_momentum_goes_on_where_a_gradient_turns_a_little() -> None:
    """Slopes (1, 1), then (−¼, 1), whose mean size is ⅝: the sum is (1 − 0.4, 1 + 1.6) and still points up."""
    images, budget, aim = torch.full((1, 1, 1, 2), 0.5), Budget(0.25), Turning((1, 1), (-0.25, 1))
    forgetful = MiFgsm(AttackSettings(steps=2, momentum=0.0))(aim, images, budget, keys=["a"])
    minded = MiFgsm(AttackSettings(steps=2, momentum=1.0))(aim, images, budget, keys=["a"])
    assert forgetful.images.flatten().tolist() == [0.5, 0.75]
    assert minded.images.flatten().tolist() == [0.75, 0.75]


def test_momentum_weighs_gradients_by_their_direction_alone() -> None:
    """Slopes (4, 4), then (−3, 1), whose mean size is 2: (1 − 1.5, 1 + 0.5) points down; raw, (1, 5) would not."""
    images = torch.full((1, 1, 1, 2), 0.5)
    found = MiFgsm(AttackSettings(steps=2))(Turning((4, 4), (-3, 1)), images, Budget(0.25), keys=["a"])
    assert found.images.flatten().tolist() == [0.5, 0.75]


def test_a_image_that_is_broken_leaves_and_spends_no_more() -> None:
    """Loss: sum of the pixels, from 2; each step adds 4 · ε / 4 = 0.1. Broken above 2.15: after two of five steps."""
    images, aim = torch.full((2, 1, 2, 2), 0.5), Linear(torch.ones(1, 2, 2), above=2.15)
    images[1] = 0.4  # from 1.6 to 2 at most: never broken
    go_on = Pgd(PLAIN)(aim, images, Budget(0.1), keys=names(2))
    leave = Pgd(replace(PLAIN, early_exit=True))(aim, images, Budget(0.1), keys=names(2))
    assert go_on.passes.tolist() == [5, 5] and leave.passes.tolist() == [3, 5]
    assert go_on.succeeded.tolist() == leave.succeeded.tolist() == [True, False]
    assert leave.final_loss.tolist() == pytest.approx([2.2, 2.0]) and go_on.final_loss.tolist() == pytest.approx(
        [2.4, 2.0]
    )


@pytest.mark.parametrize("keep", ["last", "best"])
@pytest.mark.parametrize("restarts", [1, 3])
def test_leaving_early_never_loses_a_broken_image_and_spends_less(keep: str, restarts: int) -> None:
    """A loss that tells, and one where an answer must be asked for."""
    all_images = images(12, seed=2)
    settings = AttackSettings(steps=6, restarts=restarts, keep=keep)  # type: ignore[arg-type]
    for kind in (Margin, CrossEntropy):
        aim = kind(NET, predicted_labels(NET, all_images))
        stay = Pgd(settings)(aim, all_images, Budget(0.03), keys=names(12))
        leave = Pgd(replace(settings, early_exit=True))(aim, all_images, Budget(0.03), keys=names(12))
        assert 0 < int(stay.succeeded.sum()) < 12
        assert bool((leave.succeeded | ~stay.succeeded).all())
        if kind is Margin:
            assert int(leave.passes.sum()) < int(stay.passes.sum())


def test_restarts_keep_the_best_and_the_best_step_is_no_worse_than_the_last() -> None:
    all_images, budget = images(6), Budget(0.05)
    aim = Valley((all_images + 0.037).clamp(0, 1))
    last = Pgd(AttackSettings(steps=7, step_size=0.9))(aim, all_images, budget, keys=names(6))
    best = Pgd(AttackSettings(steps=7, step_size=0.9, keep="best"))(aim, all_images, budget, keys=names(6))
    three = Pgd(AttackSettings(steps=7, step_size=0.9, restarts=3))(aim, all_images, budget, keys=names(6))
    assert bool((best.final_loss >= last.final_loss).all()) and bool((best.final_loss > last.final_loss).any())
    assert bool((three.final_loss >= last.final_loss).all()) and bool((three.final_loss > last.final_loss).any())
    assert three.passes.tolist() == [3 * 8] * 6 and best.passes.tolist() == [8] * 6


def test_images_to_begin_from_go_before_a_random_start() -> None:
    """One step of nothing but ε / 1000: the image is where it began."""
    all_images = images(3)
    begin = (all_images + 0.02).clamp(0, 1)
    for attack in (Pgd, MiFgsm):
        run = attack(AttackSettings(steps=1, step_size=0.001))
        found = run(Linear(torch.zeros(1, 8, 8)), all_images, Budget(0.05), keys=names(3), initial_images=begin)
        assert torch.allclose(found.images, begin, atol=1e-7)


def test_gradients_that_are_zero_everywhere_are_counted() -> None:
    all_images = images(2)
    found = Pgd(PLAIN)(Linear(torch.zeros(1, 8, 8)), all_images, Budget(0.05), keys=names(2))
    assert found.zero_gradients.tolist() == [1.0, 1.0] and torch.equal(found.images, all_images)
