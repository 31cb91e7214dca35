from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from toy_objectives import Linear, images, names

from cxrlab.attacks.config import AttackSettings, Budget, Norm
from cxrlab.attacks.gradient_free import Square, _bump, _hill, _move_window, square_area
from cxrlab.core.randomness import generator


class Watched(Linear):
    """Remembers every image that it is shown."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__(weights)
        self.shown: list[Tensor] = []

    def losses(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        self.shown.append(images.clone())
        return super().losses(images, rows)


def test_squares_shrink_as_published() -> None:
    """0.8 of the image, halved after 10, 50, 200 … 8000 of 10,000 queries."""
    spent = (0, 10, 11, 50, 51, 201, 501, 1001, 2001, 4001, 6001, 8001, 9999)
    halvings = (0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9)
    for number, halved in zip(spent, halvings, strict=True):
        assert square_area(number / 10_000) == 0.8 / 2**halved


def test_the_search_begins_with_stripes_at_the_ends_of_the_ball() -> None:
    """Each column of each channel goes up or down as a whole, and columns differ."""
    all_images = 0.25 + 0.5 * images(2, channels=3)
    found = Square(AttackSettings(queries=1))(Linear(torch.ones(3, 8, 8)), all_images, Budget(0.125), keys=names(2))
    change = found.images - all_images
    assert torch.allclose(change.abs(), torch.full_like(change, 0.125), atol=1e-6)
    assert torch.equal(change.sign(), change.sign()[:, :, :1].expand(-1, -1, 8, -1))
    assert 0 < int((change[0, 0, 0] > 0).sum()) < 8 or 0 < int((change[1, 0, 0] > 0).sum()) < 8


def test_a_proposal_differs_from_the_best_image_in_one_square() -> None:
    """Of side round(√(share · 64)), at either end of the ball; an image grey enough is not cut."""
    images, aim = torch.full((1, 1, 8, 8), 0.5), Watched(torch.zeros(1, 8, 8))
    Square(AttackSettings(queries=50))(aim, images, Budget(0.125), keys=["a"])
    stripes = aim.shown[1]  # after the clean image; nothing is better, so that it stays the best
    for query, tried in enumerate(aim.shown[2:-2], start=1):
        side = max(round((square_area(query / 50) * 64) ** 0.5), 1)
        rows, columns = torch.nonzero((tried - stripes)[0, 0].abs() > 0, as_tuple=True)
        if len(rows):
            assert int(rows.max() - rows.min()) < side and int(columns.max() - columns.min()) < side
        assert torch.allclose((tried - images).abs(), torch.full_like(images, 0.125))


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_on_a_linear_model_the_search_comes_near_to_the_best_there_is(norm: Norm) -> None:
    """The best rise is ε · Σ|w| or ε · |w|; a smooth w is found to a good part, noise has none of it."""
    images, row = torch.full((4, 1, 8, 8), 0.5), torch.linspace(-1, 1, 8)
    weights = (row[:, None] + row[None, :])[None]
    eps = 0.1 if norm == "linf" else 0.5
    top = eps * float(weights.abs().sum() if norm == "linf" else weights.norm())
    found = Square(AttackSettings(queries=300))(Linear(weights), images, Budget(eps, norm), keys=names(4))
    rise = (found.final_loss - found.initial_loss) / top
    assert bool((rise > (0.8 if norm == "linf" else 0.5)).all()) and bool((rise <= 1 + 1e-5).all())


def test_a_bump_is_a_hill_beside_a_valley() -> None:
    """Rings of a hill of 3 by 3: the middle has 1 + 1/4, the ring about it 1/4."""
    hill = _hill(3, 3)
    assert hill[1, 1] / hill[0, 0] == pytest.approx(5) and np.linalg.norm(hill) == pytest.approx(1)
    bump = _bump(generator(0), 7)
    bump = bump if (bump[:3] > 0).all() else bump.T
    assert (bump[:3] > 0).all() and (bump[3:] < 0).all() and np.linalg.norm(bump) == pytest.approx(1)


def test_length_moves_from_one_window_to_another_and_none_is_lost() -> None:
    """Before and after the change has length ε; an unused rest of it is taken up."""
    drawn = generator(1).standard_normal((3, 9, 9))
    whole = drawn / np.linalg.norm(drawn)
    for given in (whole, 0.5 * whole):
        moved = _move_window(generator(2), given, 3, 1.0)
        assert np.linalg.norm(moved) == pytest.approx(1)
        assert 9 < int((moved != given).any(axis=0).sum()) <= 18
