"""What every attack promises, whatever its idea: the base keeps it, row by row of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from toy_objectives import (
    QUICK,
    Linear,
    TextOnlyMargin,
    attack,
    images,
    names,
    objective_for,
    predicted_labels,
    small_net,
)

from cxrlab.attacks.attack import Attack, AttackTask
from cxrlab.attacks.config import ATTACKS, Budget, Norm
from cxrlab.core.errors import ConfigError, DataError

NET = small_net()
NORMS: tuple[Norm, ...] = ("linf", "l2")
EPS = {"linf": 0.05, "l2": 0.4}


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("norm", NORMS)
def test_a_radius_of_zero_gives_the_images_back_bit_by_bit(name: str, norm: Norm) -> None:
    all_images = images(3)
    found = attack(name)(
        objective_for(name, NET, predicted_labels(NET, all_images)), all_images, Budget(0.0, norm), keys=names(3)
    )
    assert torch.equal(found.images, all_images) and torch.equal(found.initial_loss, found.final_loss)
    assert found.passes.tolist() == [0, 0, 0] and float(found.linf.max()) == 0.0


@pytest.mark.parametrize("name", ATTACKS)
@settings(max_examples=5, deadline=None)
@given(norm=st.sampled_from(NORMS), eps=st.floats(1e-6, 0.99), seed=st.integers(0, 50), masked=st.booleans())
def test_images_stay_in_ball_range_and_region(name: str, norm: Norm, eps: float, seed: int, masked: bool) -> None:
    """Random images, half of them black or white at places, random radii, with a region and without."""
    all_images = (2 * images(2, seed=seed) - 0.5).clamp(0, 1)
    region = (images(2, seed=seed + 1) > 0.5).float() if masked else None
    aim = objective_for(name, NET, predicted_labels(NET, all_images))
    found = attack(name, replace(QUICK, early_exit=bool(seed % 2)))(
        aim,
        all_images,
        Budget(eps, norm),
        keys=names(2),
        seed=seed,
        region=region,
        initial_images=None if seed % 3 else 1 - all_images,
    )
    size = found.linf if norm == "linf" else found.l2
    assert bool((size <= eps).all()) and bool(((found.images >= 0) & (found.images <= 1)).all())
    assert found.images.dtype == torch.float32
    if region is not None:
        assert torch.equal(found.images[region == 0], all_images[region == 0])


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("early_exit", [False, True])
def test_a_image_fares_the_same_alone_in_a_batch_and_in_another_order(name: str, norm: Norm, early_exit: bool) -> None:
    """Sixteen together, one by one, and turned round; sums of other batches differ in the last places."""
    all_images, keys = images(16, seed=3), names(16)
    labels, budget = predicted_labels(NET, all_images), Budget(EPS[norm], norm)
    run = attack(name, replace(QUICK, early_exit=early_exit))
    together = run(objective_for(name, NET, labels), all_images, budget, keys=keys, seed=5)
    turned = run(objective_for(name, NET, labels.flip(0)), all_images.flip(0), budget, keys=keys[::-1], seed=5)
    assert torch.allclose(turned.images.flip(0), together.images, atol=1e-6)
    for row in (0, 15):
        one = slice(row, row + 1)
        alone = run(objective_for(name, NET, labels[one]), all_images[one], budget, keys=keys[one], seed=5)
        assert torch.allclose(alone.images, together.images[one], atol=1e-6)
        assert alone.succeeded.tolist() == together.succeeded[one].tolist()
        assert alone.passes.tolist() == together.passes[one].tolist()


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - {"fgsm", "mi-fgsm", "universal", "ensemble"}))
def test_what_is_random_follows_the_seed_and_the_name_of_the_image(name: str) -> None:
    all_images, budget = images(1).expand(2, -1, -1, -1).contiguous(), Budget(0.4, "l2")
    run, aim = attack(name), objective_for(name, NET, predicted_labels(NET, all_images))
    found = run(aim, all_images, budget, keys=["a", "b"], seed=1)
    again = run(aim, all_images, budget, keys=["a", "b"], seed=1)
    other = run(aim, all_images, budget, keys=["a", "b"], seed=2)
    assert torch.equal(found.images, again.images) and not torch.equal(found.images, other.images)
    assert not torch.equal(found.images[0], found.images[1])


class Reckless(Attack):
    """Returns what it is asked to."""

    name: ClassVar[str] = "reckless"
    white_box: ClassVar[bool] = False

    def __init__(self, found: Tensor) -> None:
        self.found = found

    def perturb(self, task: AttackTask) -> Tensor:
        return self.found


@pytest.mark.parametrize("norm", NORMS)
def test_images_far_outside_are_moved_back_and_scored_as_they_are_stored(norm: Norm) -> None:
    all_images, region = images(4), torch.zeros(1, 1, 8, 8)
    region[..., :4] = 1
    aim = Linear(torch.ones(1, 8, 8))
    found = Reckless(all_images + 1e6)(aim, all_images, Budget(0.1, norm), keys=names(4), region=region)
    assert bool(((found.linf if norm == "linf" else found.l2) <= 0.1).all()) and float(found.images.max()) <= 1
    assert torch.equal(found.images[..., 4:], all_images[..., 4:])
    assert torch.allclose(found.final_loss, found.images.flatten(1).double().sum(dim=1), atol=1e-5)


@pytest.mark.parametrize("found", [torch.full((2, 1, 8, 8), torch.nan), torch.full((2, 1, 8, 8), torch.inf), images(3)])
def test_images_that_are_no_images_are_an_error_of_the_program(found: Tensor) -> None:
    with pytest.raises(RuntimeError, match="reckless"):
        Reckless(found)(Linear(torch.ones(1, 8, 8)), images(2), Budget(0.1), keys=names(2))


def refused(images: Tensor, keys: list[str], region: Tensor | None = None, initial_images: Tensor | None = None) -> str:
    with pytest.raises(DataError) as caught:
        attack("fgsm")(
            Linear(torch.ones(1, 8, 8)), images, Budget(0.1), keys=keys, region=region, initial_images=initial_images
        )
    return str(caught.value)


def test_images_that_cannot_be_attacked_are_refused() -> None:
    assert "float32" in refused(images(2).bfloat16(), names(2))
    assert "float32" in refused((images(2) * 255).to(torch.uint8), names(2))
    assert "float32" in refused(images(2)[0], names(1))
    assert "[0, 1]" in refused(images(2) * 255, names(2)) and "[0, 1]" in refused(images(2) * torch.nan, names(2))
    assert "1 different" in refused(images(2), ["a", "a"]) and "own" in refused(images(2), names(3))
    assert "own" in refused(images(0), [])


def test_regions_and_starts_that_do_not_fit_are_refused() -> None:
    for region in (torch.ones(8, 8), torch.ones(1, 1, 4, 8), torch.ones(3, 1, 8, 8), torch.ones(1, 2, 8, 8)):
        assert "region" in refused(images(2), names(2), region=region)
    assert "nitial images" in refused(images(2), names(2), initial_images=images(3))
    assert "nitial images" in refused(images(2), names(2), initial_images=images(2) * torch.nan)


def test_an_attack_asks_only_for_what_the_model_gives() -> None:
    """Words alone: no gradients, no scores."""
    all_images = images(1)
    aim = TextOnlyMargin(NET, predicted_labels(NET, all_images))
    for name in ATTACKS:
        works = name in ("noise", "universal", "ensemble", "square-report", "random-report")
        if works:
            attack(name)(aim, all_images, Budget(0.1), keys=names(1))
            continue
        with pytest.raises(ConfigError, match=f"'{name}'"):
            attack(name)(aim, all_images, Budget(0.1), keys=names(1))


def test_an_attack_that_would_answer_for_itself_cannot_be_written() -> None:
    with pytest.raises(TypeError, match="must not define __call__"):
        type("Cheat", (Attack,), {"__call__": lambda self: None, "perturb": lambda self, task: task.clean})
