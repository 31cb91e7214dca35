from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cxrlab.core.errors import DataError
from cxrlab.models.hf.inputs import as_images

CPU = torch.device("cpu")


@pytest.mark.parametrize("held", [lambda images: images, list], ids=["in one piece", "one by one"])
@pytest.mark.parametrize("shape", [(3, 8, 6), (3, 1, 8, 6), (3, 3, 8, 6)])
@pytest.mark.parametrize("wrong", [1.01, -0.01, float("nan")])
def test_the_image_that_leaves_the_range_is_named(held: Callable[[Tensor], Any], shape: Any, wrong: float) -> None:
    """The second of three, by a single pixel; colours are no images."""
    images = torch.full(shape, 0.5)
    assert len(as_images(held(images), CPU)) == 3
    images[1, ..., 4, 2] = wrong
    with pytest.raises(DataError, match=r"image 1 holds values"):
        as_images(held(images), CPU)


def test_images_in_one_piece_keep_their_gradient_and_need_not_be_float32() -> None:
    images = torch.full((2, 4, 4), 0.5, dtype=torch.float64, requires_grad=True)
    found = as_images(images, CPU)
    assert [(image.dtype, tuple(image.shape)) for image in found] == [(torch.float32, (1, 4, 4))] * 2
    (slope,) = torch.autograd.grad(
        sum(image.sum() * weight for image, weight in zip(found, (1, 2), strict=True)), images
    )
    assert slope[0].unique().tolist() == [1] and slope[1].unique().tolist() == [2]


def test_no_image_is_an_empty_list() -> None:
    assert as_images(torch.zeros(0, 8, 8), CPU) == [] == as_images(np.zeros((0, 8, 8), np.float32), CPU)
