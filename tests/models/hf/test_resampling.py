"""Resizing in torch against Pillow itself, and what Pillow cannot give: a gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf.pixels import pillow_takes_rows_first, resize, rounding, weights

FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Black and white at random: every frequency at full contrast, so that every cut and every lobe shows."""
    return (np.random.default_rng(seed).integers(0, 2, (height, width)) * 255).astype(np.uint8)


@pytest.mark.parametrize("resample", FILTERS.values(), ids=FILTERS)
def test_it_is_pillows_filter_up_to_rounding(resample: int) -> None:
    """Growing, shrinking and both at once; sizes are drawn so that either order of rows and columns occurs."""
    sizes = np.exp(np.random.default_rng(resample).uniform(np.log(3), np.log(200), (40, 4))).astype(int).tolist()
    for height, width, new_height, new_width in sizes:
        picture = noise(height, width)
        theirs = np.asarray(Image.fromarray(picture).resize((new_width, new_height), resample=resample))
        ours = resize(
            torch.from_numpy(picture) / 255.0, (new_height, new_width), resample, rows_first=pillow_takes_rows_first()
        )
        assert np.abs(ours.numpy() * 255.0 - theirs).max() <= rounding(resample, 1), (height, width, new_height)


def test_the_allowance_for_rounding_is_that_of_the_filters() -> None:
    """Half a level, enlarged by the largest sum of weights without signs, and half a level: 1, 1.15 and 1.3."""
    for resample, enlarged in ((2, 1.0), (3, 1.3), (1, 1.6)):
        found = max(
            np.abs(weights(before, after, resample)).sum(axis=1).max()
            for before in range(1, 40, 3)
            for after in range(1, 80, 3)
        )
        assert enlarged - 0.1 < found <= enlarged + 1e-9
        assert rounding(resample, 1) == pytest.approx(1.05 * (enlarged + 1) / 2)
    assert rounding(2, 3) == pytest.approx(3 * rounding(2, 1))


def test_rows_come_first_where_asked_and_where_many_are_lost() -> None:
    """With bicubic cuts in between the order shows; where no row is lost it stays columns first."""
    picture = torch.from_numpy(noise(40, 10)) / 255.0
    lost = [resize(picture, (20, 30), 3, rows_first=order) for order in (False, True)]
    assert (lost[0] - lost[1]).abs().max() > 0.01
    kept = [resize(picture, (60, 30), 3, rows_first=order) for order in (False, True)]
    assert torch.equal(kept[0], kept[1])
    assert torch.allclose(lost[1], resize(picture.T, (30, 20), 3).T, atol=1e-6)


def test_an_even_picture_stays_even_and_the_same_size_is_no_work() -> None:
    """Weights of a pixel sum to 1, at the border too."""
    even = torch.full((7, 5), 0.3)
    for resample in FILTERS.values():
        assert torch.allclose(resize(even, (11, 3), resample), torch.tensor(0.3), atol=1e-6)
    assert resize(even, (7, 5), 3) is even


def test_the_slope_is_the_weights() -> None:
    """A resize is linear where nothing is cut: the gradient of a sum is what each pixel gives in all."""
    picture = torch.rand(6, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.2 + 0.4
    picture.requires_grad_()
    resize(picture, (4, 5), 3).sum().backward()
    given = weights(6, 4, 3).sum(axis=0)[:, None] * weights(9, 5, 3).sum(axis=0)[None, :]
    assert picture.grad is not None
    np.testing.assert_allclose(picture.grad.numpy(), given, atol=1e-12)


def test_a_large_image_in_bands_is_the_whole_product() -> None:
    """Above 1024 pixels a side is resized in bands; value and gradient are those of the one product of weights."""
    picture = torch.rand(1300, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.2 + 0.4
    picture.requires_grad_()
    for after in (5, 90, 1500):
        whole = torch.from_numpy(weights(1300, after, 3))
        for ours in (resize(picture, (after, 12), 3), resize(picture.T, (12, after), 3).T):
            torch.testing.assert_close(ours, whole @ picture, rtol=0, atol=1e-12)
            (slope,) = torch.autograd.grad(ours.sum(), picture)
            torch.testing.assert_close(slope, whole.sum(dim=0)[:, None].expand(-1, 12), rtol=0, atol=1e-12)


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_black_and_white_have_a_slope(level: float) -> None:
    """An attack starts from images with black corners; a cut exactly at 0 would take their gradient by chance."""
    picture = torch.full((16, 16), level, requires_grad=True)
    resize(picture, (37, 5), 3).sum().backward()
    assert picture.grad is not None and bool((picture.grad != 0).any(dim=0).all())


def test_weights_made_in_inference_mode_serve_a_backward_pass() -> None:
    """A model that has generated first must still give gradients for images of the same size."""
    picture = torch.rand(17, 23)
    with torch.inference_mode():
        resize(picture, (5, 7), 3)
    wanted = picture.clone().requires_grad_()
    resize(wanted, (5, 7), 3).sum().backward()
    assert wanted.grad is not None


def test_autocast_does_not_coarsen_pixels() -> None:
    picture = torch.rand(20, 20, generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = resize(picture, (7, 7), 2)
    assert inside.dtype == torch.float32 and torch.equal(inside, resize(picture, (7, 7), 2))


def test_an_unknown_filter_is_refused() -> None:
    with pytest.raises(ConfigError, match="filter 9"):
        weights(4, 2, 9)
