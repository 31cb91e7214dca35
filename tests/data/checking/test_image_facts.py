"""Numbers of single images, small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cxrlab.core.image_codec import to_uint8
from cxrlab.core.vocabulary import View
from cxrlab.data.config import PhantomConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.data.statistics import image_facts, looks_inverted


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_phantom(PhantomConfig(n=20, size=128, seed=5, workers=1), tmp_path_factory.mktemp("facts") / "c")


def test_half_black_half_white() -> None:
    """Mean one half, spread one half, the darkest per cent black and the brightest white."""
    picture = np.zeros((4, 6), np.uint8)
    picture[:, 3:] = 255
    facts = image_facts(picture, View.PA)
    assert (facts.width, facts.height, facts.depth, facts.colour) == (6, 4, "8 bits", False)
    assert (facts.mean, facts.spread, facts.low, facts.high) == (0.5, 0.5, 0.0, 1.0)


@pytest.mark.parametrize(
    ("picture", "depth", "colour"),
    [
        (np.full((3, 3), 700, np.uint16), "16 bits", False),
        (np.ones((3, 3), bool), "1 bit", False),
        (np.full((3, 3), 0.5, np.float32), "DICOM", False),
        (np.full((3, 3, 3), 9, np.uint8), "8 bits", False),
        (np.array([[[255, 0, 0]]], np.uint8), "8 bits", True),
    ],
)
def test_depth_and_colour(picture: np.ndarray, depth: str, colour: bool) -> None:
    """Three equal channels are no colour."""
    facts = image_facts(picture, View.PA)
    assert (facts.depth, facts.colour) == (depth, colour)


def test_the_same_image_in_another_form_has_the_same_digest() -> None:
    """Grey, three equal channels; another shape of the same bytes is another image."""
    grey = np.arange(24, dtype=np.uint8).reshape(4, 6)
    same = np.repeat(grey[..., None], 3, axis=2)
    assert image_facts(grey, View.PA).digest == image_facts(same, View.PA).digest
    assert image_facts(grey, View.PA).digest != image_facts(grey.reshape(6, 4), View.PA).digest


def test_inverted_phantoms_are_suspected_and_others_are_not(phantoms: Corpus) -> None:
    """Every frontal phantom turned black for white is found, and none as it is."""
    images = [to_uint8(phantoms.image(study)) for study in phantoms if study.images[0].view in (View.PA, View.AP)]
    assert len(images) >= 10
    assert not any(map(looks_inverted, images))
    assert all(looks_inverted(255 - image) for image in images)


def test_only_frontal_images_are_queried(phantoms: Corpus) -> None:
    """A side view has no two lungs beside a midline."""
    image = 255 - to_uint8(phantoms.image(next(iter(phantoms))))
    assert image_facts(image, View.PA).inverted and not image_facts(image, View.LATERAL).inverted


def test_a_tiny_picture_is_never_suspected() -> None:
    """Below 32 pixels there is nothing to tell lungs by."""
    assert not looks_inverted(np.full((31, 400), 255, np.uint8))
