"""The same attacks in foolbox and torchattacks, on a classifier with random weights: the same images come out.

Where a gradient is near 0, its sign may differ between two sums of the same numbers, and with it a whole step. The net
is smooth, so that such pixels are rare, and the seed below has none.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from toy_objectives import CrossEntropy, images, names, predicted_labels, small_net

from cxrlab.attacks.attack import Attack
from cxrlab.attacks.config import AttackSettings, Budget, Norm
from cxrlab.attacks.gradient import Apgd, Fgsm, MiFgsm, Pgd

NET = small_net(channels=3)
# Pixels at the ends of the range among them, where clipping matters.
IMAGES = (1.2 * images(12, channels=3, seed=1) - 0.1).clamp(0, 1)
LABELS = predicted_labels(NET, IMAGES)
PLAIN = AttackSettings(steps=10, step_size=0.25, random_start=False)
EPS: dict[Norm, float] = {"linf": 8 / 255, "l2": 0.5}


def ours(attack: Attack, norm: Norm = "linf", initial_images: Tensor | None = None) -> Tensor:
    aim = CrossEntropy(NET, LABELS)
    return attack(aim, IMAGES, Budget(EPS[norm], norm), keys=names(12), initial_images=initial_images).images


def by_foolbox(attack: Any, norm: Norm) -> Tensor:
    foolbox = pytest.importorskip("foolbox", reason="foolbox is not installed")
    model = foolbox.PyTorchModel(NET, bounds=(0, 1), device="cpu")
    _, clipped, _ = getattr(foolbox.attacks, attack[0])(**attack[1])(model, IMAGES, LABELS, epsilons=EPS[norm])
    found: Tensor = clipped
    return found


def torchattack(name: str, **settings: Any) -> Any:
    library = pytest.importorskip("torchattacks", reason="torchattacks is not installed")
    return getattr(library, name)(NET, **settings)


def same(found: Tensor, other: Tensor) -> bool:
    """To 1e-6 at every pixel, and not because nothing happened."""
    return bool((found - IMAGES).abs().amax() > 0.01) and bool(torch.allclose(found, other, rtol=0, atol=1e-6))


def test_fgsm_is_that_of_both_libraries() -> None:
    found = ours(Fgsm())
    assert same(found, by_foolbox(("LinfFastGradientAttack", {}), "linf"))
    assert same(found, torchattack("FGSM", eps=EPS["linf"])(IMAGES, LABELS))


def test_fgsm_for_l2_is_that_of_foolbox() -> None:
    assert same(ours(Fgsm(), "l2"), by_foolbox(("L2FastGradientAttack", {}), "l2"))


def test_pgd_is_that_of_both_libraries() -> None:
    eps, found = EPS["linf"], ours(Pgd(PLAIN))
    plain = {"rel_stepsize": 0.25, "steps": 10, "random_start": False}
    assert same(found, by_foolbox(("LinfPGD", plain), "linf"))
    assert same(found, torchattack("PGD", eps=eps, alpha=eps / 4, steps=10, random_start=False)(IMAGES, LABELS))


def test_pgd_for_l2_is_that_of_both_libraries() -> None:
    eps, found = EPS["l2"], ours(Pgd(PLAIN), "l2")
    plain = {"rel_stepsize": 0.25, "steps": 10, "random_start": False}
    assert same(found, by_foolbox(("L2PGD", plain), "l2"))
    assert same(found, torchattack("PGDL2", eps=eps, alpha=eps / 4, steps=10, random_start=False)(IMAGES, LABELS))


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_mi_fgsm_is_that_of_torchattacks(decay: float) -> None:
    eps, found = EPS["linf"], ours(MiFgsm(AttackSettings(steps=10, momentum=decay)))
    assert same(found, torchattack("MIFGSM", eps=eps, alpha=eps / 10, steps=10, decay=decay)(IMAGES, LABELS))


# In L2 a rounding of the last bit may decide at a later checkpoint whether a step is halved, on some processors.
@pytest.mark.parametrize(("norm", "steps"), [("linf", 10), ("linf", 40), ("l2", 10), ("l2", 20)])
def test_apgd_from_the_same_start_is_that_of_torchattacks(norm: Norm, steps: int) -> None:
    """Its start is drawn from a global generator; the same draw is repeated here.

    It compares the first loss with 0 in place of the loss at the start, which decides nothing here: every first step
    raises the loss.
    """
    library = torchattack("APGD", norm="Linf" if norm == "linf" else "L2", eps=EPS[norm], steps=steps)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = 2 * torch.rand(IMAGES.shape) - 1 if norm == "linf" else torch.randn(IMAGES.shape)
        torch.manual_seed(0)
        expected, _, losses, _ = library.attack_single_run(IMAGES, LABELS)
    size = drawn.flatten(1).abs().amax(dim=1) if norm == "linf" else drawn.flatten(1).norm(dim=1)
    begin = (IMAGES + EPS[norm] * drawn / size.reshape(-1, 1, 1, 1)).clamp(0, 1)
    found = ours(Apgd(AttackSettings(steps=steps)), norm, begin)
    assert torch.allclose(CrossEntropy(NET, LABELS).losses(found, range(12)), losses, rtol=0, atol=1e-6)
    assert same(found, expected)
