"""The seven losses against numbers that a person can work out."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cxrlab.core.registry import load_reference
from cxrlab.preference.config import LOSSES, LossSettings
from cxrlab.preference.losses import LogProbabilities

Loss = Callable[[Tensor, Tensor], Tensor]


def loss(
    name: str, sums: Tensor, tokens: Tensor | None = None, good: Tensor | None = None, **settings: float
) -> Tensor:
    """A loss of sums [2, B]: ratios against a reference of 0, means with one token each."""
    tokens = torch.ones_like(sums) if tokens is None else tokens
    reference = torch.zeros_like(sums) if LOSSES[name].needs_reference else None
    found: Tensor = load_reference(LOSSES[name].function)(
        LogProbabilities(sums, tokens, reference, good), LossSettings(name, **settings)
    )
    return found


def dpo(chosen: Tensor, rejected: Tensor, beta: float) -> Tensor:
    return loss("dpo", torch.stack([chosen, rejected]), beta=beta)


def robust_dpo(chosen: Tensor, rejected: Tensor, beta: float, flipped: float) -> Tensor:
    return loss("robust", torch.stack([chosen, rejected]), beta=beta, flipped=flipped)


def rdpo(chosen: Tensor, rejected: Tensor, tokens: Tensor, other_tokens: Tensor, beta: float, alpha: float) -> Tensor:
    return loss("rdpo", torch.stack([chosen, rejected]), torch.stack([tokens, other_tokens]), beta=beta, alpha=alpha)


def ipo(chosen: Tensor, rejected: Tensor, tokens: Tensor, other_tokens: Tensor, beta: float) -> Tensor:
    return loss("ipo", torch.stack([chosen, rejected]), torch.stack([tokens, other_tokens]), beta=beta)


def kto(ratio: Tensor, good: Tensor, drift: Tensor, beta: float, desirable: float, undesirable: float) -> Tensor:
    sums = torch.stack([ratio, drift.expand_as(ratio)])
    return loss("kto", sums, good=good, beta=beta, desirable_weight=desirable, undesirable_weight=undesirable)


def orpo(chosen: Tensor, rejected: Tensor, beta: float) -> Tensor:
    return loss("orpo", torch.stack([chosen, rejected]), beta=beta)


def simpo(chosen: Tensor, rejected: Tensor, beta: float, gamma: float) -> Tensor:
    return loss("simpo", torch.stack([chosen, rejected]), beta=beta, gamma=gamma)


# Each as a function of what it is given for the first and for the second report; lengths and strengths are fixed.
TOKENS = torch.tensor([4.0, 7.0, 2.0]), torch.tensor([5.0, 3.0, 2.0])
PAIRED: dict[str, Loss] = {
    "dpo": lambda a, b: dpo(a, b, 0.3),
    "robust": lambda a, b: robust_dpo(a, b, 0.3, 0.2),
    "rdpo": lambda a, b: rdpo(a, b, *TOKENS, 0.3, 0.05),
    "ipo": lambda a, b: ipo(a, b, *TOKENS, 0.3),
    "orpo": lambda a, b: orpo(a, b, 0.3),
    "simpo": lambda a, b: simpo(a, b, 0.3, 0.5),
}


def of(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(found: Tensor, *expected: float) -> None:
    assert found.tolist() == pytest.approx(list(expected), rel=1e-12)


def test_dpo_by_hand() -> None:
    """β·margin of 0, ln 3 and -ln 3: σ is 1/2, 3/4 and 1/4."""
    margin = 10 * math.log(3)
    close(
        dpo(of(-5, margin - 2, 0), of(-5, -2, margin), 0.1),
        math.log(2), math.log(4 / 3), math.log(4),
    )  # fmt: skip


def test_robust_dpo_by_hand() -> None:
    """σ = 3/4 with one pair in ten flipped: (0.9 · ln(4/3) - 0.1 · ln 4) / 0.8."""
    found = robust_dpo(of(math.log(3)), of(0), 1.0, 0.1)
    close(found, (0.9 * math.log(4 / 3) - 0.1 * math.log(4)) / 0.8)


def test_robust_dpo_without_flips_is_dpo() -> None:
    chosen, rejected = of(-3, 0, 2, 40), of(1, 0, -5, -40)
    assert torch.equal(robust_dpo(chosen, rejected, 0.3, 0.0), dpo(chosen, rejected, 0.3))


@pytest.mark.parametrize("flipped", [0.1, 0.3, 0.49])
def test_the_mean_of_robust_dpo_is_unmoved_by_flips(flipped: float) -> None:
    """Of each pair the share `flipped` is the wrong way round: the mean over both ways is DPO's loss of the right."""
    chosen, rejected = of(-3, 0, 2, 5), of(1, 0, -5, 7)
    right = robust_dpo(chosen, rejected, 0.5, flipped)
    wrong = robust_dpo(rejected, chosen, 0.5, flipped)
    expected = dpo(chosen, rejected, 0.5)
    assert torch.allclose((1 - flipped) * right + flipped * wrong, expected, rtol=1e-9)
    assert not torch.allclose((1 - flipped) * expected + flipped * dpo(rejected, chosen, 0.5), expected)


def test_rdpo_by_hand() -> None:
    """No margin, and 20 tokens of ln 3 / 20 each more or less: σ is 3/4 or 1/4; equal lengths leave DPO."""
    alpha = math.log(3) / 20
    found = rdpo(of(1, 1, 2), of(1, 1, 0), of(50, 30, 8), of(30, 50, 8), 0.5, alpha)
    close(found, math.log(4 / 3), math.log(4), float(dpo(of(2), of(0), 0.5)))


