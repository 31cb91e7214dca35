from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_objectives import images

from cxrlab.attacks.config import Norm
from cxrlab.attacks.norm_balls import (
    change_norms,
    clip_norm,
    project,
    project_exactly,
    random_in_ball,
    random_on_sphere,
    steepest_direction,
)
from cxrlab.core.randomness import generator

NORMS: tuple[Norm, ...] = ("linf", "l2")


def test_a_image_outside_is_brought_to_the_edge_of_the_ball() -> None:
    """From 0.5: ±0.3 and 0 cut to 0.1 for l∞; the change (0.3, 0.4) has length 0.5, a fifth of it length 0.1."""
    clean = torch.full((1, 1, 1, 2), 0.5)
    far = clean + torch.tensor([0.3, -0.4])
    assert torch.allclose(project(far, clean, 0.1, "linf"), torch.tensor([0.6, 0.4]))
    assert torch.allclose(project(far, clean, 0.1, "l2"), torch.tensor([0.56, 0.42]))


@pytest.mark.parametrize("norm", NORMS)
def test_a_image_of_the_ball_comes_back_bit_by_bit(norm: Norm) -> None:
    """Or a start at the image of a smaller radius would not score as that image did."""
    clean = images(6)
    sources = [generator(number) for number in range(6)]
    within = project_exactly(clean + random_in_ball(clean.shape, 0.03, norm, sources), clean, 0.03, norm)
    assert not torch.equal(within, clean)
    for eps in (0.03, 0.05):
        assert torch.equal(project(within, clean, eps, norm), within)
        assert torch.equal(project_exactly(within, clean, eps, norm), within)


@settings(max_examples=30, deadline=None)
@given(eps=st.floats(1e-7, 0.9), norm=st.sampled_from(NORMS), far=st.floats(1e-3, 1e6), seed=st.integers(0, 99))
def test_no_image_is_outside_by_a_single_bit(eps: float, norm: Norm, far: float, seed: int) -> None:
    clean = images(3, seed=seed)
    found = project_exactly(clean + far * (images(3, seed=seed + 1) - 0.5), clean, eps, norm)
    assert bool((change_norms(found.double() - clean.double(), norm) <= eps).all())
    assert bool(((found >= 0) & (found <= 1)).all())


def test_a_step_has_length_one_however_small_the_gradient_is() -> None:
    slope = torch.tensor([3.0, -4.0, 0.0]).reshape(1, 1, 1, 3) * torch.tensor([1.0, 1e-20]).reshape(2, 1, 1, 1)
    assert torch.allclose(steepest_direction(slope, "l2"), torch.tensor([0.6, -0.8, 0.0]))
    assert torch.equal(steepest_direction(slope, "linf")[1, 0, 0], torch.tensor([1.0, -1.0, 0.0]))
    assert torch.equal(steepest_direction(torch.zeros(1, 1, 1, 3), "l2"), torch.zeros(1, 1, 1, 3))


def test_a_long_change_is_shortened_and_a_short_one_left() -> None:
    change = torch.tensor([0.3, -0.4]).reshape(1, 1, 1, 2)
    assert torch.allclose(clip_norm(change, 0.1, "linf"), torch.tensor([0.1, -0.1]))
    assert torch.allclose(clip_norm(change, 0.1, "l2"), torch.tensor([0.06, -0.08]))
    assert torch.equal(clip_norm(change, 0.5, "linf"), change) and torch.allclose(clip_norm(change, 0.6, "l2"), change)


@pytest.mark.parametrize("norm", NORMS)
def test_random_starts_fill_the_ball_or_lie_on_its_edge(norm: Norm) -> None:
    """For l∞ a pixel spreads evenly, with deviation ε / √3; on the edge every length is ε."""
    sources = [generator(7, number) for number in range(64)]
    within = random_in_ball((64, 1, 8, 8), 0.1, norm, sources)
    edge = random_on_sphere((64, 1, 8, 8), 0.1, norm, sources)
    assert float(change_norms(within, norm).max()) <= 0.1 + 1e-8
    assert torch.allclose(change_norms(edge, norm), torch.tensor(0.1, dtype=torch.float64), rtol=1e-6)
    if norm == "linf":
        assert abs(float(within.std()) - 0.1 / math.sqrt(3)) < 0.002
