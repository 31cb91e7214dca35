from __future__ import annotations

import pytest

from cxrlab.core.errors import ConfigError, VocabularyError
from cxrlab.robustness.settings import AIMS, BY_WISH, Wishes


def test_every_wish_is_an_aim() -> None:
    assert set(BY_WISH) < set(AIMS) and len(set(AIMS)) == len(AIMS)


def test_what_the_vocabulary_does_not_hold_is_refused() -> None:
    assert Wishes(remove="edema").remove == "edema"
    for wrong in ({"remove": "edma"}, {"invent": "edma"}):
        with pytest.raises(VocabularyError, match="edma"):
            Wishes(**wrong)
    with pytest.raises(ConfigError, match="wishes.report is empty"):
        Wishes(report="  ")
