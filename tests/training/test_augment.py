"""Images varied in training: each by its own seed, never mirrored, always in [0, 1]."""

from __future__ import annotations

import pytest
import torch

from cxrlab.core.errors import ConfigError
from cxrlab.training.augment import augment, image_seeds, uniform
from cxrlab.training.config import NONE, Augmentation

FULL = Augmentation()


def images(n: int = 6, side: int = 32) -> torch.Tensor:
    return torch.rand(n, side, side, generator=torch.Generator().manual_seed(0))


def only(**values: float) -> Augmentation:
    return Augmentation(**{**vars(NONE), **values})


def test_a_image_comes_out_the_same_in_any_company() -> None:
    """What makes a resumed run, another batch size and two processes give the same images."""
    batch, seeds = images(), image_seeds(7, torch.arange(6), step=3)
    together = augment(batch, seeds, FULL)
    alone = torch.cat([augment(batch[k : k + 1], seeds[k : k + 1], FULL) for k in range(6)])
    assert torch.equal(together, alone)


def test_images_and_steps_are_varied_differently() -> None:
    batch = images(1).expand(3, -1, -1)
    rows = torch.arange(3)
    first, again, later = (augment(batch, image_seeds(7, rows, step), FULL) for step in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first[0], first[1]) and not torch.equal(first, later)
    assert not torch.equal(first, augment(batch, image_seeds(8, rows, 0), FULL))


def test_values_stay_in_range_and_shape() -> None:
    for shape in ((4, 20, 32), (4, 3, 20, 32)):
        batch = torch.rand(shape, generator=torch.Generator().manual_seed(1)).round()  # black and white alone
        varied = augment(batch, image_seeds(1, torch.arange(4), 0), Augmentation(noise=0.5))
        assert varied.shape == batch.shape and varied.min() >= 0 and varied.max() <= 1


def test_nothing_asked_nothing_changed() -> None:
    batch = images()
    assert augment(batch, torch.arange(6), NONE) is batch


def test_left_stays_left() -> None:
    """A bright spot in the left quarter stays in the left half under the largest allowed default changes."""
    batch = torch.zeros(64, 32, 32)
    batch[:, 14:18, 5:9] = 1.0
    varied = augment(batch, image_seeds(2, torch.arange(64), 0), FULL)
    assert (varied[:, :, :16].sum((1, 2)) > varied[:, :, 16:].sum((1, 2))).all()


def test_a_shift_moves_by_at_most_its_share() -> None:
    """Centre of mass of a spot: within 4 % of 100 pixels, and not always at the same place."""
    batch = torch.zeros(200, 100, 100)
    batch[:, 49:51, 49:51] = 1.0
    moved = augment(batch, image_seeds(3, torch.arange(200), 0), only(shift=0.04))
    columns = (moved.sum(1) * torch.arange(100.0)).sum(1) / moved.sum((1, 2)) - 49.5
    assert columns.abs().max() <= 4.01 and columns.min() < -3 and columns.max() > 3


def test_a_turn_keeps_distances_on_a_image_that_is_not_square() -> None:
    """Two spots 20 pixels apart stay 20 apart: without the aspect ratio a turn would shear."""
    batch = torch.zeros(30, 40, 80)
    batch[:, 20, 30] = batch[:, 20, 50] = 1.0
    turned = augment(batch, image_seeds(4, torch.arange(30), 0), only(rotation=30.0))
    for image in turned:
        left, right = image[:, :40], image[:, 40:]
        ends = []
        for part, offset in ((left, 0), (right, 40)):
            rows, columns = torch.meshgrid(torch.arange(40.0), torch.arange(40.0) + offset, indexing="ij")
            ends.append(torch.stack([(part * rows).sum(), (part * columns).sum()]) / part.sum())
        assert (ends[0] - ends[1]).norm() == pytest.approx(20.0, abs=0.3)


def test_brightness_moves_the_mean_by_at_most_its_amount() -> None:
    batch = torch.full((500, 4, 4), 0.5)
    shift = augment(batch, image_seeds(5, torch.arange(500), 0), only(brightness=0.1)).mean((1, 2)) - 0.5
    assert shift.abs().max() <= 0.1 and shift.min() < -0.09 and shift.max() > 0.09 and shift.mean().abs() < 0.01


def test_gamma_stays_within_its_bounds() -> None:
    """0.5 to the power of 1/1.2 … 1.2."""
    grey = augment(torch.full((500, 2, 2), 0.5), image_seeds(6, torch.arange(500), 0), only(gamma=0.2))
    assert grey.min() >= 0.5**1.2 - 1e-6 and grey.max() <= 0.5 ** (1 / 1.2) + 1e-6
    assert grey.min() < 0.44 and grey.max() > 0.55


def test_noise_has_the_deviation_asked_for_and_differs_between_pixels() -> None:
    """Strength is uniform in 0 … 0.1, whose root mean square is 0.1 / √3; neighbours are independent."""
    grey = torch.full((400, 32, 32), 0.5)
    noise = augment(grey, image_seeds(7, torch.arange(400), 0), only(noise=0.1)) - 0.5
    assert noise.square().mean().sqrt().item() == pytest.approx(0.1 / 3**0.5, rel=0.1)
    neighbours = (noise[:, :, 1:] * noise[:, :, :-1]).mean() / noise.square().mean()
    assert abs(neighbours.item()) < 0.02 and abs(noise.mean().item()) < 1e-3


def test_draws_are_uniform_and_independent_of_the_neighbouring_seed() -> None:
    draws = uniform(torch.arange(4000), torch.arange(4))
    assert draws.min() >= 0 and draws.max() < 1 and abs(draws.mean().item() - 0.5) < 0.01
    assert abs(torch.corrcoef(draws.T)[0, 1].item()) < 0.06
    assert abs(torch.corrcoef(torch.stack([draws[1:, 0], draws[:-1, 0]]))[0, 1].item()) < 0.06


@pytest.mark.parametrize(("name", "value"), [("shift", 0.6), ("rotation", -1.0), ("noise", 1.5), ("contrast", 1.0)])
def test_unusable_amounts_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        Augmentation(**{name: value})
