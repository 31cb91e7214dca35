"""Doubts about attacks, from lines made by hand."""

from __future__ import annotations

from dataclasses import replace

import planted_targets as planted
import pytest
import small_evidence as hand
import torch

from cxrlab.robustness.audit_records import Answer
from cxrlab.robustness.audited_studies import Case
from cxrlab.robustness.validity_checks import randomness_warning, weak_attack_warnings


def attacked(
    condition: str, *ends: float, start: float = 1.0, zero: float = 0.0, model: str = "a", made_for: str | None = ""
) -> list[Answer]:
    """An image each, with the loss that the attack reached."""
    found = []
    for number, end in enumerate(ends):
        trace = replace(hand.trace(), start=start, end=end, zero_gradients=zero)
        crafted = model if made_for == "" else made_for
        found += hand.lines(model, condition, {f"s{number}": hand.image()}, crafted, attack=trace)
    return [replace(one, crafted_on=None) for one in found] if made_for is None else found


def doubts(*groups: list[Answer]) -> list[str]:
    return list(weak_attack_warnings([line for lines in groups for line in lines], {"a": "model A"}))


def test_a_sound_sweep_raises_no_doubt() -> None:
    assert not doubts(
        attacked("pgd@1/255", 2.0, 3.0), attacked("pgd@2/255", 3.0, 4.0), attacked("square@2/255", 2.0, 2.0),
        attacked("noise@2/255", 1.1, 1.0, made_for=None), attacked("fgsm@2/255", 2.0, 2.5),
    )  # fmt: skip


def test_a_larger_ball_must_not_do_less() -> None:
    (warning,) = doubts(attacked("pgd@1/255", 3.0, 3.0), attacked("pgd@2/255", 2.0, 3.0))
    assert "pgd@2/255 reaches a lower loss (2.500) than pgd@1/255 (3.000)" in warning
    # Radii are numbers: 10/255 is larger than 9/255. One long step may overshoot, and two aims are two curves.
    assert not doubts(attacked("pgd@9/255", 2.0), attacked("pgd@10/255", 3.0))
    assert not doubts(attacked("fgsm@1/255", 3.0), attacked("fgsm@2/255", 2.0))
    assert not doubts(attacked("pgd@1/255", 3.0), attacked("pgd:answers@2/255", 2.0))


def test_an_attack_without_gradients_must_not_do_more() -> None:
    (warning,) = doubts(attacked("pgd@2/255", 2.0), attacked("square@2/255", 3.0), attacked("fgsm@2/255", 1.5))
    assert "the black-box attack square@2/255 reaches a higher loss (3.000) than pgd@2/255 with gradients" in warning
    # At another radius or with another aim nothing follows; a thousandth more is no more.
    assert not doubts(attacked("pgd@1/255", 2.0), attacked("square@2/255", 3.0))
    assert not doubts(attacked("pgd:answers@2/255", 2.0), attacked("square@2/255", 3.0))
    assert not doubts(attacked("pgd@2/255", 2.0), attacked("square@2/255", 2.0005))


def test_noise_must_not_do_more_than_gradients_either() -> None:
    (warning,) = doubts(attacked("pgd@2/255", 1.0), attacked("noise@2/255", 1.5, made_for=None))
    assert warning.startswith(
        "model A: noise@2/255 reaches a higher loss (1.500) than pgd@2/255 with gradients (1.000)"
    )


def test_the_worst_of_several_attacks_does_more_than_each_and_is_no_doubt() -> None:
    assert not doubts(attacked("pgd@2/255", 2.0, 3.0), attacked("ensemble@2/255", 2.5, 3.0))


def test_gradients_that_are_zero_everywhere_are_masked() -> None:
    (warning,) = doubts(attacked("fgsm@1/255", 1.0, 1.0, zero=0.5), attacked("pgd@1/255", 2.0, 2.0, zero=0.05))
    assert warning.startswith(
        "model A: 50% of the gradients under fgsm@1/255 are 0 in every pixel (1 conditions in all)"
    )
    assert not doubts(attacked("square@1/255", 1.0, zero=float("nan")))  # none was taken
    # An aim that does not apply to an image has nothing to gain there.
    assert not doubts(attacked("pgd:remove@1/255", 0.0, start=0.0, zero=1.0))


def test_images_that_were_made_for_another_model_count_for_that_one() -> None:
    assert not doubts(
        attacked("fgsm@1/255", 1.0, zero=1.0, model="b"), attacked("fgsm@1/255", 1.0, zero=1.0, made_for="b")
    )


@pytest.mark.parametrize(
    ("kind", "random"), [(planted.PatternTarget, False), (planted.RandomTarget, True), (planted.TextOnlyTarget, False)]
)
def test_a_model_that_answers_differently_each_time_is_reported(
    kind: type[planted.PatternTarget], random: bool
) -> None:
    images = torch.full((2, 1, planted.SIDE, planted.SIDE), 0.5)
    cases = [Case(name, name, None, planted.PRESENT, None, {planted.NAME: 1}) for name in ("s1", "s2")]
    warning = randomness_warning(kind("a", "planted"), cases, images)
    assert (warning is not None) == random
    assert warning is None or "losses differ by up to" in warning
