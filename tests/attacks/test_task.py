from __future__ import annotations

import torch
from toy_objectives import Linear, Valley, images, names

from cxrlab.attacks.attack import AttackTask, BestSoFar
from cxrlab.attacks.config import Budget


def test_a_part_knows_its_images_by_the_rows_of_the_whole() -> None:
    """Each image has a valley of its own: a row too far would score another image's."""
    all_images, region = images(5), torch.zeros(5, 1, 8, 8)
    region[3] = 1
    task = AttackTask(Valley(images(5, seed=1)), all_images, Budget(0.1), tuple(names(5)), 0, region, all_images + 0.05)
    subset = task.subset([3, 1])
    assert (
        subset.keys == ("study3", "study1")
        and subset.has_initial_images
        and torch.equal(subset.initial_images, task.initial_images[[3, 1]])
    )
    assert torch.equal(subset.losses(all_images[[3, 1]], [0, 1]), task.uncounted_losses(all_images)[[3, 1]])
    assert torch.equal(subset.losses(all_images[[1]], [1]), task.uncounted_losses(all_images)[[1]])
    assert torch.equal(subset.random_images([0], "x"), task.random_images([3], "x"))
    assert torch.equal(subset.random_images([1], "x")[0], all_images[1])
    assert subset.passes().tolist() == [1, 2] and task.passes().tolist() == [0] * 5
    task.add_passes(subset, [3, 1])
    assert task.passes().tolist() == [0, 2, 0, 1, 0]


def test_gradients_are_each_images_own_and_zero_ones_are_counted() -> None:
    """Loss w · x: the gradient is w for every image, 0 outside of the region; that is not a gradient of 0."""
    all_images, weights, region = images(3), images(1, seed=4)[0], torch.zeros(1, 1, 8, 8)
    task = AttackTask(Linear(weights), all_images, Budget(0.1), tuple(names(3)), 0, region)
    _, slope = task.loss_and_gradient(all_images[[2]], [2])
    assert not bool(slope.any()) and task.zero_gradients()[2] == 0 and bool(task.zero_gradients()[:2].isnan().all())
    free = AttackTask(Linear(weights), all_images, Budget(0.1), tuple(names(3)), 0)
    assert torch.allclose(free.loss_and_gradient(all_images, free.rows)[1], weights.expand(3, -1, -1, -1))


def test_a_broken_image_is_better_than_a_higher_loss() -> None:
    task = AttackTask(Linear(torch.ones(1, 8, 8)), images(2), Budget(0.1), tuple(names(2)), 0)
    best, tried = BestSoFar(task), [torch.full((2, 1, 8, 8), number / 10) for number in range(4)]
    broken = torch.tensor([True, False])
    assert best.update(tried[0], torch.tensor([5.0, 5.0], dtype=torch.float64), [0, 1]).tolist() == [True, True]
    assert best.update(tried[1], torch.tensor([1.0, 1.0], dtype=torch.float64), [0, 1], broken).tolist() == [
        True,
        False,
    ]
    assert best.update(tried[2], torch.tensor([9.0, 9.0], dtype=torch.float64), [0, 1]).tolist() == [False, True]
    nothing = torch.tensor([torch.nan, torch.nan], dtype=torch.float64)
    assert best.update(tried[3], nothing, [0, 1], broken).tolist() == [False, False]
    assert best.losses.tolist() == [1.0, 9.0] and best.succeeded.tolist() == [True, False]
    assert torch.equal(best.images, torch.stack([tried[1][0], tried[2][1]]))
