from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.extraction.adaptive_attackers import blend_chest, rewrite, smallest_passing_share
from cxrlab.extraction.defence.finding_preservation import difference


def test_a_blended_picture_is_a_blend() -> None:
    """Halfway between 200 and a white chest of 100 is 150."""
    picture, chest = np.full((6, 5), 200, np.uint8), np.full((6, 5), 100, np.uint8)
    assert (blend_chest(picture, 0.5, chest) == 150).all()
    assert (blend_chest(picture, 0.0) == picture).all()
    assert blend_chest(picture, 1.0).shape == picture.shape and blend_chest(picture, 1.0).dtype == np.uint8
    with pytest.raises(ConfigError):
        blend_chest(picture, 1.2)


def test_the_drawn_chest_has_dark_corners_dark_lungs_and_a_bright_middle() -> None:
    image = blend_chest(np.zeros((100, 100), np.uint8), 1.0).astype(int)
    lungs, middle, corner = (image[45, 30] + image[45, 70]) / 2, image[60, 53], image[2, 2]
    assert corner < 30 < lungs < middle - 50
    assert image[97, 33] > lungs + 50


def test_the_smallest_share_that_passes() -> None:
    """A gate that wants a mean below 100, pictures of 200 and a black chest: (1 - share) * 200 < 100 above 0.5."""
    pictures, black = [np.full((4, 4), 200, np.uint8)] * 3, np.zeros((4, 4), np.uint8)

    def passes(asked: Sequence[Any]) -> list[bool]:
        return [bool(one.mean() < 100) for one in asked]

    share, passed = smallest_passing_share(pictures, passes, shares=(0.4, 0.5, 0.6, 0.7), chest=black)
    assert share == 0.6 and passed == {0.4: 0.0, 0.5: 0.0, 0.6: 1.0}
    assert smallest_passing_share(pictures, lambda asked: [False] * len(asked), shares=(0.0, 0.9))[0] is None


def test_rewriting_keeps_every_finding_and_few_words(reports: list[str]) -> None:
    for report in reports[:60]:
        text = rewrite(report, 5)
        assert difference(report, text) is None
        assert rewrite(report, 5) == text
    assert sum(rewrite(report, 5) != rewrite(report, 6) for report in reports[:20]) > 15


def test_what_the_lexicon_cannot_say_is_said_plainly_or_kept() -> None:
    """An effusion without a degree has no words in it; kyphosis is not drawn at all."""
    said = "Left pleural effusion is present. Mild kyphosis is present."
    assert rewrite("Left pleural effusion. Mild kyphosis.", 1) == said
