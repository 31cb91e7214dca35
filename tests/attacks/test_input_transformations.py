"""Input transformations: range, draws, gradients, and an attacker who knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from tables import every_row
from torch import Tensor
from toy_objectives import Linear, images, names

from cxrlab.attacks.attack import Attack
from cxrlab.attacks.config import AttackSettings, Budget
from cxrlab.attacks.gradient import Pgd
from cxrlab.attacks.input_transformations import (
    TRANSFORMATIONS,
    BehindTransformation,
    draws_by_pixels,
    expected,
    fresh_draws,
    parse_transformation,
)
from cxrlab.core.errors import ConfigError
from cxrlab.core.image_codec import decode, encode_jpeg, to_unit

RANDOM = ("noise", "random-resample")


def smooth(count: int = 2, side: int = 20, channels: int = 1) -> Tensor:
    """Images with edges in one direction, 0 and 1 included."""
    ramp = torch.linspace(-0.3, 1.3, side).clamp(0, 1)
    return (ramp[None, :] * torch.linspace(0.5, 1, side)[:, None]).expand(count, channels, side, side).clone()


def transformed(name: str, given: Tensor, seed: int = 1) -> Tensor:
    return parse_transformation(name)(given, draws_by_pixels(given, seed))


@every_row("name", TRANSFORMATIONS)
def test_shape_type_range_and_the_given_image_are_kept(name: str) -> None:
    for given in (smooth(), smooth(channels=3), images(3, size=13), torch.zeros(1, 1, 9, 17), torch.ones(1, 1, 17, 9)):
        before = given.clone()
        found = transformed(name, given)
        assert found.shape == given.shape and found.dtype == torch.float32 and torch.equal(given, before)
        assert float(found.min()) >= 0 and float(found.max()) <= 1


@every_row("name", TRANSFORMATIONS)
def test_seed_and_pixels_decide_the_result_whatever_the_batch(name: str) -> None:
    given = images(3, size=16)
    found = transformed(name, given)
    assert torch.equal(found, transformed(name, given))
    assert torch.allclose(found[1:2], transformed(name, given[1:2]), atol=1e-6)  # convolutions differ in the last bit
    assert (
        TRANSFORMATIONS[name].random == (name in RANDOM) == (not torch.equal(found, transformed(name, given, seed=2)))
    )


@every_row("name", RANDOM)
def test_a_server_draws_anew_for_every_request(name: str) -> None:
    given, transformation = images(1, size=16), parse_transformation(name)
    assert not torch.equal(transformation(given, fresh_draws(given)), transformation(given, fresh_draws(given)))


def test_jpeg_is_the_codec_and_bits_are_the_grey_levels() -> None:
    given = images(2, size=16)
    stored = (given[1, 0].numpy() * 255).round().astype(np.uint8)
    by_codec = to_unit(decode(encode_jpeg(stored, 30), "x"))
    assert np.array_equal(transformed("jpeg:30", given)[1, 0].numpy(), by_codec)
    assert sorted(set(transformed("bits:1", given).flatten().tolist())) == [0.0, 1.0]
    assert transformed("bits:2", torch.tensor([[[[0.16, 0.17, 0.5, 0.9]]]])).flatten().tolist() == pytest.approx(
        [0, 1 / 3, 2 / 3, 1]
    )


def test_resampling_to_the_whole_size_and_blurring_a_flat_image_change_nothing() -> None:
    given = images(2, size=12)
    assert torch.allclose(transformed("resample:1", given), given)
    flat = torch.full((1, 1, 12, 12), 0.3)
    for name in ("blur:2", "resample:0.5", "random-resample:0.3"):
        assert torch.allclose(transformed(name, flat), flat, atol=1e-6)


def test_a_blur_keeps_low_frequencies_and_drops_a_checkerboard() -> None:
    rows, columns = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    board = 0.5 + 0.4 * ((rows + columns) % 2 * 2 - 1)[None, None]
    assert float((transformed("blur:1.5", board) - 0.5)[..., 8:24, 8:24].abs().max()) < 1e-3
    wave = 0.5 + 0.4 * torch.cos(2 * torch.pi * columns / 32)[None, None]
    assert float((transformed("blur:1.5", wave) - wave)[..., 8:24].abs().max()) < 0.02


@every_row("name", ("blur:1.3", "resample:0.4", "random-resample:0.4", "noise:0.1"))
def test_gradients_are_finite_differences_where_there_is_a_derivative(name: str) -> None:
    """Away from 0 and 1, where noise is clipped; the draws stay those of the first image."""
    given = (0.4 + 0.2 * images(1, size=11)).double()
    transformation = parse_transformation(name)

    def once(some: Tensor) -> Tensor:
        found: Tensor = transformation(some, [np.random.default_rng(3)])
        return found

    assert torch.autograd.gradcheck(once, given.requires_grad_(), eps=1e-6, atol=1e-6)


def test_a_blurred_white_image_has_the_whole_gradient() -> None:
    """A clamp would drop it where rounding lifts a pixel above 1."""
    white = torch.ones(1, 1, 16, 16, requires_grad=True)
    transformed("blur:1.1", white).sum().backward()  # type: ignore[no-untyped-call]
    assert white.grad is not None and float(white.grad.sum()) == pytest.approx(256, rel=1e-5)


def test_bit_depth_has_the_gradient_of_the_identity() -> None:
    given, weights = images(1, size=8).requires_grad_(), images(1, size=8, seed=4)
    (transformed("bits:2", given) * weights).sum().backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None and torch.equal(given.grad, weights)


def test_the_gradient_of_jpeg_follows_the_codec() -> None:
    """Over a step as large as the rounding, the direction of the gradient raises the loss of what the codec returns."""
    torch.manual_seed(0)
    rows = torch.arange(24.0)
    given = (0.5 + 0.3 * torch.sin(rows / 3)[:, None] * torch.cos(rows / 4)[None, :])[None, None].requires_grad_()
    weights = torch.cos(rows / 5)[None, None, :, None].expand(1, 1, 24, 24)
    (transformed("jpeg:60", given) * weights).sum().backward()  # type: ignore[no-untyped-call]
    assert given.grad is not None and bool(given.grad.abs().sum() > 0)
    moved = (given + 0.05 * given.grad.sign()).detach().clamp(0, 1)
    gained = ((transformed("jpeg:60", moved) - transformed("jpeg:60", given.detach())) * weights).sum()
    # A linear estimate of the largest possible gain: every pixel along its weight.
    assert float(gained) > 0.7 * float(0.05 * weights.abs().sum())


def test_the_expectation_over_one_draw_is_the_plain_gradient() -> None:
    """Deterministic transformations have one draw, however many are asked for."""
    weights = images(1, size=12, seed=9)
    for name in ("blur:1", "jpeg:50", "bits:3", "resample:0.5"):
        transformation = parse_transformation(name)
        plain, through = images(2, size=12).requires_grad_(), images(2, size=12).requires_grad_()
        (transformation(plain, ()) * weights).sum().backward()
        outputs = expected(lambda some: (some * weights).flatten(1).sum(1), through, transformation, draws=5, seed=3)
        assert outputs.shape == (1, 2)
        outputs.mean(dim=0).sum().backward()
        assert plain.grad is not None and through.grad is not None and torch.equal(plain.grad, through.grad)


class Squares:
    """Loss: the sum of squares, whose gradient under noise is 2x on average and 2(x + n) for one draw."""

    device = torch.device("cpu")

    def losses(self, some: Tensor, reports: Sequence[str], indications: Sequence[Any]) -> Tensor:
        return (some**2).flatten(1).sum(dim=1)

    def losses_of_each(self, some: Tensor, reports: Sequence[Any], indications: Sequence[Any]) -> list[Tensor]:
        return [self.losses(some, [], []), 3 * self.losses(some, [], [])]


def test_more_draws_bring_the_gradient_nearer_to_its_expectation() -> None:
    given = torch.full((4, 1, 8, 8), 0.5)
    errors = []
    for draws in (1, 16):
        model, pixels = BehindTransformation(Squares(), parse_transformation("noise:0.1"), draws, 1), given.clone()
        losses = model.losses(pixels.requires_grad_(), ["r"] * 4, [None] * 4)
        one, three = model.losses_of_each(pixels, [["r"] * 4] * 2, [None] * 4)
        assert torch.allclose(one, losses) and torch.allclose(three, 3 * losses)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        assert pixels.grad is not None
        errors.append(float((pixels.grad - 2 * given).std()))
    assert errors[0] == pytest.approx(0.2, rel=0.2) and errors[1] == pytest.approx(0.2 / 4, rel=0.2)


def attacked(objective: Any, given: Tensor, steps: int = 5) -> Tensor:
    attack: Attack = Pgd(AttackSettings(steps=steps, random_start=False))
    return attack(objective, given, Budget(0.05), keys=names(len(given))).images


def test_the_adaptive_attack_beats_the_other_where_a_blur_hides_what_the_model_looks_at() -> None:
    """The model weighs a checkerboard by 1 and a half plane by 0.1: PGD follows the checkerboard in every pixel, and the
    blur drops it. Through the blur only the half plane is left, so that the adaptive attack gains ε · Σ 0.1."""
    rows, columns = torch.meshgrid(torch.arange(24), torch.arange(24), indexing="ij")
    board = ((rows + columns) % 2 * 2 - 1).float()[None, None]
    half = torch.where(columns < 12, 1.0, -1.0)[None, None]
    weights = board + 0.1 * half
    given, transformation = torch.full((2, 1, 24, 24), 0.5), parse_transformation("blur:1.5")

    class Through(Linear):
        def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
            return super().losses(transformation(images, ()), rows)

    undefended, defended = Linear(weights), Through(weights)
    clean = defended.losses(given, range(2))
    ignorant = defended.losses(attacked(undefended, given), range(2)) - clean
    knowing = defended.losses(attacked(defended, given), range(2)) - clean
    assert bool((ignorant < 0.1 * knowing).all())
    assert knowing.tolist() == pytest.approx([0.05 * 0.1 * 24 * 24] * 2, rel=0.15)


@pytest.mark.parametrize(
    "text", ["jpg:50", "jpeg:0", "jpeg:50.5", "jpeg:high", "blur:nan", "noise:2", "resample:0", "bits:9"]
)
def test_an_unusable_transformation_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=text.partition(":")[0]):
        parse_transformation(text)


def test_a_transformation_without_a_strength_has_that_of_the_table() -> None:
    assert str(parse_transformation("jpeg")) == "jpeg:50" and str(parse_transformation("blur:1.50")) == "blur:1.5"
