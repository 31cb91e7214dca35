from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from toy_objectives import Linear, Margin, TextOnlyMargin, images, names, predicted_labels, small_net

from cxrlab.attacks.config import AttackSettings, Budget, Norm
from cxrlab.attacks.gradient import Universal, make_universal
from cxrlab.attacks.norm_balls import change_norms
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.out_of_memory import BatchSize

NET = small_net()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_on_a_linear_model_the_change_is_the_best_one_for_unseen_images_too(norm: Norm) -> None:
    """It is ε · sign(w), or ε · w / |w|; on images away from black and white it raises every loss by ε · |w|."""
    weights, eps = images(1, seed=9)[0] - 0.5, 0.1
    seen, unseen = 0.25 + 0.5 * images(20), 0.25 + 0.5 * images(5, seed=1)
    change = make_universal(Linear(weights), seen, Budget(eps, norm), AttackSettings(), keys=names(20))
    best = weights.sign() if norm == "linf" else weights / weights.norm()
    assert torch.allclose(change[0], eps * best, atol=1e-6)
    found = Universal(change=change)(Linear(weights), unseen, Budget(eps, norm), keys=names(5))
    rise = float((eps * best * weights).sum())
    assert torch.allclose(found.final_loss - found.initial_loss, torch.tensor(rise, dtype=torch.float64), atol=1e-4)
    assert found.passes.tolist() == [0] * 5
    applied = found.images - unseen
    assert torch.allclose(applied, change.expand_as(applied), atol=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_change_fits_the_ball_and_does_not_depend_on_the_order_of_images(norm: Norm) -> None:
    all_images, keys = images(24), names(24)
    labels, budget = predicted_labels(NET, all_images), Budget(0.05 if norm == "linf" else 0.5, norm)
    change = make_universal(Margin(NET, labels), all_images, budget, AttackSettings(), keys=keys, seed=3)
    turned = make_universal(
        Margin(NET, labels.flip(0)), all_images.flip(0), budget, AttackSettings(), keys=keys[::-1], seed=3
    )
    other = make_universal(Margin(NET, labels), all_images, budget, AttackSettings(), keys=keys, seed=4)
    assert change.shape == (1, 1, 8, 8) and float(change_norms(change, norm)) <= budget.eps + 1e-6
    assert torch.allclose(change, turned, atol=1e-5) and not torch.allclose(change, other, atol=1e-5)


def test_it_raises_the_mean_loss_of_a_net_and_keeps_to_its_region() -> None:
    all_images = images(24)
    aim = Margin(NET, predicted_labels(NET, all_images))
    region = torch.zeros(1, 1, 8, 8)
    region[..., 2:6] = 1
    change = make_universal(aim, all_images, Budget(0.1), AttackSettings(), keys=names(24), region=region)
    assert not bool(change[region == 0].any())
    found = Universal(change=change)(aim, all_images, Budget(0.1), keys=names(24))
    assert float(found.final_loss.mean()) > float(found.initial_loss.mean())


def test_what_it_needs_is_said() -> None:
    all_images = images(2)
    labels = predicted_labels(NET, all_images)
    with pytest.raises(ConfigError, match="make_universal"):
        Universal()(Margin(NET, labels), all_images, Budget(0.1), keys=names(2))
    with pytest.raises(DataError, match="does not fit"):
        Universal(change=torch.zeros(1, 1, 4, 4))(Margin(NET, labels), all_images, Budget(0.1), keys=names(2))
    with pytest.raises(ConfigError, match="gradients"):
        make_universal(TextOnlyMargin(NET, labels), all_images, Budget(0.1), AttackSettings(), keys=names(2))
    with pytest.raises(DataError, match="float32"):
        make_universal(Margin(NET, labels), all_images.half(), Budget(0.1), AttackSettings(), keys=names(2))


def test_images_that_do_not_fit_at_once_give_the_same_change() -> None:
    """A step follows the mean over sixteen images, however many of them are looked at together."""
    all_images, labels = images(24), predicted_labels(NET, images(24))

    class Small(Margin):
        def losses(self, all_images: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
            if len(all_images) > 5:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return super().losses(all_images, rows)

    size = BatchSize(16)
    aims = {Small(NET, labels): size, Margin(NET, labels): None}
    found = [
        make_universal(aim, all_images, Budget(0.1), AttackSettings(), keys=names(24), micro_batch=at_once)
        for aim, at_once in aims.items()
    ]
    assert size.current == 4 and torch.allclose(*found, atol=1e-6)