def test_a_longer_chosen_report_lowers_rdpos_loss_and_its_pull() -> None:
    """That is what keeps length from being learnt: the pair has less to teach."""
    ratio = of(0.0).requires_grad_()
    found, pull = [], []
    for tokens in (10, 20, 40):
        value = rdpo(ratio, of(0), of(tokens), of(20), 0.1, 0.05)
        found.append(float(value.detach()))
        pull.append(float(torch.autograd.grad(value.sum(), ratio)[0]))
    assert found[0] > found[1] > found[2] and pull[0] < pull[1] < pull[2] < 0


def test_rdpo_takes_whole_numbers_of_tokens() -> None:
    found = rdpo(of(1), of(0), torch.tensor([3]), torch.tensor([5]), 1.0, 0.25)
    close(found, math.log(1 + math.exp(-0.5)))


def test_ipo_by_hand() -> None:
    """A quarter and a half a token leave a margin of -1/4 of the wanted 1/(2 · 0.5) = 1: 1.25² = 1.5625."""
    found = ipo(of(2, 8), of(3, 0), of(8, 8), of(6, 5), 0.5)
    close(found, 1.5625, 0.0)


def test_ipo_pulls_back_what_is_distinguished_too_well() -> None:
    """Wanted are 5 a token: below, the chosen report is raised; above, lowered."""
    ratio = of(4, 5, 6).requires_grad_()
    (gradient,) = torch.autograd.grad(ipo(ratio, of(0, 0, 0), of(1, 1, 1), of(1, 1, 1), 0.1).sum(), ratio)
    close(gradient, -2.0, 0.0, 2.0)


def test_kto_by_hand() -> None:
    """β(ratio - drift) is ln 3 for the first two: 1 - 3/4 of weight 2 for the good one, 1 - 1/4 of weight 4 for the
    bad one. A report that moved as far as the model did is worth a half."""
    ratio = of(2 + 2 * math.log(3), 2 + 2 * math.log(3), 2, 2)
    good = torch.tensor([True, False, True, False])
    close(kto(ratio, good, of(2)[0], 0.5, 2.0, 4.0), 0.5, 3.0, 1.0, 2.0)


def test_orpo_by_hand() -> None:
    """Means of ln 1/2 and ln 1/3: odds of 1 and 1/2, their ratio 2, σ(ln 2) = 2/3; beside it -ln 1/2."""
    found = orpo(of(math.log(1 / 2)), of(math.log(1 / 3)), 0.1)
    close(found, math.log(2) + 0.1 * math.log(3 / 2))


def test_simpo_by_hand() -> None:
    """2 · (ln 3 / 2 + 1/4) - 1/2 = ln 3; and at the wanted margin γ/β exactly, σ(0)."""
    found = simpo(of(math.log(3) / 2 + 0.25 - 1, -1), of(-1, -1.25), 2.0, 0.5)
    close(found, math.log(4 / 3), math.log(2))


@pytest.mark.parametrize("name", sorted(PAIRED))
def test_the_chosen_report_is_raised_and_the_rejected_one_lowered(name: str) -> None:
    """Before anything is learnt, a step down the loss makes the first likelier and the second less likely."""
    first, second = (torch.full((3,), -2.0, dtype=torch.float64, requires_grad=True) for _ in range(2))
    up, down = torch.autograd.grad(PAIRED[name](first, second).sum(), (first, second))
    assert (up < 0).all() and (down > 0).all()


def test_kto_raises_good_reports_and_lowers_bad_ones() -> None:
    ratio = of(-1, -1, 3, 3).requires_grad_()
    total = kto(ratio, torch.tensor([True, False] * 2), of(0.5)[0], 0.3, 1.0, 1.0).sum()
    (gradient,) = torch.autograd.grad(total, ratio)
    assert (gradient[::2] < 0).all() and (gradient[1::2] > 0).all()


@pytest.mark.parametrize("name", [*sorted(PAIRED), "kto"])
def test_gradients_against_finite_differences(name: str) -> None:
    first, second = of(-1.5, -0.3, -6).requires_grad_(), of(-0.7, -2.5, -4).requires_grad_()
    if name == "kto":
        good = torch.tensor([True, False, True])
        assert torch.autograd.gradcheck(lambda a: kto(a, good, of(0.4)[0], 0.3, 1.5, 0.5), (first,))
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
        "rdpo": lambda a, b: rdpo(a, b, *many, 0.3, 0.05),
        "ipo": lambda a, b: ipo(a, b, *many, 0.3),
        "kto": lambda a, b: kto(a, torch.tensor([True, False] * 2), b.detach().mean(), 0.3, 1.0, 1.0) + 0 * b,
    }[name](first, second)
    assert torch.isfinite(found).all()
    for gradient in torch.autograd.grad(found.sum(), (first, second)):
        assert torch.isfinite(gradient).all()


def test_the_loss_of_a_hopeless_pair_is_its_margin() -> None:
    """-log σ(-x) is x for large x: nothing is cut off where the exponential would overflow."""
    close(dpo(of(-1e4), of(0), 0.3), 3000.0)
    assert float(simpo(torch.tensor([-1e4]), torch.tensor([0.0]), 2.0, 0.5)) == pytest.approx(20000.5)
