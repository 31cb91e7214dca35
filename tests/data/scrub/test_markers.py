"""Side markers are distinguished from other letters by their shape."""

from __future__ import annotations

import numpy as np
import pytest
from burned_text import letters
from tables import every_row

from cxrlab.data.burned_in_text import is_marker


def drawn(word: str, size: int = 30) -> list[np.ndarray]:
    return [letters(letter, size) > 0.5 for letter in word]


@pytest.mark.parametrize("word", ["L", "R", "LT", "RT", "AP", "PA", "LAP", "RPA"])
@pytest.mark.parametrize("size", [14, 40])
def test_markers_are_known_in_a_font_that_nobody_tuned_for(word: str, size: int) -> None:
    """The patterns are block letters; the library's font has round ones."""
    assert is_marker(drawn(word, size))


@every_row("word", ["O", "X", "W", "S", "I", "OX", "WSO", "IOX", "LAPL", ""])
def test_other_letters_are_not(word: str) -> None:
    """Round, crossed and wide letters, four letters, and none."""
    assert not is_marker(drawn(word))


def test_turned_and_mirrored_images_keep_their_markers() -> None:
    """All letters turn together."""
    word = drawn("LAP")
    assert is_marker([np.rot90(letter) for letter in word])
    assert is_marker([letter[:, ::-1] for letter in word[::-1]])


def test_a_bar_and_a_blank_square_are_no_letters() -> None:
    """Neither has the proportions, or any contrast, of a letter."""
    assert not is_marker([np.ones((4, 40), bool)]) and not is_marker([np.ones((20, 15), bool)])
