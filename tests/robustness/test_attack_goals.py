from __future__ import annotations

import pytest

from cxrlab.core.errors import ConfigError, VocabularyError
from cxrlab.robustness.config import AIMS, TARGETED_AIMS, AttackGoals


def test_targeted_aims_are_aims() -> None:
    assert set(TARGETED_AIMS) < set(AIMS) and len(set(AIMS)) == len(AIMS)


def test_what_the_vocabulary_does_not_hold_is_refused() -> None:
    assert AttackGoals(remove="edema").remove == "edema"
    for wrong in ({"remove": "edma"}, {"invent": "edma"}):
        with pytest.raises(VocabularyError, match="edma"):
            AttackGoals(**wrong)
    with pytest.raises(ConfigError, match="goals.report is empty"):
        AttackGoals(report="  ")
