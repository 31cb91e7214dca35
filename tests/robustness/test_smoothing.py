"""Smoothed answers: exact statistics, and a certificate that holds where the true distance is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from cxrlab.robustness.smoothing import SmoothedAnswer, Smoothing, over_copies, vote

SIDE = 6


class Linear:
    """Answers yes where w · x + b > 0; the distance of an image from the other answer is |w · x + b| / |w|."""

    name, device = "linear", torch.device("cpu")

    def __init__(self) -> None:
        self.weights = torch.randn(SIDE * SIDE, generator=torch.Generator().manual_seed(1))
        self.offset = -0.5 * float(self.weights.sum())
        self.sizes: list[int] = []

    def score(self, images: Sequence[Tensor] | Tensor) -> Tensor:
        found: Tensor = torch.stack([image.flatten() for image in images]) @ self.weights + self.offset
        return found

    def margins(self, images: Tensor) -> Tensor:
        self.sizes.append(len(images))
        return self.score(images)

    def distances(self, images: Tensor) -> Tensor:
        return self.score(images).div(float(self.weights.norm()))


def images(count: int, spread: float) -> Tensor:
    """Grey images around 0.5, where the linear model is undecided; far from 0 and 1, so that nothing is cut."""
    return 0.5 + spread * torch.randn(count, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(2))


def answers(
    model: Linear, all_images: Sequence[Tensor] | Tensor, keys: Sequence[str], settings: Smoothing
) -> list[SmoothedAnswer]:
    """The vote on each image."""
    margins = over_copies(model.margins, all_images, keys, settings.n, settings)
    return [vote(int(yes), settings.n, settings.sigma, settings.alpha) for yes in (margins > 0).sum(dim=1)]


def names(count: int) -> list[str]:
    return [f"image {number}" for number in range(count)]


def test_there_is_an_answer_exactly_where_the_binomial_test_tells_one() -> None:
    stats = pytest.importorskip("scipy.stats")
    for yes in range(41):
        p = stats.binomtest(yes, 40, 0.5).pvalue
        found = vote(yes, 40, sigma=0.1, alpha=0.05)
        assert (found.answer is not None) == (p <= 0.05)
        assert found.answer in (None, yes > 20)
        assert (found.radius > 0) == (found.answer is not None)


def test_yes_and_no_are_certified_alike_and_more_noise_certifies_more() -> None:
    """All of 100 votes at alpha 0.001: σ times the quantile of 0.0005^(1/100), by hand."""
    one, other = vote(100, 100, 0.1, 0.001), vote(0, 100, 0.1, 0.001)
    assert (one.answer, other.answer) == (True, False) and one.radius == pytest.approx(other.radius)
    assert one.radius == pytest.approx(0.1 * NormalDist().inv_cdf(0.0005**0.01))
    assert vote(100, 100, 0.2, 0.001).radius == pytest.approx(2 * one.radius)


def test_the_certificate_of_a_linear_model_is_within_its_true_distance_and_not_far_from_it() -> None:
    """An image at the distance d is answered rightly under noise with the probability Φ(d / σ), so d is what an endless
    vote would certify; a vote of 2,000 certifies less, by what 2,000 votes leave open."""
    sigma, n = 0.05, 2000
    model, shown = Linear(), images(60, 0.05)
    found = answers(model, shown, names(60), Smoothing(sigma, n, alpha=0.001, batch_size=500))
    exact = model.distances(shown).tolist()
    assert sum(one.answer is None for one in found) < 10
    for one, distance in zip(found, exact, strict=True):
        assert one.radius <= abs(distance)
        assert one.answer in (None, distance > 0)
        share = NormalDist().cdf(abs(distance) / sigma)
        if one.answer is not None and share < 0.98:
            low = share - 8 * math.sqrt(share * (1 - share) / n)  # half for the draw, half for the bound
            assert one.radius >= sigma * NormalDist().inv_cdf(max(low, 0.5))


def test_inside_the_radius_no_change_turns_the_answer() -> None:
    """The worst change of a linear model is known: straight against its weights. The noisy copies get the same noise."""
    model, shown, settings = Linear(), images(20, 0.08), Smoothing(0.05, 400, batch_size=500)
    found = answers(model, shown, names(20), settings)
    against = -model.weights.view(1, SIDE, SIDE) / model.weights.norm()
    moved = [image + (1 if one.answer else -1) * 0.99 * one.radius * against
             for image, one in zip(shown, found, strict=True)]  # fmt: skip
    again = answers(model, moved, names(20), settings)
    sure = [(one, two) for one, two in zip(found, again, strict=True) if one.answer is not None]
    assert len(sure) > 5 and all((two.yes * 2 > two.n) == one.answer for one, two in sure)


def test_votes_depend_on_seed_and_name_alone() -> None:
    """Not on the batch, nor on the other images."""
    model, shown = Linear(), images(3, 0.05)
    few, many = (Smoothing(0.1, 60, batch_size=size) for size in (7, 64))
    whole = answers(model, shown, names(3), few)
    assert max(model.sizes) == 7 and sum(model.sizes) == 3 * 60
    assert whole == answers(model, shown, names(3), many)
    assert whole[1:2] == answers(model, shown[1:2], ["image 1"], many)
    assert whole != answers(model, shown, names(3), Smoothing(0.1, 60, seed=8))


def test_noisy_images_are_clipped_to_the_range() -> None:
    class Watching(Linear):
        def margins(self, all_images: Tensor) -> Tensor:
            ends = [end for image in all_images for end in (image.min(), image.max())]
            assert min(ends) == 0 and max(ends) == 1
            return super().margins(all_images)

    answers(Watching(), images(2, 0.05), names(2), Smoothing(1.0, 20))


def test_the_mean_over_copies_has_a_gradient() -> None:
    model, shown = Linear(), images(2, 0.05).requires_grad_()
    found = torch.sigmoid(over_copies(model.margins, shown, names(2), 4, Smoothing(0.1, 60))).mean(dim=1)
    (slope,) = torch.autograd.grad(found.sum(), shown)
    assert found.shape == (2,) and bool((slope.flatten(1) @ model.weights > 0).all())
