from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.config import ScenesConfig
from cxrlab.data.synthetic_scenes import make_scenes
from cxrlab.data.views import frontal_index, load_selected_image, selected_image


def study(*views: View | None) -> Study:
    return Study("s1", "p1", tuple(ImageFile(f"{k}.png", view) for k, view in enumerate(views)))


@pytest.mark.parametrize(
    ("views", "index"),
    [
        ((View.PA,), 0),
        ((View.LATERAL, View.AP), 1),
        ((View.AP, View.PA), 1),  # PA is preferred to AP wherever it stands
        ((View.FRONTAL, View.AP), 1),  # a known direction is preferred to an unknown one
        ((View.OTHER, View.FRONTAL), 1),
        ((View.LATERAL, View.PA, View.PA), 1),  # the first of several
    ],
)
def test_the_frontal_image_is_chosen(views: tuple[View, ...], index: int) -> None:
    assert frontal_index(study(*views)) == index


def test_a_report_is_shown_in_grey_and_a_caption_in_colour(tmp_path: Path) -> None:
    """The same choice in training and in evaluation: a model sees later what it has learnt from."""
    assert selected_image(study(View.LATERAL, View.AP)) == (1, False)
    assert selected_image(replace(study(View.OTHER), caption="A red disc.")) == (0, True)
    with pytest.raises(DataError, match="caption and no image"):
        selected_image(replace(study(), caption="A red disc."))
    corpus = make_scenes(ScenesConfig(n=1, size=32, seed=1, workers=1), tmp_path / "scenes")
    one = next(iter(corpus))
    assert load_selected_image(corpus, one).shape == (32, 32, 3) and load_selected_image(corpus, one, 16).shape == (
        16,
        16,
        3,
    )


@pytest.mark.parametrize(
    ("views", "said"),
    [
        ((), "no image"),
        ((View.LATERAL, View.OTHER), "lateral, other"),
        ((None, View.LATERAL), "unknown, lateral.*State the view"),
    ],
)
def test_a_lateral_image_never_stands_in_for_a_frontal_one(views: tuple[View | None, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        frontal_index(study(*views))
