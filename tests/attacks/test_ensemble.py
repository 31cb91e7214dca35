from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from toy_objectives import (
    QUICK,
    CrossEntropy,
    Margin,
    TextOnlyMargin,
    attack,
    images,
    names,
    predicted_labels,
    small_net,
)

from cxrlab.attacks.attack import AttackResult
from cxrlab.attacks.config import AttackSettings, Budget, Norm
from cxrlab.attacks.ensemble import Ensemble, default_members
from cxrlab.core.errors import ConfigError, UnknownName

NET = small_net()
GRIDS: dict[Norm, tuple[float, ...]] = {"linf": (0.0, 0.01, 0.02, 0.03, 0.05), "l2": (0.0, 0.1, 0.2, 0.3, 0.5)}


def no_worse(found: AttackResult, other: AttackResult) -> bool:
    """Broken where the other is, and where both or neither are, with as high a loss."""
    alike = found.succeeded == other.succeeded
    return bool((found.succeeded | ~other.succeeded).all()) and bool(
        (found.final_loss >= other.final_loss)[alike].all()
    )


def test_members_are_what_the_objective_allows() -> None:
    aim = Margin(NET, torch.zeros(1, dtype=torch.long))
    assert default_members(aim) == ("fgsm", "pgd", "apgd", "square")
    aim.gradients = False
    assert default_members(aim) == ("square",)
    aim.scores = False
    assert default_members(aim) == ("square-report", "random-report")


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("kind", [Margin, CrossEntropy, TextOnlyMargin])
def test_it_is_never_worse_than_a_member_with_the_same_seed(norm: Norm, kind: type[Margin]) -> None:
    all_images, budget = images(8), Budget(GRIDS[norm][3], norm)
    aim = kind(NET, predicted_labels(NET, all_images))
    whole = Ensemble(QUICK)(aim, all_images, budget, keys=names(8), seed=4)
    for name in default_members(aim):
        assert no_worse(whole, attack(name)(aim, all_images, budget, keys=names(8), seed=4)), name


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("early_exit", [False, True])
@pytest.mark.parametrize("kind", [Margin, CrossEntropy])
def test_the_worst_case_never_falls_as_the_radius_grows(norm: Norm, early_exit: bool, kind: type[Margin]) -> None:
    """Each radius begins at the images of the one before. Losses of other batches differ in the last places."""
    all_images = images(10, seed=1)
    aim = kind(NET, predicted_labels(NET, all_images))
    run, before = Ensemble(replace(QUICK, steps=2, early_exit=early_exit)), None
    for eps in GRIDS[norm]:
        begin = None if before is None else before.images
        found = run(aim, all_images, Budget(eps, norm), keys=names(10), initial_images=begin)
        if before is not None:
            assert bool((found.succeeded | ~before.succeeded).all())
            alike = found.succeeded == before.succeeded
            assert bool((found.final_loss - before.final_loss)[alike].min() >= (-1e-6 if early_exit else 0))
            if kind is Margin:
                assert bool((found.final_loss >= before.final_loss - (1e-6 if early_exit else 0)).all())
        before = found
    assert before is not None and 0 < int(before.succeeded.sum())


def test_a_weak_member_cannot_spoil_a_good_start() -> None:
    """One step of fgsm from the clean image is worse than twenty of apgd; the start is kept bit by bit."""
    all_images, budget = images(6), Budget(0.4, "l2")
    aim = CrossEntropy(NET, predicted_labels(NET, all_images))
    strong = attack("apgd", AttackSettings(steps=20))(aim, all_images, budget, keys=names(6))
    found = Ensemble(QUICK, members=("fgsm",))(aim, all_images, budget, keys=names(6), initial_images=strong.images)
    assert torch.equal(found.images, strong.images) and torch.equal(found.final_loss, strong.final_loss)


def test_with_early_exit_a_member_sees_only_what_is_left() -> None:
    """An image that fgsm breaks costs 1 + 1 + 1 passes: the start, the gradient, the image that it found."""
    all_images, budget = images(12, seed=2), Budget(0.03)
    aim = Margin(NET, predicted_labels(NET, all_images))
    first = attack("fgsm")(aim, all_images, budget, keys=names(12))
    stay = Ensemble(QUICK)(aim, all_images, budget, keys=names(12))
    leave = Ensemble(replace(QUICK, early_exit=True))(aim, all_images, budget, keys=names(12))
    assert 0 < int(first.succeeded.sum()) < 12
    assert bool((leave.passes[first.succeeded] == 3).all()) and torch.equal(leave.succeeded, stay.succeeded)
    assert torch.equal(leave.images[first.succeeded], first.images[first.succeeded])
    # 5 images compared, 1 gradient of fgsm, 2 runs of pgd with 3 steps and a look, 2 of apgd with 4 passes, 6 queries.
    assert stay.passes.tolist() == [5 + 1 + 2 * 4 + 2 * 4 + 6] * 12


def test_members_that_do_not_exist_or_cannot_work_are_refused() -> None:
    all_images = images(1)
    labels = predicted_labels(NET, all_images)
    with pytest.raises(UnknownName, match="fgsn"):
        Ensemble(members=("fgsn",))(Margin(NET, labels), all_images, Budget(0.1), keys=names(1))
    with pytest.raises(ConfigError, match="'pgd'"):
        Ensemble(members=("pgd",))(TextOnlyMargin(NET, labels), all_images, Budget(0.1), keys=names(1))
