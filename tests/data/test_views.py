from __future__ import annotations

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.records import ImageFile, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.views import frontal


def study(*views: View) -> Study:
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
def test_the_frontal_film_is_chosen(views: tuple[View, ...], index: int) -> None:
    assert frontal(study(*views)) == index


@pytest.mark.parametrize(("views", "said"), [((), "no image"), ((View.LATERAL, View.OTHER), "lateral, other")])
def test_a_lateral_film_never_stands_in_for_a_frontal_one(views: tuple[View, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        frontal(study(*views))
