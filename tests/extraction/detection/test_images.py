"""The detectors that judge single images, on phantoms, scenes and planted noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cxrlab.core.errors import DataError
from cxrlab.extraction.detection.base import Traffic
from cxrlab.extraction.detection.config import DetectorSettings
from cxrlab.extraction.detection.detectors import ChestGate, Perturbation
from cxrlab.extraction.detection.false_alarm_rates import share
from cxrlab.extraction.detection.features import GRAIN, NAMES, PixelEncoder, columns, image_statistics, measure

LOOSE = DetectorSettings(image_bound=0.06, account_bound=0.05, account_queries=20, accounts=19, window=8, least=8)


def traffic(pictures: Sequence[np.ndarray]) -> Traffic:
    """Plain statistics alone, without an encoder."""
    rows = measure(pictures, None)
    names = tuple(str(place) for place in range(len(rows)))
    features, looks = np.stack([row.features for row in rows]), np.stack([row.image_statistics for row in rows])
    return Traffic(names, ("one",) * len(rows), features, looks)


def noisy(pictures: Sequence[np.ndarray], levels: int) -> list[np.ndarray]:
    """Every pixel moved up or down by so many grey levels."""
    rng = np.random.default_rng(1)
    moved = [one + levels * rng.choice((-1, 1), one.shape) for one in pictures]
    return [np.clip(one, 0, 255).astype(np.uint8) for one in moved]


@pytest.fixture(scope="module")
def benign(phantoms: tuple[np.ndarray, ...]) -> Traffic:
    return traffic(phantoms)


@pytest.fixture(scope="module")
def gate(benign: Traffic) -> ChestGate:
    found = ChestGate(LOOSE)
    found.calibrate(benign.take(range(75)), seed=7)
    return found


@pytest.fixture(scope="module")
def grain(benign: Traffic) -> Perturbation:
    found = Perturbation(LOOSE)
    found.calibrate(benign.take(range(75)), seed=7)
    return found


def test_scenes_are_no_chest_images(gate: ChestGate, scenes: tuple[np.ndarray, ...]) -> None:
    found = gate.watch(traffic(scenes))
    assert found.flagged is not None and found.flagged.mean() > 0.9
    # 50 images set the threshold and one of 51 places is beyond: of 20 images P(3 or more) = 0.021, P(2 or more) 0.079.
    assert gate.count == 3 and found.alarm == 3


def test_held_out_images_pass_within_the_bound(gate: ChestGate, grain: Perturbation, benign: Traffic) -> None:
    for detector in (gate, grain):
        flagged = detector.watch(benign.take(range(75, 120))).flagged
        assert flagged is not None
        low = share(int(flagged.sum()), len(flagged)).low
        assert low is not None and low <= LOOSE.image_bound


def test_planted_noise_is_seen_and_a_hidden_one_is_not(
    grain: Perturbation, phantoms: tuple[np.ndarray, ...], scenes: tuple[np.ndarray, ...]
) -> None:
    """51 grey levels are ε 0.2 on images in [0, 1]; one level is less than the noise that images have of their own."""
    for pictures in (phantoms[75:105], scenes):
        loud = grain.watch(traffic(noisy(pictures, 51))).flagged
        assert loud is not None and loud.all()
    soft = grain.watch(traffic(noisy(phantoms[75:105], 1))).flagged
    assert soft is not None and soft.mean() < 0.2


def test_smooth_images_are_not_called_perturbed(grain: Perturbation) -> None:
    flagged = grain.watch(traffic([np.full((64, 64), level, np.uint8) for level in (0, 128, 255)])).flagged
    assert flagged is not None and not flagged.any()


def test_too_few_images_are_refused_with_the_number(benign: Traffic) -> None:
    """0.94 ** 49 = 0.048: a bound of 0.06 takes 49 images, two thirds of 73; 0.928 ** 40 = 0.05: 40 bound 0.072."""
    with pytest.raises(DataError, match=r"60 benign images .* needs 73; give that many, or image_bound=0.0722"):
        ChestGate(LOOSE).calibrate(benign.take(range(60)), seed=7)
    ChestGate(LOOSE).calibrate(benign.take(range(73)), seed=7)


def test_statistics_of_pictures_that_can_be_worked_out() -> None:
    """A picture dark on the left half and bright on the right is the opposite of its mirror picture."""
    halves = np.zeros((128, 128), np.uint8)
    halves[:, 64:] = 255
    found = dict(zip(NAMES, image_statistics(halves), strict=True))
    assert found["mirror"] == pytest.approx(-1)
    assert (found["mean"], found["black"] ** 2, found["white"] ** 2) == pytest.approx((0.5, 0.5, 0.5))
    assert (found["cell00"], found["cell77"]) == (pytest.approx(-1), pytest.approx(1))
    even = image_statistics(np.full((50, 40), 100, np.uint8))
    assert np.isfinite(even).all()
    # One bright pixel on an even ground differs from the median by 1: 1 / 128² on average.
    dot = np.zeros((128, 128), np.uint8)
    dot[60, 60] = 255
    residual = image_statistics(dot)[columns(GRAIN)][0]
    assert np.exp(residual) - 1e-4 == pytest.approx(1 / 128**2)


def test_small_pictures_are_vectors_of_length_one(phantoms: tuple[np.ndarray, ...]) -> None:
    images = [image.astype(np.float32) / 255 for image in phantoms[:3]]
    vectors = PixelEncoder().embed_images([*images, np.zeros((9, 9), np.float32)])
    assert vectors.shape == (4, 144)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1, 0], abs=1e-5)
