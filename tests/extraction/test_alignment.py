"""Pictures move by the gradient of the surrogate's loss: how far, which way, and what stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from extraction_attacks import LinearSurrogate
from tiny_models import save_tiny_llava

from cxrlab.extraction.attack_rounds import align_images
from cxrlab.extraction.config import Alignment
from cxrlab.extraction.records import QueryImage
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings

# Of the loss of `Line`, w · x + 3; a pixel without weight has no gradient.
WEIGHTS = np.array([[1.0, -1.0], [0.5, 0.0]])
GREY = np.array([[100, 100], [20, 100]], np.uint8)


def moved(pixels: Any, reports: list[str], **settings: Any) -> Any:
    pictures = [QueryImage(f"p{k}", pixels, in_domain=False) for k, _ in enumerate(reports)]
    return zip(
        *align_images(LinearSurrogate(WEIGHTS), pictures, reports, Alignment(**settings), seed=1, round=2), strict=True
    )


def test_one_step_goes_the_whole_radius_towards_the_report() -> None:
    """0.2 of 255 is 51: down where the weight is above 0, up where it is below, as far as black and white."""
    (one,), (traces,) = moved(GREY, ["wanted"])
    assert one.pixels.dtype == np.uint8 and one.pixels.tolist() == [[49, 151], [0, 100]]
    assert (one.key, one.in_domain) == ("p0@2", False)
    assert traces["before"] == pytest.approx((100 - 100 + 0.5 * 20) / 255 + 3)
    assert traces["after"] == pytest.approx((49 - 151) / 255 + 3)
    assert traces["linf"] == pytest.approx(0.2)


def test_away_is_the_other_way() -> None:
    (one,), (traces,) = moved(GREY, ["wanted"], direction="away", eps="10/255")
    assert one.pixels.tolist() == [[110, 90], [30, 100]]
    assert traces["after"] - traces["before"] == pytest.approx(25 / 255)


@pytest.mark.parametrize("way", ["towards", "away"])
def test_colours_move_each_by_its_own_gradient_and_stay_colours(way: str) -> None:
    """Three channels of weights: the step of each is the sign of its own."""
    weights = np.stack([WEIGHTS, -WEIGHTS, 0 * WEIGHTS])
    (picture,) = (QueryImage("p", np.stack([GREY, GREY, GREY + 1], axis=-1)),)
    settings = Alignment(eps="10/255", direction=way)
    ((one, _),) = align_images(LinearSurrogate(weights), [picture], ["wanted"], settings, seed=1, round=2)
    by = 10 if way == "towards" else -10
    assert one.pixels[..., 0].tolist() == [[100 - by, 100 + by], [20 - by, 100]]
    assert one.pixels[..., 1].tolist() == [[100 + by, 100 - by], [20 + by, 100]]
    assert np.array_equal(one.pixels[..., 2], GREY + 1)


def test_several_steps_stay_within_the_radius_and_get_there() -> None:
    """Four steps of 2.5 / 4 radii: a straight slope is followed to the edge of the ball."""
    (one,), (traces,) = moved(GREY, ["wanted"], steps=4, eps="8/255")
    assert one.pixels.tolist() == [[92, 108], [12, 100]]
    assert traces["linf"] == pytest.approx(8 / 255)


def test_a_picture_of_which_nothing_is_wanted_stays() -> None:
    found, traces = moved(GREY, ["", "wanted", " \n"])
    assert [np.array_equal(one.pixels, GREY) for one in found] == [True, False, True]
    assert [one.key for one in found] == ["p0", "p1@2", "p2"]
    assert [bool(row) for row in traces] == [False, True, False]


def test_batches_change_nothing() -> None:
    rng = np.random.default_rng(4)
    pictures = [QueryImage(str(k), rng.integers(0, 256, (2, 2), dtype=np.uint8)) for k in range(5)]
    reports = ["a", "", "b", "c", "d"]
    ways = []
    for size in (1, 2, 32):
        aligned = align_images(LinearSurrogate(WEIGHTS), pictures, reports, Alignment(batch_size=size), seed=1, round=1)
        ways.append(tuple(zip(*aligned, strict=True)))
    for found, traces in ways[1:]:
        assert [one.pixels.tolist() for one in found] == [one.pixels.tolist() for one in ways[0][0]]
        assert [one.key for one in found] == [one.key for one in ways[0][0]]
        assert traces == ways[0][1]


@pytest.fixture(scope="module")
def surrogate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HfModel]:
    folder: Path = save_tiny_llava(tmp_path_factory.mktemp("llava") / "m", seed=2)
    yield HfModel.load(str(folder), loading=LoadSettings(device="cpu"))


@pytest.mark.parametrize(("direction", "sign"), [("towards", -1), ("away", 1)])
def test_a_true_surrogate_moves_by_what_the_victim_will_see(surrogate: HfModel, direction: Any, sign: int) -> None:
    """Measured anew on the 8-bit pictures: the loss of the wanted report has gone the right way."""
    rng = np.random.default_rng(5)
    pictures = [QueryImage(str(k), rng.integers(0, 256, (24, 24), dtype=np.uint8)) for k in range(3)]
    reports = ["Moderate cardiomegaly.", "Small left pleural effusion.", "Both lungs are clear."]
    settings = Alignment(eps="8/255", direction=direction)
    found, traces = zip(*align_images(surrogate, pictures, reports, settings, seed=1, round=1), strict=True)

    def losses(shown: list[QueryImage]) -> Any:
        with torch.no_grad():
            return surrogate.losses([one.pixels.astype(np.float32) / 255 for one in shown], reports).numpy()

    change = sign * (losses(found) - losses(pictures))
    assert (change > 1e-4).all()
    assert [row["before"] for row in traces] == pytest.approx(losses(pictures).tolist(), rel=1e-4)
    assert [row["after"] for row in traces] == pytest.approx(losses(found).tolist(), rel=1e-3)
    assert max(int(np.abs(a.pixels.astype(int) - b.pixels).max()) for a, b in zip(found, pictures, strict=True)) == 8
