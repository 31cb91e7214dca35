"""All twelve corruptions: what `corrupt` promises of each, and conditions as users write them."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from PIL import Image
from tables import every_row

from cxrlab.attacks.corruptions import CORRUPTIONS, SEVERITIES, ImageArray, corrupt
from cxrlab.core.errors import ConfigError, UnknownName
from cxrlab.core.vocabulary import View
from cxrlab.data.phantom.render import PhantomPatient, render

NAMES = CORRUPTIONS.names()
BY_CHANCE = ("exposure", "low-dose", "blur", "rotation", "collimation", "grid-lines", "marker", "gamma")


@cache
def phantom(patient: str, size: int = 128) -> ImageArray:
    """One healthy chest; nobody may write into it."""
    image = render(PhantomPatient(3, patient, "F", 60), 1, View.PA, [], size, masks=False).image
    image.setflags(write=False)
    return image


def spoilt(name: str, image: ImageArray, severity: int, key: str = "s1") -> ImageArray:
    return corrupt(name, image, severity, key=key, seed=7)


def ramp(height: int, width: int) -> ImageArray:
    """Every grey from black to white, with a chequer so that no blemish goes unseen."""
    rising = np.linspace(0.0, 1.0, height * width, dtype=np.float32).reshape(height, width)
    return np.clip(rising + 0.1 * (np.indices((height, width)).sum(axis=0) % 2), 0.0, 1.0).astype(np.float32)


def test_the_twelve_are_there() -> None:
    assert len(NAMES) == 12 and SEVERITIES == (1, 2, 3, 4, 5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(97, 131), (97, 131, 3), (16, 16), (16, 40, 3)])
def test_shape_type_and_range_are_kept_and_the_image_is_left_alone(name: str, shape: tuple[int, ...]) -> None:
    image = ramp(*shape[:2]) if len(shape) == 2 else np.stack([ramp(*shape[:2])] * 3, axis=-1)
    before = image.copy()
    for severity in SEVERITIES:
        made = spoilt(name, image, severity)
        assert made.shape == shape and made.dtype == np.float32
        assert made.min() >= 0.0 and made.max() <= 1.0
        assert not np.shares_memory(made, image)
    assert np.array_equal(image, before)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("patient", ["a", "b"])
def test_a_higher_severity_changes_more(name: str, patient: str) -> None:
    image = phantom(patient)
    changes = [float(np.abs(spoilt(name, image, severity, patient) - image).mean()) for severity in SEVERITIES]
    assert changes[0] > 0 and all(low < high for low, high in zip(changes, changes[1:], strict=False)), changes


@every_row("name", NAMES)
def test_three_equal_channels_suffer_as_one(name: str) -> None:
    """A grey image stays grey when it is stored in colour."""
    image = ramp(48, 40)
    colour = spoilt(name, np.stack([image] * 3, axis=-1), 4)
    assert np.abs(colour - spoilt(name, image, 4)[..., None]).max() < 1e-6


@every_row("name", NAMES)
def test_the_same_key_has_the_same_luck_and_only_chance_needs_one(name: str) -> None:
    image = phantom("a", 64)
    first = spoilt(name, image, 3)
    assert np.array_equal(first, spoilt(name, image, 3))
    others = [np.array_equal(first, spoilt(name, image, 3, key)) for key in "abcdefgh"]
    assert all(others) if name not in BY_CHANCE else not all(others)


@pytest.mark.parametrize("name", ["exposure", "gamma", "blur", "collimation", "low-dose", "grid-lines"])
def test_severity_is_a_dose_of_the_same_change(name: str) -> None:
    """What 4 and 5 change has the same pattern, pixel by pixel."""
    image = np.full((64, 64), 0.5, dtype=np.float32)
    image[20:40, 10:50] = 0.6
    four, five = (spoilt(name, image, severity) - image for severity in (4, 5))
    assert np.corrcoef(np.append(four, 0.0), np.append(five, 0.0))[0, 1] > 0.7


@every_row("name", NAMES)
def test_small_and_large_images_suffer_alike(name: str) -> None:
    """Seen at 128 pixels, the change of an image of 512 is within a third of that of one of 256."""

    def seen(size: int) -> float:
        image = phantom("a", size)
        return _shrunk(spoilt(name, image, 5) - image)

    assert seen(512) == pytest.approx(seen(256), rel=1 / 3)


def _shrunk(change: ImageArray) -> float:
    return float(np.abs(np.asarray(Image.fromarray(change).resize((128, 128), Image.Resampling.BOX))).mean())


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, True])
def test_other_severities_are_refused(severity: int) -> None:
    with pytest.raises(ConfigError, match="whole number from 1 to 5"):
        spoilt("blur", ramp(16, 16), severity)


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((8, 8), dtype=np.uint8),
        np.zeros((3, 8, 8), dtype=np.float32),
        np.full((8, 8), 255.0, dtype=np.float32),
        np.full((8, 8), np.nan, dtype=np.float32),
        np.zeros((0, 8), dtype=np.float32),
    ],
)
def test_what_is_no_image_is_refused(image: ImageArray) -> None:
    with pytest.raises(ValueError, match="an image"):
        spoilt("gamma", image, 1)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'blur'"):
        spoilt("blurr", ramp(16, 16), 1)
