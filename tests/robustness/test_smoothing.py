"""Smoothed answers: exact statistics, and a certificate that holds where the true distance is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest
import torch
from tiny_models import save_tiny_llava
from torch import Tensor

import cxrlab
from cxrlab.core.errors import ConfigError, DataError
from cxrlab.robustness.smoothing import Smoothed, Smoothing, vote

SIDE = 6
QUESTION = "Is there edema?"


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

    def probability_of_yes(self, images: Any, questions: Sequence[str] | str) -> Tensor:
        self.sizes.append(len(images))
        return torch.sigmoid(self.score(images))

    def distances(self, images: Tensor) -> Tensor:
        return self.score(images).div(float(self.weights.norm()))


def images(count: int, spread: float) -> Tensor:
    """Grey images around 0.5, where the linear model is undecided; far from 0 and 1, so that nothing is cut."""
    return 0.5 + spread * torch.randn(count, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(2))


def names(count: int) -> list[str]:
    return [f"image {number}" for number in range(count)]


def test_there_is_an_answer_exactly_where_the_binomial_test_tells_one() -> None:
    stats = pytest.importorskip("scipy.stats")
    for yes in range(41):
        p = stats.binomtest(yes, 40, 0.5).pvalue
        found = vote(yes, 40, sigma=0.1, alpha=0.05)
        assert (found.answer is not None) == (p <= 0.05)
        assert found.answer in (None, yes > 20) and found.probability == yes / 40
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
    found = Smoothed(model, Smoothing(sigma, n, alpha=0.001, batch_size=500)).answers(shown, QUESTION, names(60))
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
    """The worst change of a linear model is known: straight against its weights."""
    model, shown = Linear(), images(20, 0.08)
    smoothed = Smoothed(model, Smoothing(0.05, 400, batch_size=500))
    found = smoothed.answers(shown, QUESTION, names(20))
    against = -model.weights.view(1, SIDE, SIDE) / model.weights.norm()
    moved = [image + (1 if one.answer else -1) * 0.99 * one.radius * against
             for image, one in zip(shown, found, strict=True)]  # fmt: skip
    again = smoothed.answers(moved, QUESTION, [f"moved {number}" for number in range(20)])
    sure = [(one, two) for one, two in zip(found, again, strict=True) if one.answer is not None]
    assert len(sure) > 5 and all((two.yes * 2 > two.n) == one.answer for one, two in sure)


def test_votes_depend_on_seed_and_name_alone() -> None:
    """Not on the batch, nor on the images beside; and pixels outside of [0, 1] are never shown."""
    model, shown = Linear(), images(3, 0.05)
    few, many = (Smoothed(model, Smoothing(0.1, 60, batch_size=size)) for size in (7, 64))
    whole = few.probability_of_yes(shown, QUESTION, names(3))
    assert max(model.sizes) == 7 and sum(model.sizes) == 3 * 60
    assert torch.equal(whole, many.probability_of_yes(shown, [QUESTION] * 3, names(3)))
    assert torch.equal(whole[1:2], many.probability_of_yes(shown[1:2], QUESTION, ["image 1"]))
    other = Smoothed(model, Smoothing(0.1, 60, seed=8)).probability_of_yes(shown, QUESTION, names(3))
    assert not torch.equal(whole, other)
    assert torch.equal(few.probability_of_yes(shown, QUESTION), few.probability_of_yes(shown, QUESTION))


def test_noisy_images_are_cut_to_the_range() -> None:
    class Watching(Linear):
        def probability_of_yes(self, all_images: Any, questions: Sequence[str] | str) -> Tensor:
            ends = [end for image in all_images for end in (image.min(), image.max())]
            assert min(ends) == 0 and max(ends) == 1
            return super().probability_of_yes(all_images, questions)

    Smoothed(Watching(), Smoothing(1.0, 20)).answers(images(2, 0.05), QUESTION)


def test_the_mean_over_copies_has_a_gradient_and_the_vote_has_none() -> None:
    model, shown = Linear(), images(2, 0.05).requires_grad_()
    smoothed = Smoothed(model, Smoothing(0.1, 60))
    found = smoothed.expected_probability(shown, QUESTION, names(2), copies=4)
    (slope,) = torch.autograd.grad(found.sum(), shown)
    assert found.shape == (2,) and bool((slope.flatten(1) @ model.weights > 0).all())
    assert not smoothed.probability_of_yes(shown, QUESTION).requires_grad and not smoothed.capabilities.gradients


def test_the_name_says_how_and_of_what() -> None:
    assert Smoothed(Linear(), Smoothing(0.1)).name == "smoothed:0.1:linear"


def test_settings_that_could_never_answer_are_refused() -> None:
    """Ten votes that agree have the two-sided p of 2 / 1024; eleven copies are needed at 0.001, by 2^-10 < 0.001."""
    with pytest.raises(ConfigError, match="n >= 11"):
        Smoothing(0.1, 10, alpha=0.001)
    assert Smoothing(0.1, 11, alpha=0.001).n == 11
    for changes in ({"sigma": 0.0}, {"alpha": 1.0}, {"n": 0}):
        with pytest.raises(ConfigError, match=f"{next(iter(changes))}="):
            Smoothing(**changes)
    with pytest.raises(DataError, match="2 images came with 1 questions"):
        Smoothed(Linear()).answers(images(2, 0.05), [QUESTION])


def test_a_report_model_is_asked_by_name_and_keeps_its_images(tmp_path: Path) -> None:
    """Images as arrays and a model of transformers: what the audit hands over."""
    model: Any = cxrlab.load_model(f"hf:{save_tiny_llava(tmp_path / 'tiny')}", device="cpu")
    smoothed = Smoothed(model, Smoothing(0.1, 12, alpha=0.01, batch_size=6))
    found = smoothed.probability_of_yes([image[0].numpy().clip(0, 1) for image in images(2, 0.1)], QUESTION)
    assert found.shape == (2,) and bool(((found * 12).round() / 12 - found).abs().max() < 1e-6)
    assert smoothed.name == f"smoothed:0.1:hf:{tmp_path / 'tiny'}"
