from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from toy_objectives import CrossEntropy, Linear, Margin, Valley, images, names, predicted_labels, small_net

from cxrlab.attacks.config import AttackSettings, Budget, Norm
from cxrlab.attacks.gradient import Apgd, Pgd, checkpoints

NET = small_net()


def test_checkpoints_are_the_published_ones() -> None:
    """22, 41, 57, 70, 80, 87, 93 and 99 of 100 steps: waits of 22, 19, 16, 13, 10, 7, 6 and 6."""
    assert checkpoints(100) == {22: 22, 41: 19, 57: 16, 70: 13, 80: 10, 87: 7, 93: 6, 99: 6}
    assert checkpoints(10) == {2: 2, **{step: 1 for step in range(3, 11)}}
    assert checkpoints(1) == {1: 1}


def test_the_first_step_is_twice_the_radius() -> None:
    """From the lower corner of the ball the upper one is reached at once."""
    images = torch.full((1, 1, 2, 2), 0.5)
    found = Apgd(AttackSettings(steps=1))(
        Linear(torch.ones(1, 2, 2)), images, Budget(0.125), keys=["a"], initial_images=images - 0.125
    )
    assert found.images.flatten().tolist() == [0.625] * 4 and found.passes.tolist() == [2]


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_best_image_is_kept_and_is_no_worse_than_the_start(norm: Norm) -> None:
    """Also where the start is the best that there is: the top of the valley."""
    all_images, budget = images(8), Budget(0.05 if norm == "linf" else 0.4, norm)
    plain = Apgd(AttackSettings(steps=5, random_start=False))
    top = plain(Valley(all_images), all_images, budget, keys=names(8))
    assert torch.equal(top.images, all_images) and bool((top.final_loss == 0).all())
    found = plain(CrossEntropy(NET, predicted_labels(NET, all_images)), all_images, budget, keys=names(8))
    assert bool((found.final_loss > found.initial_loss).all()) and found.passes.tolist() == [6] * 8


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_halved_steps_come_nearer_to_a_top_inside_the_ball_than_steps_of_one_length(norm: Norm) -> None:
    """The top lies 0.37 ε from the clean image; steps of ε / 4 end about ε / 8 beside it, pixel by pixel."""
    all_images = 0.25 + 0.5 * images(4)
    eps = 0.05 if norm == "linf" else 0.4
    aim = Valley(all_images + 0.37 * eps * (1 if norm == "linf" else 1 / 8))
    ends = {
        kind.name: kind(AttackSettings(steps=40, keep="best"))(
            aim, all_images, Budget(eps, norm), keys=names(4)
        ).final_loss
        for kind in (Apgd, Pgd)
    }
    assert bool((ends["apgd"] > 0.25 * ends["pgd"]).all())
    assert bool((ends["pgd"] < 0).all())


def test_each_image_has_its_own_step() -> None:
    """One image climbs all the way with its first step; its neighbour must halve it, and fares as it would alone."""
    all_images = 0.25 + 0.5 * images(2)
    aim = all_images + torch.tensor([0.5, 0.013]).reshape(2, 1, 1, 1)
    run = Apgd(AttackSettings(steps=20, random_start=False))
    both = run(Valley(aim), all_images, Budget(0.05), keys=names(2))
    alone = run(Valley(aim[1:]), all_images[1:], Budget(0.05), keys=names(2)[1:])
    assert torch.allclose(both.images[0], all_images[0] + 0.05, atol=1e-6)
    assert torch.equal(both.images[1:], alone.images)
    assert float(both.final_loss[1]) > -64 * 0.003**2


def test_early_exit_spends_fewer_passes_and_loses_no_broken_image() -> None:
    all_images = images(12, seed=2)
    for kind, restarts in ((Margin, 1), (Margin, 3), (CrossEntropy, 3)):
        aim, settings = kind(NET, predicted_labels(NET, all_images)), AttackSettings(steps=6, restarts=restarts)
        stay = Apgd(settings)(aim, all_images, Budget(0.03), keys=names(12))
        leave = Apgd(replace(settings, early_exit=True))(aim, all_images, Budget(0.03), keys=names(12))
        assert stay.passes.tolist() == [7 * restarts] * 12
        assert 0 < int(stay.succeeded.sum()) < 12 and bool((leave.succeeded | ~stay.succeeded).all())
        assert int(leave.passes.sum()) < int(stay.passes.sum())


def test_more_restarts_are_never_worse() -> None:
    all_images = images(8)
    aim = CrossEntropy(NET, predicted_labels(NET, all_images))
    one = Apgd(AttackSettings(steps=3))(aim, all_images, Budget(0.4, "l2"), keys=names(8))
    three = Apgd(AttackSettings(steps=3, restarts=3))(aim, all_images, Budget(0.4, "l2"), keys=names(8))
    assert bool((three.final_loss >= one.final_loss).all()) and bool((three.final_loss > one.final_loss).any())
