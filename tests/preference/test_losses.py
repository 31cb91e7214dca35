"""The seven losses against numbers that a person can work out."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cxrlab.preference import losses

Loss = Callable[[Tensor, Tensor], Tensor]

# Each as a function of what it is given for the first and for the second report; lengths and strengths are fixed.
TOKENS = torch.tensor([4.0, 7.0, 2.0]), torch.tensor([5.0, 3.0, 2.0])
PAIRED: dict[str, Loss] = {
    "dpo": lambda a, b: losses.dpo(a, b, 0.3),
    "robust": lambda a, b: losses.robust_dpo(a, b, 0.3, 0.2),
    "rdpo": lambda a, b: losses.rdpo(a, b, *TOKENS, 0.3, 0.05),
    "ipo": lambda a, b: losses.ipo(a, b, *TOKENS, 0.3),
    "orpo": lambda a, b: losses.orpo(a, b, 0.3),
    "simpo": lambda a, b: losses.simpo(a, b, 0.3, 0.5),
}


def of(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(found: Tensor, *expected: float) -> None:
    assert found.tolist() == pytest.approx(list(expected), rel=1e-12)


def test_dpo_by_hand() -> None:
    """β·margin of 0, ln 3 and -ln 3: σ is 1/2, 3/4 and 1/4."""
    margin = 10 * math.log(3)
    close(
        losses.dpo(of(-5, margin - 2, 0), of(-5, -2, margin), 0.1),
        math.log(2), math.log(4 / 3), math.log(4),
    )  # fmt: skip


def test_robust_dpo_by_hand() -> None:
    """σ = 3/4 with one pair in ten flipped: (0.9 · ln(4/3) - 0.1 · ln 4) / 0.8."""
    found = losses.robust_dpo(of(math.log(3)), of(0), 1.0, 0.1)
    close(found, (0.9 * math.log(4 / 3) - 0.1 * math.log(4)) / 0.8)


def test_robust_dpo_without_flips_is_dpo() -> None:
    chosen, rejected = of(-3, 0, 2, 40), of(1, 0, -5, -40)
    assert torch.equal(losses.robust_dpo(chosen, rejected, 0.3, 0.0), losses.dpo(chosen, rejected, 0.3))


@pytest.mark.parametrize("flipped", [0.1, 0.3, 0.49])
def test_the_mean_of_robust_dpo_is_unmoved_by_flips(flipped: float) -> None:
    """Of each pair the share `flipped` is the wrong way round: the mean over both ways is DPO's loss of the right."""
    chosen, rejected = of(-3, 0, 2, 5), of(1, 0, -5, 7)
    right = losses.robust_dpo(chosen, rejected, 0.5, flipped)
    wrong = losses.robust_dpo(rejected, chosen, 0.5, flipped)
    expected = losses.dpo(chosen, rejected, 0.5)
    assert torch.allclose((1 - flipped) * right + flipped * wrong, expected, rtol=1e-9)
    assert not torch.allclose((1 - flipped) * expected + flipped * losses.dpo(rejected, chosen, 0.5), expected)


def test_rdpo_by_hand() -> None:
    """No margin, and 20 tokens of ln 3 / 20 each more or less: σ is 3/4 or 1/4; equal lengths leave DPO."""
    alpha = math.log(3) / 20
    found = losses.rdpo(of(1, 1, 2), of(1, 1, 0), of(50, 30, 8), of(30, 50, 8), 0.5, alpha)
    close(found, math.log(4 / 3), math.log(4), float(losses.dpo(of(2), of(0), 0.5)))


def test_a_longer_chosen_report_lowers_rdpos_loss_and_its_pull() -> None:
    """That is what keeps length from being learnt: the pair has less to teach."""
    ratio = of(0.0).requires_grad_()
    found, pull = [], []
    for tokens in (10, 20, 40):
        loss = losses.rdpo(ratio, of(0), of(tokens), of(20), 0.1, 0.05)
        found.append(float(loss.detach()))
        pull.append(float(torch.autograd.grad(loss.sum(), ratio)[0]))
    assert found[0] > found[1] > found[2] and pull[0] < pull[1] < pull[2] < 0


def test_rdpo_takes_whole_numbers_of_tokens() -> None:
    found = losses.rdpo(of(1), of(0), torch.tensor([3]), torch.tensor([5]), 1.0, 0.25)
    close(found, math.log(1 + math.exp(-0.5)))


def test_ipo_by_hand() -> None:
    """A quarter and a half a token leave a margin of -1/4 of the wanted 1/(2 · 0.5) = 1: 1.25² = 1.5625."""
    found = losses.ipo(of(2, 8), of(3, 0), of(8, 8), of(6, 5), 0.5)
    close(found, 1.5625, 0.0)


