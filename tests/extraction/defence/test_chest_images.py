"""The gate on images and scenes that it was not set on."""

from __future__ import annotations

import numpy as np
import pytest

from cxrlab.core.errors import DataError
from cxrlab.extraction.adaptive_attackers import smallest_passing_share
from cxrlab.extraction.defence.defences import ChestImages
from cxrlab.extraction.query_pools import open_pool
from cxrlab.extraction.records import QueryImage


def images(count: int) -> list[QueryImage]:
    """A dark frame around a bright middle, each with its own noise and brightness."""
    rng = np.random.default_rng(5)
    found = []
    for number in range(count):
        image = np.full((48, 48), 20.0)
        image[8:, 8:40] = 120 + rng.normal(0, 6)
        image[8:, 20:28] = 200 + rng.normal(0, 6)
        found.append(QueryImage(f"f{number}", np.clip(image + rng.normal(0, 4, image.shape), 0, 255).astype(np.uint8)))
    return found


def test_images_pass_and_scenes_do_not_until_they_are_images() -> None:
    benign = images(180)
    gate = ChestImages(benign[:120], bound=0.05, seed=2)
    # 60 held-out images at a bound of 0.05: 3 refusals expected, 10 or more have probability below 0.001.
    assert sum(not gate(picture.pixels) for picture in benign[120:]) < 10
    scenes = [picture.pixels for picture in open_pool("scenes", size=48, seed=1).draw(12)]
    assert sum(gate(picture) for picture in scenes) == 0
    own = next(picture.pixels for picture in benign[120:] if gate(picture.pixels))
    share, passed = smallest_passing_share(
        scenes, lambda asked: list(map(gate, asked)), shares=(0.0, 0.3, 1.0), chest=own
    )
    assert passed == {0.0: 0.0, 0.3: 0.0, 1.0: 1.0} and share == 1.0


def test_too_few_images_for_a_bound_are_refused_with_the_number() -> None:
    with pytest.raises(DataError, match="too few for the detector 'chest-gate': its bound needs 2245"):
        ChestImages(images(30), bound=1 / 500, seed=2)
