"""Slips of the pen: corrected where nothing else can be meant."""

from __future__ import annotations

import pytest

from cxrlab.data.structuring import sentences
from cxrlab.data.structuring.sentences import corrected


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("Small plural effussion.", "Small pleural effusion."),
        ("The plural of mass.", "The plural of mass."),
        ("PNUEMOTHORAX, Cardiomegally", "PNEUMOTHORAX, Cardiomegaly"),
        ("The the heart is is normal .", "The heart is normal."),
        ("Lungs clear.Heart normal..", "Lungs clear. Heart normal."),
        ("A 3.5 cm mass ... seen", "A 3.5 cm mass ... seen"),
        ("That that is so", "That that is so"),
    ],
)
def test_repairing(wrong: str, right: str) -> None:
    assert corrected(wrong) == right


def test_no_right_word_is_itself_taken_for_a_slip() -> None:
    """Mending twice changes nothing more."""
    for right in sentences._WORDS.misspellings:
        assert corrected(right) == right