def test_ipo_pulls_back_what_is_told_apart_too_well() -> None:
    """Wanted are 5 a token: below, the chosen report is raised; above, lowered."""
    ratio = of(4, 5, 6).requires_grad_()
    (gradient,) = torch.autograd.grad(losses.ipo(ratio, of(0, 0, 0), of(1, 1, 1), of(1, 1, 1), 0.1).sum(), ratio)
    close(gradient, -2.0, 0.0, 2.0)


def test_kto_by_hand() -> None:
    """β(ratio - drift) is ln 3 for the first two: 1 - 3/4 of weight 2 for the good one, 1 - 1/4 of weight 4 for the
    bad one. A report that moved as far as the model did is worth a half."""
    ratio = of(2 + 2 * math.log(3), 2 + 2 * math.log(3), 2, 2)
    good = torch.tensor([True, False, True, False])
    close(losses.kto(ratio, good, of(2)[0], 0.5, 2.0, 4.0), 0.5, 3.0, 1.0, 2.0)


def test_orpo_by_hand() -> None:
    """Means of ln 1/2 and ln 1/3: odds of 1 and 1/2, their ratio 2, σ(ln 2) = 2/3; beside it -ln 1/2."""
    found = losses.orpo(of(math.log(1 / 2)), of(math.log(1 / 3)), 0.1)
    close(found, math.log(2) + 0.1 * math.log(3 / 2))


def test_simpo_by_hand() -> None:
    """2 · (ln 3 / 2 + 1/4) - 1/2 = ln 3; and at the wanted margin γ/β exactly, σ(0)."""
    found = losses.simpo(of(math.log(3) / 2 + 0.25 - 1, -1), of(-1, -1.25), 2.0, 0.5)
    close(found, math.log(4 / 3), math.log(2))


@pytest.mark.parametrize("name", sorted(PAIRED))
def test_the_chosen_report_is_raised_and_the_rejected_one_lowered(name: str) -> None:
    """Before anything is learnt, a step down the loss makes the first likelier and the second less likely."""
    first, second = (torch.full((3,), -2.0, dtype=torch.float64, requires_grad=True) for _ in range(2))
    up, down = torch.autograd.grad(PAIRED[name](first, second).sum(), (first, second))
    assert (up < 0).all() and (down > 0).all()


def test_kto_raises_good_reports_and_lowers_bad_ones() -> None:
    ratio = of(-1, -1, 3, 3).requires_grad_()
    loss = losses.kto(ratio, torch.tensor([True, False] * 2), of(0.5)[0], 0.3, 1.0, 1.0).sum()
    (gradient,) = torch.autograd.grad(loss, ratio)
    assert (gradient[::2] < 0).all() and (gradient[1::2] > 0).all()


@pytest.mark.parametrize("name", [*sorted(PAIRED), "kto"])
def test_gradients_against_finite_differences(name: str) -> None:
    first, second = of(-1.5, -0.3, -6).requires_grad_(), of(-0.7, -2.5, -4).requires_grad_()
    if name == "kto":
        good = torch.tensor([True, False, True])
        assert torch.autograd.gradcheck(lambda a: losses.kto(a, good, of(0.4)[0], 0.3, 1.5, 0.5), (first,))
    else:
        assert torch.autograd.gradcheck(PAIRED[name], (first, second))


@pytest.mark.parametrize("name", [*sorted(PAIRED), "kto"])
def test_extreme_log_probabilities_stay_numbers(name: str) -> None:
    """A report that is certain (0) and one that is all but impossible (-10,000), either way round, in float32."""
    first = torch.tensor([0.0, -1e4, 0.0, -1e4], requires_grad=True)
    second = torch.tensor([-1e4, 0.0, 0.0, -1e4], requires_grad=True)
    many = torch.ones(4), torch.full((4,), 300.0)
    found = {
        **{key: PAIRED[key] for key in ("dpo", "robust", "orpo", "simpo")},
        "rdpo": lambda a, b: losses.rdpo(a, b, *many, 0.3, 0.05),
        "ipo": lambda a, b: losses.ipo(a, b, *many, 0.3),
        "kto": lambda a, b: losses.kto(a, torch.tensor([True, False] * 2), b.detach().mean(), 0.3, 1.0, 1.0) + 0 * b,
    }[name](first, second)
    assert torch.isfinite(found).all()
    for gradient in torch.autograd.grad(found.sum(), (first, second)):
        assert torch.isfinite(gradient).all()


def test_the_loss_of_a_hopeless_pair_is_its_margin() -> None:
    """-log σ(-x) is x for large x: nothing is cut off where the exponential would overflow."""
    close(losses.dpo(of(-1e4), of(0), 0.3), 3000.0)
    assert float(losses.simpo(torch.tensor([-1e4]), torch.tensor([0.0]), 2.0, 0.5)) == pytest.approx(20000.5)
